"""What three brokers answer to an administrator, a group and a transaction, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from odradek.client import Consumer, Producer, TopicPartition, TransactionalProducer
from odradek.client.admin import Admin, AlterConfig, ConfigResource, ConfigResourceType, NewTopic
from odradek.client.admin.quotas import ClientQuotaEntity
from odradek.client.admin.transactions import OpenTransaction
from odradek.client.model import EARLIEST, LATEST, OffsetAndMetadata
from odradek.testing.simulation import Simulation, simulate
from odradek.wire.errors import ErrorCode, KafkaError

SETTINGS = {"group.coordinator.rebalance.protocols": "classic,consumer", "group.initial.rebalance.delay.ms": "0"}


def run(test: Callable[[Simulation, Admin], Awaitable[None]], **settings: str) -> None:
    """Run a test with three brokers."""

    async def scenario(sim: Simulation) -> None:
        async with Admin(bootstrap_servers=sim.bootstrap_servers) as admin:
            await test(sim, admin)

    simulate(scenario, 7, brokers=3, settings=SETTINGS | settings)


async def until(condition: Callable[[], Awaitable[Any]], seconds: float = 60) -> Any:
    """The first result of a coroutine function that is true."""
    async with asyncio.timeout(seconds):
        while not (found := await condition()):
            await asyncio.sleep(0.05)
    return found


def code(outcome: object) -> ErrorCode:
    """The error code of an outcome, NONE without an error."""
    return outcome.code if isinstance(outcome, KafkaError) else ErrorCode.NONE


def test_topics_are_created_described_enlarged_and_deleted() -> None:
    async def test(_: Simulation, admin: Admin) -> None:
        wanted = [
            NewTopic("placed", replica_assignments={0: [2, 3], 1: [3, 1]}, configs={"retention.ms": "1000"}),
            NewTopic("plain", 2, 3),
            NewTopic("too-many", 1, 4),
            NewTopic("bad name", 1, 1),
        ]
        tried = await admin.create_topics([NewTopic("only-tried", 1, 1)], validate_only=True)
        assert code(tried["only-tried"]) is ErrorCode.NONE
        made = await admin.create_topics(wanted)
        assert [code(made[topic.name]) for topic in wanted] == [
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.INVALID_REPLICATION_FACTOR,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]
        assert code((await admin.create_topics([NewTopic("plain")]))["plain"]) is ErrorCode.TOPIC_ALREADY_EXISTS
        assert await admin.list_topics() == ["placed", "plain"]
        described: Any = await admin.describe_topics(["placed", "plain", "missing"])
        assert code(described["missing"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        placed = [(p.partition, p.leader, list(p.replicas), list(p.isr)) for p in described["placed"].partitions]
        assert placed == [(0, 2, [2, 3], [2, 3]), (1, 3, [3, 1], [3, 1])]
        by_id: Any = await admin.describe_topics_by_id([made["plain"]])  # type: ignore[list-item]
        assert by_id[made["plain"]].name == "plain"
        enlarged = await admin.create_partitions({"plain": 4, "placed": 1, "missing": 3})
        assert {name: code(outcome) for name, outcome in enlarged.items()} == {
            "plain": ErrorCode.NONE,
            "placed": ErrorCode.INVALID_PARTITIONS,
            "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        plain: Any = (await admin.describe_topics(["plain"]))["plain"]
        assert [p.partition for p in plain.partitions] == [0, 1, 2, 3]
        gone = await admin.delete_topics_by_id([made["plain"], bytes(15) + b"x"])  # type: ignore[list-item]
        assert [code(outcome) for outcome in gone.values()] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]
        missing = await admin.delete_topics(["placed", "missing"])
        assert [code(outcome) for outcome in missing.values()] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await admin.list_topics() == []

    run(test)


def test_topic_is_created_by_its_first_record() -> None:
    async def test(sim: Simulation, admin: Admin) -> None:
        async with Producer(bootstrap_servers=sim.bootstrap_servers) as producer:
            assert (await producer.send_and_wait("made", b"1")).offset == 0
        made: Any = (await admin.describe_topics(["made"]))["made"]
        assert [len(partition.replicas) for partition in made.partitions] == [3, 3]

    run(test, **{"num.partitions": "2", "auto.create.topics.enable": "true"})


def test_settings_are_described_changed_and_taken_back() -> None:
    async def test(sim: Simulation, admin: Admin) -> None:
        await sim.topic("t")
        topic = ConfigResource(ConfigResourceType.TOPIC, "t")
        broker = ConfigResource(ConfigResourceType.BROKER, "2")
        missing = ConfigResource(ConfigResourceType.TOPIC, "missing")

        async def values(name: str) -> tuple[str | None, bool]:
            found: Any = await admin.describe_configs([topic], keys=[name])
            return found[topic][name].value, found[topic][name].is_default

        assert await values("retention.ms") == ("604800000", True)
        changes = {
            topic: [AlterConfig("retention.ms", "1000")],
            broker: [AlterConfig("log.cleaner.threads", "2")],
            missing: [AlterConfig("retention.ms", "1000")],
        }
        outcome = await admin.alter_configs({topic: changes[topic]}, validate_only=True)
        assert code(outcome[topic]) is ErrorCode.NONE
        assert await values("retention.ms") == ("604800000", True)
        outcome = await admin.alter_configs(changes)
        assert {each: code(error) for each, error in outcome.items()} == {
            topic: ErrorCode.NONE,
            broker: ErrorCode.NONE,
            missing: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert await values("retention.ms") == ("1000", False)
        found: Any = await admin.describe_configs([broker], keys=["log.cleaner.threads"])
        assert found[broker]["log.cleaner.threads"].value == "2"
        rejected = await admin.alter_configs({topic: [AlterConfig("retention.ms", "soon")]})
        assert code(rejected[topic]) is ErrorCode.INVALID_CONFIG
        names = {each.name for each in await admin.list_config_resources([ConfigResourceType.TOPIC])}
        assert names == {"t"}

    run(test)


def test_offsets_are_found_and_records_deleted() -> None:
    async def test(sim: Simulation, admin: Admin) -> None:
        await sim.topic("t")
        place = TopicPartition("t", 0)
        async with Producer(bootstrap_servers=sim.bootstrap_servers) as producer:
            for number in range(10):
                await producer.send_and_wait("t", b"%d" % number, timestamp_ms=1_000 + number)

        async def offset(at: int) -> int:
            found: Any = (await admin.list_offsets({place: at}))[place]
            return int(found.offset)

        assert [await offset(at) for at in (EARLIEST, LATEST, 1_004, 1_010)] == [0, 10, 4, -1]
        beyond = await admin.delete_records({place: 11})
        assert code(beyond[place]) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert await admin.delete_records({place: 4}) == {place: 4}
        assert [await offset(at) for at in (EARLIEST, LATEST)] == [4, 10]
        assert await admin.delete_records({place: -1}) == {place: 10}
        assert [await offset(at) for at in (EARLIEST, LATEST)] == [10, 10]
        ends = {broker: (await admin.replicas.end_offsets(broker, [place]))[place] for broker in (1, 2, 3)}
        assert ends == {1: 10, 2: 10, 3: 10}
        directories: Any = await admin.log_dirs.describe([1])
        (directory,) = directories[1].values()
        assert directory.error is None
        assert directory.replicas[place].offset_lag == 0
        assert not directory.replicas[place].is_future

    run(test)


async def described_members(sim: Simulation, admin: Admin, protocol: str) -> None:
    await sim.topic("t", partitions=4)
    for partition in range(4):
        async with Producer(bootstrap_servers=sim.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"value", partition=partition)

    def member() -> Any:
        return Consumer(
            "t",
            bootstrap_servers=sim.bootstrap_servers,
            group_id="g",
            group_protocol=protocol,  # type: ignore[arg-type]
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )

    async with member() as one, member() as other:
        seen: set[tuple[str, int]] = set()

        async def read(consumer: Any) -> None:
            async for record in consumer:
                seen.add((record.topic, record.partition))

        readers = [asyncio.create_task(read(one)), asyncio.create_task(read(other))]

        async def settled() -> Any:
            group: Any = (await admin.groups.describe(["g"]))["g"]
            owned = [] if isinstance(group, KafkaError) else [len(each.assignment) for each in group.members]
            return group if owned == [2, 2] and len(seen) == 4 else None

        group = await until(settled)
        assert str(group.type).lower() == protocol
        assert str(group.state).lower() == "stable"
        assert sorted(place.partition for each in group.members for place in each.assignment) == [0, 1, 2, 3]
        (listed,) = await admin.groups.list()
        assert (listed.group_id, str(listed.type).lower()) == ("g", protocol)
        assert code((await admin.groups.delete(["g"]))["g"]) is ErrorCode.NON_EMPTY_GROUP
        for reader in readers:
            reader.cancel()
        await one.commit()
        await other.commit()
    committed = await admin.groups.offsets("g")
    assert {place.partition: found.offset for place, found in committed.items()} == {0: 1, 1: 1, 2: 1, 3: 1}
    changed = await admin.groups.alter_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(0)})
    assert changed == {TopicPartition("t", 0): None}
    assert await admin.groups.delete_offsets("g", [TopicPartition("t", 3)]) == {TopicPartition("t", 3): None}
    committed = await admin.groups.offsets("g")
    assert {place.partition: found.offset for place, found in committed.items()} == {0: 0, 1: 1, 2: 1}
    assert code((await admin.groups.delete(["g"]))["g"]) is ErrorCode.NONE
    assert await admin.groups.list() == []
    assert code((await admin.groups.describe(["g"]))["g"]) is ErrorCode.GROUP_ID_NOT_FOUND


def test_classic_group_is_described_and_its_offsets_changed() -> None:
    run(lambda sim, admin: described_members(sim, admin, "classic"))


def test_consumer_group_is_described_and_its_offsets_changed() -> None:
    run(lambda sim, admin: described_members(sim, admin, "consumer"))


def test_transactions_are_listed_described_and_aborted() -> None:
    async def test(sim: Simulation, admin: Admin) -> None:
        await sim.topic("t")
        place = TopicPartition("t", 0)
        servers = sim.bootstrap_servers
        async with TransactionalProducer(transactional_id="one", bootstrap_servers=servers) as producer:
            async with producer.transaction():
                await producer.send("t", b"committed")
            # The commit is answered once it is decided; the coordinator notes afterwards that its markers are written.
            while [(each.transactional_id, str(each.state)) for each in await admin.transactions.list()] != [
                ("one", "CompleteCommit")
            ]:
                await asyncio.sleep(0.01)
        lost = TransactionalProducer(transactional_id="two", bootstrap_servers=servers)
        await lost.start()
        await lost.initialize()
        lost.begin()
        await (await lost.send("t", b"hanging"))
        described: Any = (await admin.transactions.describe(["two"]))["two"]
        assert (str(described.state), described.partitions) == ("Ongoing", [place])
        producers: Any = (await admin.transactions.describe_producers([place]))[place]
        (hanging,) = [each for each in producers if each.transaction_start_offset is not None]
        assert hanging.producer_id == described.producer_id
        assert [record.value for record in await sim.records("t")] == [b"committed"]
        await admin.transactions.abort(
            OpenTransaction(place, hanging.producer_id, hanging.producer_epoch, hanging.coordinator_epoch or 0)
        )
        producers = (await admin.transactions.describe_producers([place]))[place]
        assert all(each.transaction_start_offset is None for each in producers)
        await admin.transactions.force_terminate("two")
        described = (await admin.transactions.describe(["two"]))["two"]
        assert str(described.state) in ("CompleteAbort", "Empty")
        assert [record.value for record in await sim.records("t")] == [b"committed"]
        missing: Any = (await admin.transactions.describe(["three"]))["three"]
        assert code(missing) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    run(test)


def test_quotas_are_altered_and_described() -> None:
    async def test(_: Simulation, admin: Admin) -> None:
        alice = ClientQuotaEntity.of({"user": "alice"})
        others = ClientQuotaEntity.of({"user": None, "client-id": "app"})
        altered = await admin.quotas.alter(
            {alice: {"producer_byte_rate": 1000.0}, others: {"request_percentage": 50.0}}
        )
        assert [code(outcome) for outcome in altered.values()] == [ErrorCode.NONE, ErrorCode.NONE]
        assert await admin.quotas.describe() == {
            alice: {"producer_byte_rate": 1000.0},
            others: {"request_percentage": 50.0},
        }
        await admin.quotas.alter({alice: {"producer_byte_rate": None}})
        assert list(await admin.quotas.describe()) == [others]

    run(test)


def test_cluster_is_described_and_preferred_leaders_are_elected() -> None:
    async def test(sim: Simulation, admin: Admin) -> None:
        await admin.create_topics([NewTopic("t", replica_assignments={0: [1, 2, 3]})])
        place = TopicPartition("t", 0)
        cluster = await admin.describe_cluster()
        assert [broker.node_id for broker in cluster.brokers] == [1, 2, 3]
        assert cluster.controller_id in (1, 2, 3)
        needless = await admin.replicas.elect([place])
        assert code(needless[place]) is ErrorCode.ELECTION_NOT_NEEDED
        await sim.broker(1).stop()

        async def led_by(*brokers: int) -> bool:
            topic: Any = (await admin.describe_topics(["t"]))["t"]
            state = topic.partitions[0]
            return state.leader in brokers and 1 not in state.isr

        await until(lambda: led_by(2, 3))
        away = await admin.replicas.elect([place])
        assert code(away[place]) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        cluster = await admin.describe_cluster()
        assert [broker.node_id for broker in cluster.brokers] == [2, 3]
        await sim.broker(1).start()

        async def elected() -> bool:
            return code((await admin.replicas.elect([place]))[place]) is ErrorCode.NONE

        await until(elected)

        async def is_led_by_preferred() -> bool:
            topic: Any = (await admin.describe_topics(["t"]))["t"]
            return bool(topic.partitions[0].leader == 1)

        # The broker that is asked may learn of the election a moment after the controller has answered.
        await until(is_led_by_preferred)

    run(test, **{"auto.leader.rebalance.enable": "false"})
