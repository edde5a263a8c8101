"""The transactional producer's protocol with a coordinator of the first version (TV1), and who may adopt what."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import ConfigError, DeliveryTimedOut, IllegalState, ProducerFenced, UnsupportedByBroker
from odradek.client.producer.sequence_numbers import ProducerIdentity
from odradek.client.producer.transactions import State, TransactionalProducer
from odradek.records.topic_partition import TopicPartition
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartition,
    AddPartitionsToTxnResponseTopic,
)
from odradek.wire.messages.find_coordinator import FindCoordinatorResponse, FindCoordinatorResponseCoordinator
from tests.unit.client.fake_cluster import OPTIONS, FakeBroker, drop, fail_produce, lose_answer, silent
from tests.unit.client.transaction_coordinator import Body, Coordinator, run
from tests.unit.client.virtual_time import run_in_virtual_time


def test_partitions_and_groups_are_added_before_anything_goes_to_them() -> None:
    cluster = Coordinator()

    async def body(producer: TransactionalProducer) -> None:
        async with producer.transaction():
            await producer.send("t", b"a", partition=0)
            await producer.producer.flush()
            await producer.send("t", b"b", partition=0)
            await producer.send_offsets("g", {TopicPartition("t", 1): 4})
        async with producer.transaction():
            pass

    run(cluster, body)
    asked = cluster.asked()
    assert sorted(asked) == sorted(
        ["INIT_PRODUCER_ID", "ADD_PARTITIONS_TO_TXN", "ADD_OFFSETS_TO_TXN", "TXN_OFFSET_COMMIT", "END_TXN"]
        + ["PRODUCE"] * 2
    )
    assert asked[:3] == ["INIT_PRODUCER_ID", "ADD_PARTITIONS_TO_TXN", "PRODUCE"]
    assert asked.index("ADD_OFFSETS_TO_TXN") < asked.index("TXN_OFFSET_COMMIT")
    assert asked[-1] == "END_TXN"
    assert cluster.ended == [(0, True)]
    versions = {key: version for _, key, version, _ in cluster.requests}
    assert (versions[ApiKey.PRODUCE], versions[ApiKey.END_TXN], versions[ApiKey.TXN_OFFSET_COMMIT]) == (11, 4, 4)


def test_a_lost_record_aborts_and_the_next_transaction_has_a_new_epoch() -> None:
    cluster = Coordinator()

    async def body(producer: TransactionalProducer) -> None:
        cluster.script(ApiKey.PRODUCE, fail_produce(87))
        with pytest.raises(KafkaError):
            async with producer.transaction():
                await producer.send("t", b"bad", partition=0)
        assert producer.state is State.READY
        async with producer.transaction():
            await producer.send("t", b"good", partition=0)

    run(cluster, body)
    assert cluster.ended == [(0, False), (1, True)]
    assert cluster.values() == [b"good"]


def test_commit_fails_when_a_record_has_no_version_the_broker_knows() -> None:
    cluster = Coordinator()

    async def body(producer: TransactionalProducer) -> None:
        producer.begin()
        await (await producer.send("t", b"a", partition=0))
        cluster.max_versions[ApiKey.PRODUCE] = 1
        cluster.script(ApiKey.PRODUCE, drop)
        with pytest.raises(UnsupportedByBroker):
            await (await producer.send("t", b"lost", partition=0))
        with pytest.raises(UnsupportedByBroker):
            await producer.commit()
        await producer.abort()

    run(cluster, body)
    assert cluster.ended == [(0, False)]


@pytest.mark.parametrize("is_seen", [False, True])
def test_expired_records_abort_and_the_next_transaction_has_a_new_epoch(is_seen: bool) -> None:
    """Found by the simulator (all-600044): it went on behind the numbers of what had expired, refused for ever."""
    cluster = Coordinator()

    async def body(producer: TransactionalProducer) -> None:
        cluster.script(ApiKey.PRODUCE, *[silent] * 100)
        producer.begin()
        delivery = await producer.send("t", b"late", partition=0)
        while not cluster.count(ApiKey.PRODUCE):
            await asyncio.sleep(0)
        # Only this record is to have too little time, and not before it was sent.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(producer.producer.sender, "_timeout_s", 0.06)
            producer.producer.sender.wake()
            if is_seen:
                with pytest.raises(DeliveryTimedOut):
                    await delivery
            with pytest.raises(DeliveryTimedOut):
                await producer.commit()
        for stream in list(cluster.brokers[1].streams):
            stream.end()
        await producer.abort()
        cluster.scripts[ApiKey.PRODUCE].clear()
        async with producer.transaction():
            await producer.send("t", b"good", partition=0)

    run(cluster, body)
    assert cluster.ended == [(0, False), (1, True)]
    assert cluster.values() == [b"good"]


def test_an_abort_waits_for_partitions_that_are_being_added() -> None:
    """Else the answer would come into the next transaction, which would write to them without adding them."""
    cluster = Coordinator()
    asked = asyncio.Event()

    def not_yet(broker: FakeBroker, request: Any, version: int, proper: Callable[[], Any]) -> Any:
        asked.set()
        partitions = [AddPartitionsToTxnResponsePartition(1, ErrorCode.CONCURRENT_TRANSACTIONS)]
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[AddPartitionsToTxnResponseTopic("t", partitions)]
        )

    async def body(producer: TransactionalProducer) -> None:
        producer.begin()
        await producer.send("t", b"a", partition=0)
        await producer.producer.flush()
        cluster.script(ApiKey.ADD_PARTITIONS_TO_TXN, not_yet, not_yet, not_yet)
        await producer.send("t", b"b", partition=1)
        await asked.wait()
        await producer.abort()
        assert cluster.asked()[-1] == "END_TXN"
        async with producer.transaction():
            await producer.send("t", b"c", partition=1)

    run(cluster, body)
    asked_last = cluster.asked()
    assert asked_last[asked_last.index("END_TXN") + 1 :] == ["ADD_PARTITIONS_TO_TXN", "PRODUCE", "END_TXN"]
    assert cluster.ended == [(0, False), (0, True)]


def test_a_lost_answer_to_a_commit_is_asked_again() -> None:
    cluster = Coordinator()

    async def body(producer: TransactionalProducer) -> None:
        cluster.script(ApiKey.END_TXN, lose_answer)
        async with producer.transaction():
            await producer.send("t", b"a", partition=0)

    run(cluster, body)
    assert cluster.ended == [(0, True), (0, True)]


def test_a_fenced_producer_can_only_be_closed() -> None:
    cluster = Coordinator()

    async def body(producer: TransactionalProducer) -> None:
        cluster.script(ApiKey.PRODUCE, fail_produce(47))
        with pytest.raises(ProducerFenced):
            async with producer.transaction():
                await producer.send("t", b"a", partition=0)
        assert producer.state is State.FATAL
        with pytest.raises(ProducerFenced):
            producer.begin()

    run(cluster, body)
    assert cluster.ended == []


def test_an_adopted_identity_writes_in_another_ones_transaction() -> None:
    cluster = Coordinator()

    async def body(producer: TransactionalProducer) -> None:
        task = TransactionalProducer(network=cluster, transactional_id="x", linger_ms=0, **OPTIONS)
        await task.start()
        task.adopt(ProducerIdentity(7, 5))
        await task.send("t", b"from a task", partition=1)
        await task.producer.flush()
        await task.close()
        assert cluster.ended == []
        assert cluster.producers["t", 1, 7][0] == 5
        last = TransactionalProducer(network=cluster, transactional_id="x", **OPTIONS)
        await last.start()
        last.adopt(ProducerIdentity(7, 5))
        await last.commit()
        await last.close()

    run(cluster, body)
    assert cluster.ended == [(5, True)]


def test_calls_out_of_turn_are_rejected() -> None:
    async def body(producer: TransactionalProducer) -> None:
        with pytest.raises(IllegalState):
            await producer.send("t", b"x")
        with pytest.raises(IllegalState):
            await producer.commit()
        producer.begin()
        with pytest.raises(IllegalState):
            producer.begin()

    run(Coordinator(), body)
    with pytest.raises(ConfigError):
        TransactionalProducer()


def test_coordinator_whose_broker_is_gone_is_looked_up_again() -> None:
    """Found by ./dev faults: the metadata had been fetched while the coordinator was away, and named it no more. Each
    transaction failed before anything was asked, and nothing made the client look again."""
    cluster = Coordinator(brokers=2)
    cluster.coordinator = 2

    async def body(producer: TransactionalProducer) -> None:
        async with producer.transaction():
            await producer.send("t", b"1", partition=0)
        cluster.stop(2)
        cluster.coordinator = 1
        for partition in (0, 1):
            cluster.move_leader("t", partition, 1)
        await producer.producer.cluster.refresh_metadata()
        async with producer.transaction():
            await producer.send("t", b"2", partition=0)
            await producer.send_offsets("g", {TopicPartition("t", 0): 3})
        assert cluster.values() == [b"1", b"2"]

    run(cluster, body)


def test_a_coordinator_that_was_started_again_elsewhere_is_found_there() -> None:
    cluster = Coordinator(brokers=2)
    cluster.coordinator = 2
    for partition in (0, 1):
        cluster.move_leader("t", partition, 1)

    def elsewhere(broker: FakeBroker, request: Any, version: int, proper: Callable[[], Any]) -> Any:
        cluster.script(ApiKey.FIND_COORDINATOR, elsewhere)
        found = [FindCoordinatorResponseCoordinator(key, 2, "fake", 1) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)

    async def body(producer: TransactionalProducer) -> None:
        async with producer.transaction():
            await producer.send("t", b"1", partition=0)
        cluster.stop(2)
        cluster.script(ApiKey.FIND_COORDINATOR, elsewhere)
        asked = cluster.count(ApiKey.METADATA)
        async with producer.transaction():
            await producer.send("t", b"2", partition=0)
        assert cluster.count(ApiKey.METADATA) == asked

    run(cluster, body)
    assert cluster.values() == [b"1", b"2"]


def test_offset_fetch_moves_to_another_coordinator_when_its_broker_dies() -> None:
    cluster = Coordinator(brokers=2)
    cluster.coordinator = 2
    cluster.committed["g"]["t", 0] = 5

    async def main() -> None:
        async with asyncio.timeout(20), Consumer(network=cluster, group_id="g", **OPTIONS) as consumer:
            key = TopicPartition("t", 0)
            assert (await consumer.committed([key]))[key].offset == 5
            cluster.stop(2)
            cluster.coordinator = 1
            await consumer.cluster.refresh_metadata()
            assert (await consumer.committed([key]))[key].offset == 5

    asyncio.run(main())


# --- pauses ---


def virtual_s(cluster: Coordinator, body: Body) -> float:
    """The time that a producer with Kafka's pauses takes, on a clock that moves only while all wait."""
    took: list[float] = []
    options = {"transactional_id": "x", "linger_ms": 0, "bootstrap_servers": OPTIONS["bootstrap_servers"]}

    async def main() -> None:
        async with TransactionalProducer(network=cluster, **options) as producer:
            began = asyncio.get_running_loop().time()
            await body(producer)
            took.append(asyncio.get_running_loop().time() - began)

    run_in_virtual_time(main())
    return took[0]


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS])
def test_batch_is_sent_again_soon_while_another_partition_is_being_added(code: ErrorCode) -> None:
    """Apache's broker rejects one of two requests that bring partitions to a transaction at the same time."""
    cluster = Coordinator()

    async def body(producer: TransactionalProducer) -> None:
        cluster.script(ApiKey.PRODUCE, *[fail_produce(code)] * 2)
        async with producer.transaction():
            await producer.send_and_wait("t", b"a", partition=0)

    assert virtual_s(cluster, body) <= (5 + 10) * 1.2 / 1000
    assert cluster.values() == [b"a"]


def test_batch_that_lacks_replicas_for_long_has_the_usual_pauses() -> None:
    cluster = Coordinator()

    async def body(producer: TransactionalProducer) -> None:
        cluster.script(ApiKey.PRODUCE, *[fail_produce(ErrorCode.NOT_ENOUGH_REPLICAS)] * 12)
        async with producer.transaction():
            await producer.send_and_wait("t", b"a", partition=0)

    # five pauses from 5 ms on that double, then from 100 ms on
    took_ms = 155 + 100 + 200 + 400 + 800 + 3 * 1000
    assert took_ms * 0.8 / 1000 <= virtual_s(cluster, body) <= took_ms * 1.2 / 1000


def test_brief_failures_are_none_of_the_retries() -> None:
    cluster = Coordinator()

    async def body(producer: TransactionalProducer) -> None:
        cluster.script(ApiKey.PRODUCE, *[fail_produce(ErrorCode.NOT_ENOUGH_REPLICAS)] * 7)
        async with producer.transaction():
            await producer.send_and_wait("t", b"a", partition=0)
        cluster.script(ApiKey.PRODUCE, *[fail_produce(ErrorCode.NOT_ENOUGH_REPLICAS)] * 8)
        with pytest.raises(KafkaError):
            async with producer.transaction():
                await producer.send_and_wait("t", b"b", partition=0)

    run(cluster, body, retries=2)
    assert cluster.values() == [b"a"]


def test_offsets_are_sent_again_soon_while_a_partition_is_being_added() -> None:
    cluster = Coordinator()

    async def body(producer: TransactionalProducer) -> None:
        cluster.script(ApiKey.TXN_OFFSET_COMMIT, loading, loading)
        async with producer.transaction():
            await producer.send_offsets("g", {TopicPartition("t", 1): 4})

    assert virtual_s(cluster, body) <= (5 + 10) * 1.2 / 1000
    assert cluster.count(ApiKey.TXN_OFFSET_COMMIT) == 3


def test_coordinator_that_loads_for_long_is_asked_after_usual_pauses() -> None:
    cluster = Coordinator()

    async def body(producer: TransactionalProducer) -> None:
        cluster.script(ApiKey.TXN_OFFSET_COMMIT, *[loading] * 8)
        async with producer.transaction():
            await producer.send_offsets("g", {TopicPartition("t", 1): 4})

    # five pauses from 5 ms on that double, then from 100 ms on
    assert virtual_s(cluster, body) >= (155 + 100 + 200 + 400) * 0.8 / 1000


def loading(broker: FakeBroker, request: Any, version: int, proper: Callable[[], Any]) -> Any:
    """Answers TxnOffsetCommit as a coordinator that loads its partition."""
    answer = proper()
    for topic in answer.topics:
        for each in topic.partitions:
            each.error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return answer
