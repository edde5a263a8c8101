"""What a transaction must not hand on to the next one: what came while it ended, or was left of it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from odradek.client.errors import CallTimedOut, IllegalState, TransactionAborted
from odradek.client.producer.accumulator import Delivery
from odradek.client.producer.transactions import State, TransactionalProducer
from odradek.records.topic_partition import TopicPartition
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.end_txn import EndTxnResponse
from tests.unit.client.fake_cluster import FakeBroker, Handler, fail_produce, pass_on, silent
from tests.unit.client.transaction_coordinator import Coordinator, run

T0 = TopicPartition("t", 0)


def before(begin: Callable[[], asyncio.Task[Any]], tasks: list[asyncio.Task[Any]], handler: Handler) -> Handler:
    """Begin something when the request is there: it goes its first steps before the answer has come."""

    def handle(broker: FakeBroker, request: Any, version: int, proper: Callable[[], Any]) -> Any:
        tasks.append(begin())
        return handler(broker, request, version, proper)

    return handle


def not_yet(broker: FakeBroker, request: Any, version: int, proper: Callable[[], Any]) -> Any:
    broker.cluster.script(ApiKey.ADD_PARTITIONS_TO_TXN, not_yet)
    assert isinstance(broker.cluster, Coordinator)
    return broker.cluster.on_add_partitions_to_txn(broker, request, version, ErrorCode.CONCURRENT_TRANSACTIONS)


def test_record_lost_during_an_abort_does_not_affect_the_next_transaction() -> None:
    cluster = Coordinator()
    aborting: list[asyncio.Task[Any]] = []

    async def body(producer: TransactionalProducer) -> None:
        def abort() -> asyncio.Task[Any]:
            return asyncio.ensure_future(producer.abort())

        cluster.script(ApiKey.PRODUCE, before(abort, aborting, fail_produce(ErrorCode.INVALID_RECORD)))
        producer.begin()
        await producer.send("t", b"aborted", partition=0)
        while not aborting:
            await asyncio.sleep(0.001)
        await aborting[0]
        async with producer.transaction():
            await producer.send("t", b"committed", partition=0)

    run(cluster, body)
    assert cluster.values() == [b"committed"]


def test_a_batch_that_is_split_while_its_transaction_is_aborted_is_dropped() -> None:
    cluster = Coordinator()
    aborting: list[asyncio.Task[Any]] = []

    async def body(producer: TransactionalProducer) -> None:
        def abort() -> asyncio.Task[Any]:
            return asyncio.ensure_future(producer.abort())

        cluster.script(ApiKey.PRODUCE, before(abort, aborting, fail_produce(ErrorCode.MESSAGE_TOO_LARGE)))
        producer.begin()
        deliveries = [await producer.send("t", b"aborted", partition=0) for _ in range(2)]
        while not aborting:
            await asyncio.sleep(0.001)
        await aborting[0]
        for each in deliveries:
            with pytest.raises(KafkaError, match="TOO_LARGE"):
                await each
        async with producer.transaction():
            await producer.send("t", b"committed", partition=0)

    run(cluster, body, linger_ms=5)
    assert cluster.values() == [b"committed"]


@pytest.mark.parametrize("next_has_begun", [False, True])
def test_record_waiting_for_memory_is_rejected_when_its_transaction_aborts(next_has_begun: bool) -> None:
    cluster = Coordinator()

    async def body(producer: TransactionalProducer) -> None:
        cluster.script(ApiKey.ADD_PARTITIONS_TO_TXN, not_yet)
        producer.begin()
        await producer.send("t", b"aborted", partition=0)
        waiting = asyncio.ensure_future(producer.send("t", b"late", partition=1))
        while not cluster.count(ApiKey.ADD_PARTITIONS_TO_TXN):
            await asyncio.sleep(0)
        aborting = asyncio.ensure_future(producer.abort())
        accumulator = producer.producer._accumulator
        assert accumulator is not None
        if next_has_begun:
            # No memory comes free before the next transaction has begun.
            accumulator.free_bytes -= 20_000
        while producer.state is not State.ENDING:
            await asyncio.sleep(0)
        cluster.scripts[ApiKey.ADD_PARTITIONS_TO_TXN].clear()
        await aborting
        producer.begin()
        if next_has_begun:
            accumulator.free_bytes += 20_000
        await producer.send("t", b"committed", partition=0)
        await producer.commit()
        with pytest.raises(IllegalState):
            await waiting
        async with producer.transaction():
            await producer.send("t", b"again", partition=0)

    run(cluster, body, buffer_memory=20_000, max_request_size=10_000)
    assert cluster.values() == [b"committed", b"again"]
    assert cluster.values("t", 1) == []


def test_a_record_that_comes_while_its_transaction_is_committed_is_refused() -> None:
    cluster = Coordinator()
    late: list[asyncio.Task[Delivery]] = []

    async def body(producer: TransactionalProducer) -> None:
        def send() -> asyncio.Task[Any]:
            return asyncio.ensure_future(producer.send("t", b"late", partition=1))

        producer.begin()
        await producer.send("t", b"committed", partition=0)
        cluster.script(ApiKey.PRODUCE, before(send, late, pass_on))
        await producer.commit()
        with pytest.raises(IllegalState):
            await late[0]
        async with producer.transaction():
            await producer.send("t", b"again", partition=0)

    run(cluster, body)
    assert cluster.values() == [b"committed", b"again"]
    assert cluster.values("t", 1) == []


def test_what_is_aborted_while_it_is_to_be_committed_is_not_committed() -> None:
    cluster = Coordinator()
    aborting: list[asyncio.Task[Any]] = []

    async def body(producer: TransactionalProducer) -> None:
        def abort() -> asyncio.Task[Any]:
            return asyncio.ensure_future(producer.abort())

        producer.begin()
        await producer.send("t", b"a", partition=0)
        cluster.script(ApiKey.PRODUCE, before(abort, aborting, pass_on))
        with pytest.raises(IllegalState):
            await producer.commit()
        await aborting[0]

    run(cluster, body)
    assert [each.committed for _, key, _, each in cluster.requests if key == ApiKey.END_TXN] == [False]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_transaction_does_not_end_before_offsets_that_are_under_way(end: str) -> None:
    cluster = Coordinator()
    ending: list[asyncio.Task[Any]] = []

    async def body(producer: TransactionalProducer) -> None:
        producer.begin()
        cluster.script(
            ApiKey.ADD_OFFSETS_TO_TXN, before(lambda: asyncio.ensure_future(getattr(producer, end)()), ending, pass_on)
        )
        await producer.send_offsets("g", {T0: 3})
        await ending[0]

    run(cluster, body)
    assert cluster.asked() == ["INIT_PRODUCER_ID", "ADD_OFFSETS_TO_TXN", "TXN_OFFSET_COMMIT", "END_TXN"]


@pytest.mark.parametrize("what", ["ADD_PARTITIONS_TO_TXN", "ADD_OFFSETS_TO_TXN"])
def test_transaction_that_may_have_begun_at_the_coordinator_is_ended_there(what: str) -> None:
    """Otherwise it times out there, and the producer is fenced in the midst of a later transaction."""
    cluster = Coordinator()

    async def body(producer: TransactionalProducer) -> None:
        cluster.script(ApiKey[what], silent)
        producer.begin()
        if what == "ADD_OFFSETS_TO_TXN":
            with pytest.raises(CallTimedOut):
                await producer.send_offsets("g", {T0: 3})
        else:
            with pytest.raises(CallTimedOut):
                await (await producer.send("t", b"aborted", partition=0))
        await producer.abort()
        async with producer.transaction():
            await producer.send("t", b"committed", partition=0)

    run(cluster, body, max_block_ms=200)
    assert cluster.values() == [b"committed"]
    after = ["INIT_PRODUCER_ID", "ADD_PARTITIONS_TO_TXN", "PRODUCE", "END_TXN"]
    assert cluster.asked() == ["INIT_PRODUCER_ID", what, *after]


def test_a_new_producer_id_leaves_nothing_of_what_was_begun_before() -> None:
    cluster = Coordinator()

    async def body(producer: TransactionalProducer) -> None:
        cluster.script(ApiKey.ADD_PARTITIONS_TO_TXN, not_yet)
        producer.begin()
        left = await producer.send("t", b"left", partition=0)
        while not cluster.count(ApiKey.ADD_PARTITIONS_TO_TXN):
            await asyncio.sleep(0)
        cluster.scripts[ApiKey.ADD_PARTITIONS_TO_TXN].clear()
        await producer.initialize()
        async with producer.transaction():
            await producer.send("t", b"committed", partition=1)
        with pytest.raises(TransactionAborted):
            await left

    run(cluster, body)
    assert (cluster.values(), cluster.values("t", 1)) == ([], [b"committed"])


def test_a_late_answer_to_an_earlier_producer_id_does_not_end_the_new_one() -> None:
    cluster = Coordinator()
    renewing: list[asyncio.Task[Any]] = []

    async def body(producer: TransactionalProducer) -> None:
        def renew() -> asyncio.Task[Any]:
            return asyncio.ensure_future(producer.initialize())

        cluster.script(ApiKey.PRODUCE, before(renew, renewing, fail_produce(ErrorCode.INVALID_PRODUCER_EPOCH)))
        producer.begin()
        await producer.send("t", b"fenced", partition=0)
        while not renewing:
            await asyncio.sleep(0)
        await renewing[0]
        async with producer.transaction():
            await producer.send("t", b"committed", partition=0)

    run(cluster, body)
    assert cluster.values() == [b"committed"]


def test_what_was_not_aborted_in_time_is_not_committed_instead() -> None:
    cluster = Coordinator()

    def loading(broker: FakeBroker, request: Any, version: int, proper: Callable[[], Any]) -> Any:
        cluster.script(ApiKey.END_TXN, loading)
        return EndTxnResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async def body(producer: TransactionalProducer) -> None:
        producer.begin()
        await producer.send("t", b"a", partition=0)
        await producer.producer.flush()
        cluster.script(ApiKey.END_TXN, loading)
        # Only this call is to have too little time.
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(producer.producer.config, "max_block_ms", 50)
            with pytest.raises(CallTimedOut):
                await producer.abort()
        cluster.scripts[ApiKey.END_TXN].clear()
        with pytest.raises(TransactionAborted):
            await producer.commit()
        await producer.abort()
        async with producer.transaction():
            await producer.send("t", b"b", partition=0)

    run(cluster, body)
    ended = [each.committed for _, key, _, each in cluster.requests if key == ApiKey.END_TXN]
    assert ended.count(True) == 1
    assert ended[-1]
