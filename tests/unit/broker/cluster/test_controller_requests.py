"""What clients and brokers ask of the controller: order, answers, what is written and who knows when."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from odradek.broker.cluster.controller import Controller
from odradek.broker.cluster.membership import IdTaken, Membership, cluster_id
from odradek.broker.cluster.registrations import register
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.client.network.connection import Connection
from odradek.controller.configs import ConfigChange, ResourceChanges, ResourceType
from odradek.controller.topics import MorePartitions, NewTopic, TopicReference
from odradek.metadata.changes import load_image, topic_creation
from odradek.metadata.image import Broker, ClusterImage, Endpoint, PartitionState, Topic
from odradek.metadata.nodes import BrokerNode
from odradek.metadata.stores.memory_store import MemoryStore, MemoryTree
from odradek.metadata.stores.sqlite_store import SqliteStore
from odradek.ports.clock import SystemClock
from odradek.ports.disk import SystemDisk
from odradek.ports.randomness import SeededRandom
from odradek.ports.store import (
    Create,
    Delete,
    MetadataStore,
    Put,
    SessionExpired,
    StoreError,
    StoreUnavailable,
)
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.api.lone_controller import lone_controller
from tests.unit.broker.cluster.cluster_members import Cluster, DyingStore
from tests.unit.broker.cluster.cluster_members import run as run_cluster

ENDPOINTS = {"PLAINTEXT": Endpoint("localhost", 9092, "PLAINTEXT")}


async def connect_to_none(broker: Broker) -> Connection:
    raise AssertionError(f"a connection to broker {broker.id}")


class Lone:
    """A broker alone in its cluster, with what it was given to know."""

    def __init__(self, store: MetadataStore, settings: dict[str, str] | None = None) -> None:
        self.store = store
        self.seen: list[ClusterImage] = []
        self.gate: Awaitable[None] | None = None
        config = BrokerConfig(settings or {})
        self.controller = Controller(store, config, SystemClock(), SeededRandom("s"), self, connect_to_none)
        self.membership = Membership(store, SystemClock(), self.controller)

    def take(self, image: ClusterImage) -> Awaitable[None] | None:
        self.seen.append(image)
        return self.gate

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    async def start(self, *, unclean: bool = False) -> Lone:
        await cluster_id(self.store, SeededRandom("id"), None)
        await self.membership.join(Broker(1, -1, None, ENDPOINTS, unclean=unclean))
        return self

    async def stop(self) -> None:
        await self.membership.leave()
        await self.store.close()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


def stored(image: ClusterImage) -> tuple[object, ...]:
    return (
        image.cluster_id, image.controller_id, image.controller_epoch, image.brokers, image.topics, image.topic_names,
        image.broker_configs, image.group_configs, image.topics_in_deletion,
    )  # fmt: skip


def test_a_lone_broker_is_its_controller_as_soon_as_it_has_joined() -> None:
    async def test() -> None:
        tree = MemoryTree()
        lone = await Lone(MemoryStore(tree)).start()
        assert lone.controller.is_active
        assert lone.seen == [lone.image]
        assert (lone.image.controller_id, lone.image.controller_epoch) == (1, 1)
        assert lone.image.brokers == {1: Broker(1, 1, None, ENDPOINTS)}
        await lone.controller.create_topics([NewTopic("t", 2, 1)])
        before = lone.image
        await lone.stop()
        again = await Lone(MemoryStore(tree)).start()
        assert again.image.cluster_id == before.cluster_id
        assert (again.image.controller_epoch, again.image.brokers[1].epoch) == (2, 2)
        assert again.image.topics == before.topics, "a sole replica keeps its epochs"

    run(test)


def test_a_lone_broker_costs_few_writes() -> None:
    async def test() -> None:
        class Counting(MemoryStore):
            writes = 0

            async def apply(self, operations: object) -> None:
                type(self).writes += 1
                await super().apply(operations)  # type: ignore[arg-type]

        lone = await Lone(Counting(MemoryTree())).start()
        assert Counting.writes == 3, "the cluster's id, the registration, the election"
        await lone.controller.create_topics([NewTopic("t", 50, 1)])
        assert Counting.writes == 4

    run(test)


def test_the_cluster_id_may_be_given_and_must_fit() -> None:
    async def test() -> None:
        store = MemoryStore()
        assert await cluster_id(store, SeededRandom(1), "given") == "given"
        assert await cluster_id(store, SeededRandom(1), None) == "given"
        with pytest.raises(StoreError, match="given, not of other"):
            await cluster_id(store, SeededRandom(1), "other")
        assert len(await cluster_id(MemoryStore(), SeededRandom(1), None)) == 22

    run(test)


def test_after_any_change_the_store_holds_the_image() -> None:
    async def test() -> None:
        lone = await Lone(MemoryStore()).start()
        controller, store = lone.controller, lone.store
        await controller.create_topics([NewTopic("a", 3, 1, (), [("retention.ms", "5")]), NewTopic("b", 1, 1)])
        assert stored(await load_image(store)) == stored(lone.image)
        await controller.create_partitions([MorePartitions("b", 4)])
        assert stored(await load_image(store)) == stored(lone.image)
        changes = [
            ResourceChanges(ResourceType.TOPIC, "a", [ConfigChange("segment.ms", 0, "9")]),
            ResourceChanges(ResourceType.BROKER, "1", [ConfigChange("num.io.threads", 0, "9")]),
            ResourceChanges(ResourceType.GROUP, "g", [ConfigChange("share.isolation.level", 0, "read_committed")]),
        ]
        assert [reply.failure for reply in await controller.alter_configs(changes)] == [None] * 3
        assert stored(await load_image(store)) == stored(lone.image)
        await controller.delete_topics([TopicReference("a"), TopicReference(None, lone.image.topics["b"].id)])
        assert stored(await load_image(store)) == stored(lone.image)
        assert lone.image.topics == {}
        assert await store.children("/brokers/topics") == []
        await controller.create_topics([NewTopic("a", 1, 1)])
        assert stored(await load_image(store)) == stored(lone.image)

    run(test)


def test_this_broker_knows_before_the_answer() -> None:
    async def test() -> None:
        lone = await Lone(MemoryStore()).start()
        gate = asyncio.get_running_loop().create_future()
        lone.gate = gate
        asked = asyncio.ensure_future(lone.controller.create_topics([NewTopic("t", 1, 1)]))
        while "t" not in lone.image.topics:
            await asyncio.sleep(0)
        assert lone.seen[-1] is lone.image
        assert not asked.done()
        gate.set_result(None)
        await asked
        count = len(lone.seen)
        await lone.controller.create_topics([NewTopic("t", 1, 1)])
        await lone.controller.create_topics([NewTopic("u", 1, 1)], validate_only=True)
        assert len(lone.seen) == count

    run(test)


def test_requests_are_decided_one_after_the_other() -> None:
    async def test() -> None:
        lone = await Lone(MemoryStore()).start()
        answers = await asyncio.gather(*(lone.controller.create_topics([NewTopic("t", 1, 1)]) for _ in range(20)))
        assert [answer[0].failure is None for answer in answers] == [True] + [False] * 19

    run(test)


def test_event_continues_when_its_caller_has_gone() -> None:
    async def test() -> None:
        lone = await Lone(MemoryStore()).start()
        gate = asyncio.get_running_loop().create_future()
        lone.gate = gate
        asked = asyncio.ensure_future(lone.controller.create_topics([NewTopic("t", 1, 1)]))
        while "t" not in lone.image.topics:
            await asyncio.sleep(0)
        asked.cancel()
        gate.set_result(None)
        await lone.controller.create_topics([NewTopic("u", 1, 1)])
        assert asked.cancelled()
        assert set(lone.image.topics) == {"t", "u"}

    run(test)


def test_a_deletion_that_was_cut_off_is_finished_at_the_start() -> None:
    async def test() -> None:
        tree = MemoryTree()
        before = MemoryStore(tree)
        topic = Topic("t", b"i" * 16, (PartitionState(1, 0, (1,), (1,)),) * 2)
        half = [o for o in topic_creation(topic) if not o.path.endswith("partitions/1/state")]
        await before.apply([*half, Create("/admin/delete_topics/t", b"")])
        await before.close()
        lone = await Lone(MemoryStore(tree)).start()
        assert lone.image.topics == {}
        assert lone.image.topics_in_deletion == frozenset()
        assert await lone.store.children("/admin/delete_topics") == []
        await lone.controller.create_topics([NewTopic("t", 1, 1)])
        assert stored(await load_image(lone.store)) == stored(lone.image)

    run(test)


def test_interrupted_topic_creation_completes_when_its_brokers_return() -> None:
    async def test() -> None:
        tree = MemoryTree()
        before = MemoryStore(tree)
        topic = Topic("t", b"i" * 16, (PartitionState(1, 0, (1,), (1,)), PartitionState(2, 0, (2,), (2,))))
        await before.apply(topic_creation(topic)[:2])
        await before.close()
        lone = await Lone(MemoryStore(tree)).start()
        first, second = lone.image.topics["t"].partitions
        assert (first.leader, first.leader_epoch, first.isr) == (1, 0, (1,))
        assert (second.leader, second.leader_epoch) == (-1, -1)
        assert await lone.store.get("/brokers/topics/t/partitions/1/state") is None
        assert stored(await load_image(lone.store)) == stored(lone.image)
        # Such a topic can be deleted, too.
        (deleted,) = await lone.controller.delete_topics([TopicReference("t")])
        assert deleted.failure is None
        assert await lone.store.children("/brokers/topics") == []

    run(test)


def test_missing_topics_are_created_with_default_settings() -> None:
    async def test() -> None:
        link, view = await lone_controller(BrokerConfig({"num.partitions": "3"}), ENDPOINTS)
        failures = await link.auto_create(["a", "b d", "__consumer_offsets", "a"])
        assert failures == {"b d": ErrorCode.INVALID_TOPIC_EXCEPTION}
        assert len(view.image.topics["a"].partitions) == 3
        offsets = view.image.topics["__consumer_offsets"]
        assert len(offsets.partitions) == 50
        assert offsets.is_internal
        assert offsets.configs["cleanup.policy"] == "compact"
        assert await link.auto_create(["a"]) == {}

    run(test)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (SessionExpired("over"), ErrorCode.LEADER_NOT_AVAILABLE),
        (StoreUnavailable("away"), ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_a_controller_that_cannot_create_says_so_of_each_topic(failure: StoreError, code: ErrorCode) -> None:
    """Who asked for metadata, or for a coordinator, is not to be answered by the next controller instead."""

    async def test() -> None:
        link, _ = await lone_controller(BrokerConfig({}), ENDPOINTS)
        store = DyingStore(link._controller._store.store)  # type: ignore[arg-type]
        store.failure, store.after = failure, False
        link._controller._store.store = store
        assert await link.auto_create(["a", "b"]) == {"a": code, "b": code}

    run(test)


def test_producer_ids_are_never_handed_out_twice() -> None:
    async def test() -> None:
        tree = MemoryTree()
        first = await Lone(MemoryStore(tree)).start()
        blocks = await asyncio.gather(*(first.controller.next_producer_id_block(7) for _ in range(3)))
        await first.stop()
        second = await Lone(MemoryStore(tree)).start()
        blocks.append(await second.controller.next_producer_id_block())
        assert blocks == [range(i * 1000, (i + 1) * 1000) for i in range(4)]

    run(test)


def test_it_runs_on_sqlite(tmp_path: object) -> None:
    async def test() -> None:
        disk = SystemDisk()
        path = f"{tmp_path}/metadata.db"
        lone = await Lone(await SqliteStore.open(path, disk)).start()
        await lone.controller.create_topics([NewTopic("t", 50, 1)])
        topics = lone.image.topics
        await lone.stop()
        again = await Lone(await SqliteStore.open(path, disk)).start(unclean=True)
        assert again.image.topics == topics
        assert not again.image.brokers[1].unclean
        assert stored(await load_image(again.store)) == stored(again.image)
        await again.stop()
        disk.close()

    run(test)


def test_a_registered_id_is_not_taken_twice() -> None:
    async def test() -> None:
        tree = MemoryTree()
        lone = await Lone(MemoryStore(tree)).start()
        other = Lone(MemoryStore(tree))
        elsewhere = {"PLAINTEXT": Endpoint("elsewhere", 9092, "PLAINTEXT")}
        with pytest.raises(StoreError, match="broker id 1 is registered by another process, at localhost:9092"):
            await other.membership.join(Broker(1, -1, None, elsewhere))
        assert lone.controller.is_active
        assert lone.image.brokers[1].epoch == 1

    run(test)


def test_a_registration_left_behind_at_the_same_address_is_replaced() -> None:
    async def test() -> None:
        tree = MemoryTree()
        left_behind = MemoryStore(tree)
        await left_behind.apply(
            [
                Create("/brokers/seqid", b""),
                Put("/brokers/seqid", b""),
                Create("/brokers/ids/1", BrokerNode.encode(Broker(1, 2, None, ENDPOINTS), 0), ephemeral=True),
            ]
        )
        lone = await Lone(MemoryStore(tree)).start()
        assert lone.membership.broker_epoch == 3
        await left_behind.close()
        assert await lone.store.get("/brokers/ids/1") is not None

    run(test)


def test_registration_on_loopback_of_another_machine_is_not_replaced() -> None:
    async def test() -> None:
        tree = MemoryTree()
        loopback = {"PLAINTEXT": Endpoint("127.0.0.1", 9092, "PLAINTEXT")}
        second = Lone(MemoryStore(tree))
        await register(MemoryStore(tree), Broker(1, -1, None, loopback), 0, "kafka1")
        with pytest.raises(
            IdTaken, match=r"at 127.0.0.1:9092 on kafka1: set another broker.id \(serve .*: --first-id\)"
        ):
            await second.membership.join(Broker(1, -1, None, loopback), "kafka2")
        same = Lone(MemoryStore(tree))
        await same.membership.join(Broker(1, -1, None, loopback), "kafka1")
        assert same.membership.broker_epoch == 2

    run(test)


def test_registration_names_its_machine_after_its_losses_were_judged() -> None:
    async def test() -> None:
        tree = MemoryTree()
        loopback = {"PLAINTEXT": Endpoint("127.0.0.1", 9092, "PLAINTEXT")}
        first = Lone(MemoryStore(tree))
        await first.membership.join(Broker(1, -1, None, loopback, unclean=True), "kafka1")
        assert not first.image.brokers[1].unclean
        with pytest.raises(IdTaken, match="on kafka1"):
            await Lone(MemoryStore(tree)).membership.join(Broker(1, -1, None, loopback), "kafka2")

    run(test)


def test_address_of_another_broker_is_not_registered() -> None:
    async def test() -> None:
        tree = MemoryTree()
        await Lone(MemoryStore(tree)).start()
        with pytest.raises(IdTaken, match="the address of broker 2 is registered by broker 1, at localhost:9092: set"):
            await Lone(MemoryStore(tree)).membership.join(Broker(2, -1, None, ENDPOINTS))
        elsewhere = {"PLAINTEXT": Endpoint("localhost", 9093, "PLAINTEXT")}
        await Lone(MemoryStore(tree)).membership.join(Broker(2, -1, None, elsewhere))

    run(test)


def test_patience_with_a_registration_that_ends() -> None:
    async def test() -> None:
        tree = MemoryTree()
        left_behind = MemoryStore(tree)
        elsewhere = {"PLAINTEXT": Endpoint("elsewhere", 9092, "PLAINTEXT")}
        node = BrokerNode.encode(Broker(1, 1, None, elsewhere), 0)
        await left_behind.apply([Create("/brokers/seqid", b""), Create("/brokers/ids/1", node, ephemeral=True)])
        lone = Lone(MemoryStore(tree))
        lone.membership = Membership(lone.store, SystemClock(), lone.controller, patience_seconds=60)
        joining = asyncio.ensure_future(lone.start())
        while tree.find("/cluster/id") is None:
            await asyncio.sleep(0)
        assert not joining.done()
        await left_behind.close()
        await joining
        assert lone.membership.broker_epoch == 2

    run(test)


def test_eligible_replicas_end_with_the_minimum_they_stood_for() -> None:
    async def test(cluster: Cluster) -> None:
        first, *_ = await cluster.of(1, 2)
        controller = first.controller
        await controller.create_topics([NewTopic("t", 1, 2, [], [("min.insync.replicas", "2")])])
        leader = controller.image.topics["t"].partitions[0].leader
        other = 3 - leader
        await cluster.members[other].die(session_ends=True)
        await cluster.until(lambda: cluster.controller is not None and other not in cluster.reigning.image.brokers)
        assert cluster.reigning.image.topics["t"].partitions[0].elr == (other,)
        change = ConfigChange("min.insync.replicas", 0, "1")
        await cluster.reigning.alter_configs([ResourceChanges(ResourceType.TOPIC, "t", [change])])
        after = cluster.reigning.image.topics["t"].partitions[0]
        assert (after.elr, after.isr) == ((), (leader,))
        image = await load_image(cluster.members[leader].store)
        assert image.topics == cluster.reigning.image.topics

    run_cluster(test)


@pytest.mark.parametrize("loading", [False, True])
def test_unclean_elections_take_place_once_they_are_allowed(loading: bool) -> None:
    """Though the controller has just been elected, and has not loaded the cluster yet."""

    async def test(cluster: Cluster) -> None:
        members = {m.id: m for m in await cluster.of(1, 2, 3)}
        assignment = [(0, (2, 3))]
        await members[1].controller.create_topics([NewTopic("t", -1, -1, assignment)])
        for broker_id in (3, 2):
            await members[broker_id].die(session_ends=True)
            await cluster.until(lambda gone=broker_id: gone not in cluster.reigning.image.brokers)  # type: ignore[misc]
        await cluster.add(3)
        await cluster.until(cluster.agrees)
        assert cluster.reigning.image.topics["t"].partitions[0].leader == -1
        change = ConfigChange("unclean.leader.election.enable", 0, "true")
        controller = cluster.reigning
        if loading:
            reign = asyncio.create_task(controller.reign(controller.epoch, controller._store._epoch_version))
            while controller.image.topics:
                await asyncio.sleep(0)
        await cluster.reigning.alter_configs([ResourceChanges(ResourceType.TOPIC, "t", [change])])
        after = cluster.reigning.image.topics["t"].partitions[0]
        assert (after.leader, after.isr) == (3, (3,))
        if loading:
            await reign

    run_cluster(test)


def test_the_store_s_own_writers_are_noticed_and_believed() -> None:
    """Kafka's tools for ZooKeeper wrote nodes themselves: then a guarded write fails and the tree is read again."""

    async def test() -> None:
        tree = MemoryTree()
        lone = await Lone(MemoryStore(tree)).start()
        await lone.controller.create_topics([NewTopic("t", 1, 1)])
        other = MemoryStore(tree)
        await other.apply([Delete("/config/topics/t")])
        with pytest.raises(KafkaError) as raised:
            await lone.controller.delete_topics([TopicReference("t")])
        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert lone.controller.is_active
        assert lone.image.topics == (await load_image(lone.store)).topics
        with contextlib.suppress(KafkaError):
            await lone.controller.create_topics([NewTopic("u", 1, 1)])
        assert "u" in lone.image.topics

    run(test)


def test_broker_that_never_registered_leaves_without_the_store() -> None:
    """Its shutdown is not held up by a store that is away: there is no registration to end."""

    async def test() -> None:
        tree = MemoryTree()
        await Lone(MemoryStore(tree)).start()
        second = Lone(MemoryStore(tree))
        elsewhere = {"PLAINTEXT": Endpoint("elsewhere", 9093, "PLAINTEXT")}
        with pytest.raises(IdTaken):
            await second.membership.join(Broker(1, -1, None, elsewhere))
        await second.store.close()
        await second.membership.leave()

    run(test)
