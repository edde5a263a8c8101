import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from odradek.broker.config import BrokerConfig
from odradek.broker.controller_runtime import ControllerRuntime
from odradek.controller.configs import ConfigChange, ResourceChanges, ResourceType
from odradek.controller.topics import MorePartitions, NewTopic, TopicReference
from odradek.metadata.changes import load_image, topic_creation
from odradek.metadata.config_definitions import ConfigSource, ConfigType, SetValue
from odradek.metadata.image import Broker, ClusterImage, Endpoint, PartitionState, Topic
from odradek.metadata.memory_store import MemoryStore, MemoryTree
from odradek.metadata.sqlite_store import SqliteStore
from odradek.ports.clock import SystemClock
from odradek.ports.disk import SystemDisk
from odradek.ports.randomness import SeededRandom
from odradek.ports.store import Create, MetadataStore, NodeExists, Operation, StoreError, StoreUnavailable
from odradek.wire.errors import ErrorCode, KafkaError

ENDPOINTS = {"PLAINTEXT": Endpoint("localhost", 9092, "PLAINTEXT")}


def controller(store: MetadataStore, settings: dict[str, str] | None = None, seed: str = "s") -> ControllerRuntime:
    return ControllerRuntime(store, BrokerConfig(settings or {}), SystemClock(), SeededRandom(seed))


async def started(store: MetadataStore, settings: dict[str, str] | None = None) -> ControllerRuntime:
    runtime = controller(store, settings)
    await runtime.start()
    await runtime.register(Broker(1, 1, None, ENDPOINTS))
    return runtime


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


def content(image: ClusterImage) -> tuple[object, ...]:
    return (
        image.cluster_id, image.controller_id, image.controller_epoch, image.brokers, image.topics, image.topic_names,
        image.broker_configs, image.group_configs, image.topics_in_deletion,
    )  # fmt: skip


def test_a_first_start_makes_a_cluster_and_a_second_keeps_it() -> None:
    async def test() -> None:
        tree = MemoryTree()
        first = await started(MemoryStore(tree))
        assert len(first.image.cluster_id) == 22
        assert (first.image.controller_id, first.image.controller_epoch) == (1, 1)
        assert first.image.brokers == {1: Broker(1, 1, None, ENDPOINTS)}
        await first.create_topics([NewTopic("t", 2, 1)])
        before = first.image
        await first.stop()
        second = await started(MemoryStore(tree))
        assert second.image.cluster_id == before.cluster_id
        assert second.image.controller_epoch == 2
        assert second.image.topics == before.topics

    run(test)


def test_the_cluster_id_may_be_given_and_must_fit() -> None:
    async def test() -> None:
        tree = MemoryTree()
        first = controller(MemoryStore(tree))
        assert (await first.start("given")).cluster_id == "given"
        await first.stop()
        with pytest.raises(StoreError, match="given, not of other"):
            await controller(MemoryStore(tree)).start("other")

    run(test)


def test_two_controllers_do_not_reign_together() -> None:
    async def test() -> None:
        tree = MemoryTree()
        await started(MemoryStore(tree))
        with pytest.raises(NodeExists, match="/controller"):
            await controller(MemoryStore(tree)).start()

    run(test)


def test_after_any_change_the_store_holds_the_image() -> None:
    async def test() -> None:
        store = MemoryStore()
        runtime = await started(store)
        await runtime.create_topics([NewTopic("a", 3, 1, (), [("retention.ms", "5")]), NewTopic("b", 1, 1)])
        assert content(await load_image(store)) == content(runtime.image)
        await runtime.create_partitions([MorePartitions("b", 4)])
        assert content(await load_image(store)) == content(runtime.image)
        changes = [
            ResourceChanges(ResourceType.TOPIC, "a", [ConfigChange("segment.ms", 0, "9")]),
            ResourceChanges(ResourceType.BROKER, "1", [ConfigChange("num.io.threads", 0, "9")]),
            ResourceChanges(ResourceType.GROUP, "g", [ConfigChange("share.isolation.level", 0, "read_committed")]),
        ]
        assert [reply.failure for reply in await runtime.alter_configs(changes)] == [None] * 3
        assert content(await load_image(store)) == content(runtime.image)
        await runtime.delete_topics([TopicReference("a"), TopicReference(None, runtime.image.topics["b"].id)])
        assert content(await load_image(store)) == content(runtime.image)
        assert runtime.image.topics == {}
        assert await store.children("/brokers/topics") == []
        await runtime.create_topics([NewTopic("a", 1, 1)])
        assert content(await load_image(store)) == content(runtime.image)

    run(test)


def test_subscribers_know_before_the_answer() -> None:
    async def test() -> None:
        runtime = await started(MemoryStore())
        seen: list[tuple[bool, bool]] = []

        async def open_partitions(old: ClusterImage, new: ClusterImage) -> None:
            await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=0)
            seen.append(("t" in old.topics, "t" in new.topics))

        runtime.subscribe(open_partitions)
        runtime.subscribe(lambda old, new: seen.append((old is new, new is runtime.image)))
        await runtime.create_topics([NewTopic("t", 1, 1)])
        assert seen == [(False, True), (False, True)]
        await runtime.create_topics([NewTopic("t", 1, 1)])
        await runtime.create_topics([NewTopic("u", 1, 1)], validate_only=True)
        assert len(seen) == 2

    run(test)


def test_requests_are_decided_one_after_the_other() -> None:
    async def test() -> None:
        runtime = await started(MemoryStore())
        answers = await asyncio.gather(*(runtime.create_topics([NewTopic("t", 1, 1)]) for _ in range(20)))
        assert [answer[0].failure is None for answer in answers] == [True] + [False] * 19

    run(test)


def test_an_event_goes_on_when_the_one_who_asked_has_gone() -> None:
    async def test() -> None:
        runtime = await started(MemoryStore())
        gate = asyncio.get_running_loop().create_future()
        runtime.subscribe(lambda old, new: gate)
        asked = asyncio.ensure_future(runtime.create_topics([NewTopic("t", 1, 1)]))
        while "t" not in runtime.image.topics:
            await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=0)
        asked.cancel()
        gate.set_result(None)
        await runtime.create_topics([NewTopic("u", 1, 1)])
        assert asked.cancelled()
        assert set(runtime.image.topics) == {"t", "u"}

    run(test)


class FailingStore:
    """A store whose next write is refused, before or after it took effect."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.failure: str | None = None
        self.get, self.children, self.watch, self.close = store.get, store.children, store.watch, store.close
        self.subtree = store.subtree

    async def apply(self, operations: Sequence[Operation]) -> None:
        failure, self.failure = self.failure, None
        if failure != "before":
            await self.store.apply(operations)
        if failure is not None:
            raise StoreUnavailable("no connection")


@pytest.mark.parametrize("failure", ["before", "after"])
def test_after_a_failed_write_the_image_is_what_the_store_holds(failure: str) -> None:
    async def test() -> None:
        store = FailingStore(MemoryStore())
        runtime = await started(store)
        await runtime.create_topics([NewTopic("kept", 1, 1)])
        store.failure = failure
        with pytest.raises(KafkaError) as raised:
            await runtime.create_topics([NewTopic("t", 1, 1)])
        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert ("t" in runtime.image.topics) is (failure == "after")
        assert content(await load_image(store)) == content(runtime.image)
        await runtime.create_topics([NewTopic("u", 1, 1)])
        assert {"kept", "u"} <= runtime.image.topics.keys()

    run(test)


def test_a_deletion_that_was_cut_off_is_finished_at_the_start() -> None:
    async def test() -> None:
        tree = MemoryTree()
        before = MemoryStore(tree)
        topic = Topic("t", b"i" * 16, (PartitionState(1, 0, (1,), (1,)),) * 2)
        half = [o for o in topic_creation(topic) if not o.path.endswith("partitions/1/state")]
        await before.apply([*half, Create("/admin/delete_topics/t", b"")])
        await before.close()
        store = MemoryStore(tree)
        runtime = await started(store)
        assert runtime.image.topics == {}
        assert runtime.image.topics_in_deletion == frozenset()
        assert await store.children("/admin/delete_topics") == []
        await runtime.create_topics([NewTopic("t", 1, 1)])
        assert content(await load_image(store)) == content(runtime.image)

    run(test)


def test_automatic_creation() -> None:
    async def test() -> None:
        runtime = await started(MemoryStore(), {"num.partitions": "3"})
        failures = await runtime.auto_create(["a", "b d", "__consumer_offsets", "a"])
        assert failures == {"b d": ErrorCode.INVALID_TOPIC_EXCEPTION}
        assert len(runtime.image.topics["a"].partitions) == 3
        offsets = runtime.image.topics["__consumer_offsets"]
        assert len(offsets.partitions) == 50
        assert offsets.is_internal
        assert offsets.configs["cleanup.policy"] == "compact"
        assert await runtime.auto_create(["a"]) == {}

    run(test)


def test_producer_ids_are_never_handed_out_twice() -> None:
    async def test() -> None:
        tree = MemoryTree()
        first = await started(MemoryStore(tree))
        blocks = await asyncio.gather(*(first.next_producer_id_block() for _ in range(3)))
        await first.stop()
        second = await started(MemoryStore(tree))
        blocks.append(await second.next_producer_id_block())
        assert blocks == [range(i * 1000, (i + 1) * 1000) for i in range(4)]

    run(test)


def test_dynamic_settings_reach_the_broker_s_configuration() -> None:
    async def test() -> None:
        tree = MemoryTree()
        config = BrokerConfig({})
        runtime = ControllerRuntime(MemoryStore(tree), config, SystemClock(), SeededRandom(1))
        await runtime.start()
        await runtime.register(Broker(1, 1, None, ENDPOINTS))
        await runtime.alter_configs(
            [ResourceChanges(ResourceType.BROKER, "", [ConfigChange("log.retention.ms", 0, "7")])]
        )
        assert config.topic_settings({})["retention.ms"] == 7
        await runtime.stop()
        again = BrokerConfig({})
        await ControllerRuntime(MemoryStore(tree), again, SystemClock(), SeededRandom(1)).start()
        assert again.number("log.retention.ms") == 7

    run(test)


def test_configs_are_described() -> None:
    async def test() -> None:
        runtime = await started(
            MemoryStore(),
            {"log.retention.hours": "24", "log.segment.bytes": "2097152", "super.users": "x", "ssl.a.b": "hunter2"},
        )
        await runtime.create_topics([NewTopic("t", 1, 1, (), [("segment.bytes", "4194304")])])
        described = {c.name: c for c in runtime.describe_configs(ResourceType.TOPIC, "t")}
        assert len(described) == 33
        assert described["retention.ms"].value == "86400000"
        assert described["retention.ms"].synonyms == []
        assert described["retention.ms"].type == ConfigType.LONG
        assert described["segment.bytes"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        assert described["segment.bytes"].synonyms == [
            SetValue("segment.bytes", "4194304", ConfigSource.DYNAMIC_TOPIC_CONFIG),
            SetValue("log.segment.bytes", "2097152", ConfigSource.STATIC_BROKER_CONFIG),
            SetValue("log.segment.bytes", "1073741824", ConfigSource.DEFAULT_CONFIG),
        ]
        broker = {c.name: c for c in runtime.describe_configs(ResourceType.BROKER, "1")}
        assert broker["log.retention.hours"].source is ConfigSource.STATIC_BROKER_CONFIG
        assert broker["log.retention.hours"].read_only
        assert broker["log.retention.ms"] == broker["log.retention.ms"]._replace(
            value=None, read_only=False, synonyms=[]
        )
        assert not broker["num.io.threads"].read_only
        assert broker["ssl.a.b"].is_sensitive
        assert broker["ssl.a.b"].value is None
        assert broker["ssl.keystore.password"].is_sensitive
        assert "hunter2" not in repr(list(broker.values()))
        assert "zookeeper.connect" not in broker
        keys = ["num.io.threads", "nothing"]
        assert [c.name for c in runtime.describe_configs(ResourceType.BROKER, "1", keys)] == ["num.io.threads"]
        await runtime.alter_configs(
            [ResourceChanges(ResourceType.BROKER, "", [ConfigChange("num.io.threads", 0, "7")])]
        )
        (default,) = runtime.describe_configs(ResourceType.BROKER, "")
        assert (default.name, default.value) == ("num.io.threads", "7")
        assert default.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        group = {c.name: c for c in runtime.describe_configs(ResourceType.GROUP, "g")}
        assert group["consumer.session.timeout.ms"].value == "45000"

    run(test)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (ResourceType.TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ResourceType.BROKER, "5", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER, "x", ErrorCode.INVALID_REQUEST),
        (ResourceType.GROUP, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described(kind: int, name: str, code: ErrorCode) -> None:
    async def test() -> None:
        runtime = await started(MemoryStore())
        with pytest.raises(KafkaError) as raised:
            runtime.describe_configs(kind, name)
        assert raised.value.code is code

    run(test)


def test_it_runs_on_sqlite(tmp_path: object) -> None:
    async def test() -> None:
        disk = SystemDisk()
        path = f"{tmp_path}/metadata.db"
        runtime = await started(await SqliteStore.open(path, disk))
        await runtime.create_topics([NewTopic("t", 50, 1)])
        topics = runtime.image.topics
        await runtime.stop()
        again = await started(await SqliteStore.open(path, disk))
        assert again.image.topics == topics
        await again.stop()
        disk.close()

    run(test)
