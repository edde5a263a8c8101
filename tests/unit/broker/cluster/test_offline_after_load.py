"""Directories that brokers have reported as failed are remembered when the image is loaded again, and no longer."""

from __future__ import annotations

import pytest

from odradek.broker.cluster.controller import _with_offline
from odradek.broker.cluster.registrations import announce_failed_directory
from odradek.controller.in_sync import IsrChange
from odradek.controller.reassignments import Reassignment, alter_reassignments
from odradek.controller.topics import NewTopic
from odradek.metadata.image import Broker, ClusterImage, PartitionState, Topic
from odradek.wire.errors import ErrorCode
from tests.unit.broker.cluster.cluster_members import Cluster, run


def cluster(*offline: tuple[int, ...], epochs: tuple[int, ...] = (11, 12), topic_id: bytes = b"t" * 16) -> ClusterImage:
    """Topic t, of which each partition has these replicas offline, and brokers 1, 2 with these registrations."""
    states = tuple(PartitionState(1, 4, (1, 2), (1,), offline_replicas=each) for each in offline)
    brokers = {index: Broker(index, epoch, None, {}) for index, epoch in enumerate(epochs, 1)}
    return ClusterImage("c").with_brokers(brokers).with_topics([Topic("t", topic_id, states)])


def offline_in(image: ClusterImage) -> list[tuple[int, ...]]:
    return [state.offline_replicas for state in image.topics["t"].partitions]


def test_failed_directories_of_the_same_registration_are_kept() -> None:
    loaded = cluster((), (), ())
    assert offline_in(_with_offline(loaded, cluster((2,), (), (1, 2)))) == [(2,), (), (1, 2)]


def test_failed_directories_of_another_registration_are_dropped() -> None:
    loaded = cluster((), (), epochs=(11, 99))
    assert offline_in(_with_offline(loaded, cluster((2,), (1, 2)))) == [(), (1,)]
    assert offline_in(_with_offline(cluster((), epochs=(11,)), cluster((2,)))) == [()]
    assert offline_in(_with_offline(cluster(()), cluster((2,), epochs=(11,)))) == [()]


def test_image_without_failed_directories_stays_the_same() -> None:
    loaded = cluster((), ())
    assert _with_offline(loaded, cluster((), ())) is loaded
    assert _with_offline(loaded, ClusterImage("c")) is loaded


def test_topic_of_another_id_has_no_failed_directories() -> None:
    loaded = cluster((), topic_id=b"u" * 16)
    assert offline_in(_with_offline(loaded, cluster((2,)))) == [()]


def test_partitions_that_were_added_or_are_missing_do_no_harm() -> None:
    assert offline_in(_with_offline(cluster((), (), ()), cluster((2,)))) == [(2,), (), ()]
    assert offline_in(_with_offline(cluster(()), cluster((2,), (1,), (2,)))) == [(2,)]


def test_failed_directory_of_a_replica_that_moved_away_is_dropped() -> None:
    moved = cluster((2,)).with_topics([Topic("t", b"t" * 16, (PartitionState(1, 4, (1, 3), (1,)),))])
    assert offline_in(_with_offline(moved, cluster((1, 2)))) == [(1,)]


@pytest.mark.parametrize("broker", [1, 2])
def test_replica_of_a_failed_directory_can_come_back_into_another_one(broker: int) -> None:
    """A controller asks other brokers about their directories with each new replica, and its own one never."""

    async def test(members: Cluster) -> None:
        await members.of(1, 2, 3)
        controller, member = members.reigning, members.members[broker]
        first, second = {1, 2, 3} - {broker}
        await controller.create_topics([NewTopic("t", assignments=[(0, (broker, first))])])

        def state() -> PartitionState:
            return controller.image.topics["t"].partitions[0]

        async def move(*replicas: int) -> None:
            moves = [Reassignment("t", 0, replicas)]
            await controller.change(lambda image: alter_reassignments(image, moves, member.config))
            await members.until(members.agrees)
            members_in_sync = tuple((each, -1) for each in {*state().isr, *replicas})
            now, topic_id = state(), controller.image.topics["t"].id
            change = IsrChange(topic_id, 0, now.leader_epoch, now.partition_epoch, members_in_sync)
            epoch = controller.image.brokers[now.leader].epoch
            (changed,) = await controller.alter_partitions(now.leader, epoch, [change])
            # The end of the move is also the end of the leader's epoch.
            assert changed.error is ErrorCode.NEW_LEADER_ELECTED
            assert state().replicas == replicas

        member.bad_replicas.add(("t", 0))
        await announce_failed_directory(member.store, broker)
        await members.until(lambda: state().offline_replicas == (broker,))
        await move(first, second)
        assert state().offline_replicas == ()
        member.bad_replicas.clear()
        await move(broker, first)

    run(test)
