"""The elected controller among brokers: topics, failures, restarts, shutdowns, and its successors."""

from __future__ import annotations

from odradek.controller.topics import NewTopic, TopicReference
from odradek.metadata.image import NO_LEADER, PartitionState
from tests.unit.broker.cluster_members import Cluster, run


def state(cluster: Cluster, topic: str = "t", index: int = 0) -> PartitionState:
    found = cluster.reigning.image.partition(topic, index)
    assert found is not None
    return found


def test_everybody_knows_a_new_topic_before_its_creation_is_answered() -> None:
    async def test(cluster: Cluster) -> None:
        members = await cluster.of(1, 2, 3)
        await cluster.reigning.create_topics([NewTopic("t", 6, 3)])
        assert cluster.agrees()
        for member in members:
            assert len(member.image.topics["t"].partitions) == 6
        await cluster.reigning.delete_topics([TopicReference("t")])
        assert cluster.agrees()
        assert all("t" not in member.image.topics for member in members)
        for member in members:
            if not member.controller.is_active:
                assert sorted(member.deleted) == [("t", i) for i in range(6)]

    run(test)


def test_the_partitions_of_a_dead_broker_are_led_by_others() -> None:
    async def test(cluster: Cluster) -> None:
        _, second, _ = await cluster.of(1, 2, 3)
        await cluster.reigning.create_topics([NewTopic("t", 6, 3)])
        before = cluster.reigning.image.topics["t"].partitions
        await second.die(session_ends=True)
        await cluster.until(lambda: 2 not in cluster.reigning.image.brokers and cluster.agrees())
        for old, new in zip(before, cluster.reigning.image.topics["t"].partitions, strict=True):
            assert 2 not in new.isr
            assert new.leader == (old.leader if old.leader != 2 else new.isr[0])
            assert new.leader_epoch == old.leader_epoch + (old.leader == 2)

    run(test)


def test_a_refused_connection_ends_a_registration_before_its_session() -> None:
    async def test(cluster: Cluster) -> None:
        first, second, _ = await cluster.of(1, 2, 3)
        await cluster.reigning.create_topics([NewTopic("t", 6, 3)])
        await second.die(session_ends=False)
        await cluster.until(lambda: 2 not in cluster.reigning.image.brokers)
        assert await first.store.get("/brokers/ids/2") is None
        assert all(s.leader not in (2, NO_LEADER) for s in cluster.reigning.image.topics["t"].partitions)

    run(test)
