"""Work that brokers do by the clock: quotas, retention, compaction, sessions, timeouts of transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.client import Consumer, Producer, TopicPartition, TransactionalProducer
from odradek.client.admin import Admin, NewTopic
from odradek.client.admin.quotas import ClientQuotaEntity
from odradek.client.model import EARLIEST, LATEST, IsolationLevel
from odradek.testing.simulation import Simulation, simulate
from odradek.wire.errors import KafkaError

SETTINGS = {"group.coordinator.rebalance.protocols": "classic,consumer", "group.initial.rebalance.delay.ms": "0"}


def run(test: Callable[[Simulation, Admin], Awaitable[None]], brokers: int = 1, **settings: str) -> None:
    """Run a test with brokers of these settings (dots are underscores)."""

    async def scenario(sim: Simulation) -> None:
        async with Admin(bootstrap_servers=sim.bootstrap_servers) as admin:
            await test(sim, admin)

    given = {name.replace("_", "."): value for name, value in settings.items()}
    simulate(scenario, 11, brokers=brokers, settings=SETTINGS | given)


async def start_of(admin: Admin, place: TopicPartition) -> int:
    found: Any = (await admin.list_offsets({place: EARLIEST}))[place]
    return int(found.offset)


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 120) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.05)


async def seconds_to_write(sim: Simulation, records: int, size: int, **options: Any) -> float:
    began = sim.now
    async with Producer(bootstrap_servers=sim.bootstrap_servers, **options) as producer:
        for _ in range(records):
            await producer.send_and_wait("t", bytes(size), partition=0)
    return sim.now - began


def test_producer_is_throttled_to_its_quota() -> None:
    async def test(sim: Simulation, admin: Admin) -> None:
        await sim.topic("t")
        assert await seconds_to_write(sim, 40, 10_000, client_id="slow") < 5
        await admin.quotas.alter({ClientQuotaEntity.of({"client-id": "slow"}): {"producer_byte_rate": 10_000.0}})
        assert await seconds_to_write(sim, 40, 10_000, client_id="other") < 5
        # 400 kB at 10 kB/s, of which the windows let the first eleven seconds pass.
        assert 20 < await seconds_to_write(sim, 40, 10_000, client_id="slow") < 45

    run(test)


def test_consumer_is_throttled_to_its_quota() -> None:
    async def test(sim: Simulation, admin: Admin) -> None:
        await sim.topic("t")
        await seconds_to_write(sim, 40, 10_000)
        await admin.quotas.alter({ClientQuotaEntity.of({"client-id": "slow"}): {"consumer_byte_rate": 10_000.0}})

        async def seconds_to_read(client_id: str) -> float:
            began, seen = sim.now, 0
            async with Consumer(
                "t",
                bootstrap_servers=sim.bootstrap_servers,
                client_id=client_id,
                auto_offset_reset="earliest",
                max_partition_fetch_bytes=20_000,
            ) as consumer:
                async for _ in consumer:
                    seen += 1
                    if seen == 40:
                        break
            return sim.now - began

        assert await seconds_to_read("other") < 5
        assert 15 < await seconds_to_read("slow") < 45

    run(test)


@pytest.mark.parametrize("max_bytes", [1, 700, 1_500, 100_000])
def test_records_of_many_segments_are_read_in_order(max_bytes: int) -> None:
    async def test(sim: Simulation, admin: Admin) -> None:
        await admin.create_topics([NewTopic("t", 1, 1, {"segment.bytes": "1048576", "index.interval.bytes": "500"})])
        async with Producer(bootstrap_servers=sim.bootstrap_servers) as producer:
            for number in range(60):
                await producer.send_and_wait("t", b"%03d" % number * 100)
        seen: list[bytes | None] = []
        async with Consumer(
            "t",
            bootstrap_servers=sim.bootstrap_servers,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=max_bytes,
            fetch_max_bytes=max_bytes,
        ) as consumer:
            async for record in consumer:
                seen.append(record.value)
                if len(seen) == 60:
                    break
        assert seen == [b"%03d" % number * 100 for number in range(60)]

    run(test)


def test_records_go_after_their_retention() -> None:
    async def test(sim: Simulation, admin: Admin) -> None:
        configs = {"retention.ms": "60000", "segment.ms": "10000"}
        await admin.create_topics([NewTopic("t", 1, 1, configs)])
        place = TopicPartition("t", 0)
        began = sim.now
        await sim.produce("t", b"1")
        await asyncio.sleep(30)
        await sim.produce("t", b"2")

        async def first_is_gone() -> bool:
            return await start_of(admin, place) == 1

        await until(first_is_gone)
        assert 60 <= sim.now - began < 80

        async def second_is_gone() -> bool:
            return await start_of(admin, place) == 2

        await until(second_is_gone)
        assert 90 <= sim.now - began < 115
        end: Any = (await admin.list_offsets({place: LATEST}))[place]
        assert end.offset == 2

    run(test, log_retention_check_interval_ms="5000")


def test_superseded_values_are_compacted_in_the_background() -> None:
    async def test(sim: Simulation, admin: Admin) -> None:
        configs = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
        await admin.create_topics([NewTopic("t", 1, 1, configs)])
        for number in range(5):
            await sim.produce("t", b"%d" % number, key=b"key")
            await sim.produce("t", b"%d" % number, key=b"key-%d" % number)
            await asyncio.sleep(2)
        # The segment in which values are appended is not compacted.
        await sim.produce("t", b"last", key=b"last")

        async def compacted() -> bool:
            return sum(record.key == b"key" for record in await sim.records("t")) == 1

        await until(compacted)
        found = {record.key: record.value for record in await sim.records("t")}
        assert found == {b"key": b"4"} | {b"key-%d" % number: b"%d" % number for number in range(5)} | {
            b"last": b"last"
        }

    run(test, log_cleaner_backoff_ms="1000", log_flush_interval_messages="1")


async def session_of_a_dead_member(sim: Simulation, admin: Admin, **options: Any) -> float:
    """Seconds from the death of one of two members until the other has all partitions."""
    await sim.topic("t", partitions=4)

    async def consume() -> None:
        async with Consumer("t", bootstrap_servers=sim.bootstrap_servers, group_id="g", **options) as consumer:
            async for _ in consumer:
                continue

    programs = [sim.program(name, consume) for name in ("one", "two")]

    async def owned() -> list[int]:
        group: Any = (await admin.groups.describe(["g"]))["g"]
        return [] if isinstance(group, KafkaError) else sorted(len(each.assignment) for each in group.members)

    async def shared() -> bool:
        return await owned() == [2, 2]

    async def alone() -> bool:
        return await owned() == [4]

    await until(shared)
    await asyncio.sleep(5)
    programs[0].stop()
    began = sim.now
    await until(alone)
    return sim.now - began


def test_session_of_a_dead_classic_member_ends() -> None:
    async def test(sim: Simulation, admin: Admin) -> None:
        options = {"group_protocol": "classic", "session_timeout_ms": 10_000, "heartbeat_interval_ms": 1_000}
        assert 8.5 < await session_of_a_dead_member(sim, admin, **options) < 13

    run(test)


def test_session_of_a_dead_member_of_a_consumer_group_ends() -> None:
    async def test(sim: Simulation, admin: Admin) -> None:
        assert 8.5 < await session_of_a_dead_member(sim, admin, group_protocol="consumer") < 13

    run(
        test,
        group_consumer_session_timeout_ms="10000",
        group_consumer_heartbeat_interval_ms="1000",
        group_consumer_min_session_timeout_ms="1000",
        group_consumer_min_heartbeat_interval_ms="500",
    )


def test_transaction_is_aborted_after_its_timeout() -> None:
    async def test(sim: Simulation, admin: Admin) -> None:
        await sim.topic("t")
        place = TopicPartition("t", 0)
        lost = TransactionalProducer(
            transactional_id="lost", bootstrap_servers=sim.bootstrap_servers, transaction_timeout_ms=20_000
        )
        await lost.start()
        await lost.initialize()
        lost.begin()
        await (await lost.send("t", b"hanging"))
        began = sim.now
        await sim.produce("t", b"plain")

        async def stable() -> int:
            found: Any = await admin.list_offsets({place: LATEST}, isolation_level=IsolationLevel.READ_COMMITTED)
            return int(found[place].offset)

        assert await stable() == 0
        assert await sim.records("t") == []

        async def ended() -> bool:
            return await stable() > 0

        await until(ended)
        assert 19 < sim.now - began < 32
        assert [record.value for record in await sim.records("t")] == [b"plain"]
        state: Any = (await admin.transactions.describe(["lost"]))["lost"]
        assert str(state.state) == "CompleteAbort"

    run(test, transaction_abort_timed_out_transaction_cleanup_interval_ms="5000")


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_of_a_transaction_count_when_it_commits(commits: bool) -> None:
    async def test(sim: Simulation, admin: Admin) -> None:
        await sim.topic("t")
        place = TopicPartition("t", 0)
        assert await admin.groups.alter_offsets("g", {place: 3}) == {place: None}
        async with TransactionalProducer(transactional_id="tx", bootstrap_servers=sim.bootstrap_servers) as producer:
            producer.begin()
            await producer.send("t", b"value")
            await producer.send_offsets("g", {place: 8})
            assert (await admin.groups.offsets("g"))[place].offset == 3
            await (producer.commit() if commits else producer.abort())
        found = await admin.groups.offsets("g", require_stable=True)
        assert found[place].offset == (8 if commits else 3)
        assert len(await sim.records("t")) == int(commits)

    run(test)


def test_topics_are_created_while_the_controller_changes() -> None:
    async def test(sim: Simulation, admin: Admin) -> None:
        for number in range(3):
            controller = (await admin.describe_cluster()).controller_id
            creating = asyncio.create_task(admin.create_topics([NewTopic(f"t-{number}", 2, 2)]))
            await asyncio.sleep(0.002 * number)
            sim.broker(controller).kill()
            outcome = await creating
            made = outcome[f"t-{number}"]
            assert not isinstance(made, KafkaError) or made.code.name == "TOPIC_ALREADY_EXISTS"
            await sim.broker(controller).start()

            async def is_whole() -> bool:
                topics: Any = await admin.describe_topics(None)
                return all(len(p.isr) == len(p.replicas) for topic in topics.values() for p in topic.partitions)

            await until(is_whole)
        assert await admin.list_topics() == ["t-0", "t-1", "t-2"]

    run(test, brokers=3)


def test_records_are_deleted_at_the_next_leader_when_the_first_one_dies() -> None:
    async def test(sim: Simulation, admin: Admin) -> None:
        await admin.create_topics([NewTopic("t", replica_assignments={0: [1, 2, 3]})])
        place = TopicPartition("t", 0)
        await sim.produce("t", b"1", b"2")
        assert await admin.delete_records({place: 1}) == {place: 1}
        sim.broker(1).kill()
        began = sim.now
        assert await admin.delete_records({place: 2}) == {place: 2}
        assert sim.now - began < 5

    run(test, brokers=3)
