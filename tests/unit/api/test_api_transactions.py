"""The handlers of transactions, on a service that says what the test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api import (
    api_00_produce,
    api_22_init_producer_id,
    api_24_add_partitions_to_txn,
    api_25_add_offsets_to_txn,
    api_26_end_txn,
    api_27_write_txn_markers,
    api_28_txn_offset_commit,
)
from odradek.api.data.transactional_produce import keep, rejections
from odradek.api.requests.answers import when
from odradek.api.requests.context import RequestContext
from odradek.api.requests.session import Session
from odradek.log.append import AppendResult
from odradek.metadata.image import GROUP_METADATA_TOPIC, ClusterImage, PartitionState, Topic
from odradek.quotas.client_quotas import ClientQuotas
from odradek.records.builder import BatchFields, encode_batch
from odradek.transactions.connections import NewestConnections, StaleConnection
from odradek.transactions.events import ProducerResult
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnRequestTransaction,
)
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.wire.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersRequestTopic,
)
from odradek.wire.produce import ProduceRequest

Batches = list[tuple[str | bytes, list[tuple[int, memoryview | None]]]]
LED = PartitionState(1, 0, (1,), (1,))
OFFSETS = Topic(GROUP_METADATA_TOPIC, b"o" * 16, (LED,))


class Client:
    def __init__(self) -> None:
        self.identifier = 7
        self.session = Session("PLAINTEXT", "127.0.0.1")
        self.closed: list[str] = []

    def close(self, reason: str) -> None:
        self.closed.append(reason)


def context_of(version: int, **services: Any) -> Any:
    image = ClusterImage().with_topics([Topic("t", b"t" * 16, (LED, LED)), OFFSETS])
    services = {"image": lambda: image, **services}
    return RequestContext(SimpleNamespace(**services), version, 1, "client", Client())  # type: ignore[arg-type]


def answered(value: Any) -> Any:
    async def make() -> Any:
        future = asyncio.get_running_loop().create_future()
        future.set_result(value)
        return future

    return asyncio.run(make())


REQUESTS = [
    (api_22_init_producer_id, InitProducerIdRequest("tx", 1000, 5, 0), "init_producer_id"),
    (
        api_24_add_partitions_to_txn,
        AddPartitionsToTxnRequest([], "tx", 5, 0, [AddPartitionsToTxnRequestTopic("t", [0])]),
        "add_partitions",
    ),
    (api_25_add_offsets_to_txn, AddOffsetsToTxnRequest("tx", 5, 0, "g"), "add_offsets"),
    (api_26_end_txn, EndTxnRequest("tx", 5, 0, True), "end"),
]


@pytest.mark.parametrize(("module", "request_", "method"), REQUESTS)
def test_a_stale_connection_is_closed_without_an_answer(module: Any, request_: Any, method: str) -> None:
    def stale(*_: Any) -> None:
        raise StaleConnection("given up")

    context = context_of(3, transactions=SimpleNamespace(**{method: stale}))
    assert module.handle(request_, context) is None
    assert context.connection.closed == ["given up"]


@pytest.mark.parametrize("is_notified", [True, False])
def test_offsets_are_added_once_the_coordinator_knows_their_topic(is_notified: bool) -> None:
    """It takes a topic that its image lacks for a deleted one, and writes no marker there."""
    images = [ClusterImage()]
    created: list[str] = []

    async def auto_create(names: Sequence[str]) -> dict[str, ErrorCode]:
        created.extend(names)
        if is_notified:
            images.append(images[-1].with_topic(OFFSETS))
        return {}

    def add(*_: Any) -> asyncio.Future[ErrorCode]:
        assert GROUP_METADATA_TOPIC in images[-1].topics
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        future.set_result(ErrorCode.NONE)
        return future

    async def play() -> Any:
        context = context_of(
            3,
            image=lambda: images[-1],
            controller=SimpleNamespace(auto_create=auto_create),
            transactions=SimpleNamespace(add_offsets=add),
        )
        answer: Any = api_25_add_offsets_to_txn.handle(AddOffsetsToTxnRequest("tx", 5, 0, "g"), context)
        return await answer

    expected = ErrorCode.NONE if is_notified else ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert asyncio.run(play()).error_code == expected
    assert created == [GROUP_METADATA_TOPIC]


def test_a_stale_offset_commit_is_closed_without_an_answer() -> None:
    asked = []

    def is_stale(*wanted: Any) -> bool:
        asked.append(wanted)
        return True

    context = context_of(3, transactions=SimpleNamespace(is_stale_commit=is_stale))
    request = TxnOffsetCommitRequest("tx", "g", 5, 0)
    assert asyncio.run(api_28_txn_offset_commit.handle(request, context)) is None
    assert asked == [("g", (5, 0), 7)]
    assert context.connection.closed


def test_offset_commit_repeated_elsewhere_while_verified_has_no_effect() -> None:
    """The client went on: late, the offsets would take the place of those that it has committed since."""
    newest = NewestConnections()
    committed: list[Any] = []

    def is_stale(group_id: str, producer: tuple[int, int], connection: int) -> bool:
        stale = newest.is_stale(group_id, *producer, connection)
        newest.observe(group_id, *producer, connection)
        return stale

    async def commit(request: Any, *_: Any) -> list[ErrorCode]:
        committed.append(request.offsets[0].offset)
        return [ErrorCode.NONE]

    async def play() -> None:
        late: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        answers: list[Any] = [late, ErrorCode.NONE]
        transactions = SimpleNamespace(is_stale_commit=is_stale, verify_or_add_offsets=lambda *_: answers.pop(0))
        groups = SimpleNamespace(commit_transactional_offsets=commit)
        contexts = [context_of(3, transactions=transactions, groups=groups) for _ in range(2)]
        contexts[1].connection.identifier += 1
        requests = []
        for offset in (3, 4):
            partitions = [TxnOffsetCommitRequestPartition(0, offset)]
            topics = [TxnOffsetCommitRequestTopic("t", partitions)]
            requests.append(TxnOffsetCommitRequest("tx", "g", 5, 0, topics=topics))
        first = asyncio.ensure_future(api_28_txn_offset_commit.handle(requests[0], contexts[0]))
        await asyncio.sleep(0)
        assert await api_28_txn_offset_commit.handle(requests[1], contexts[1])
        late.set_result(ErrorCode.NONE)
        assert await first is None
        assert [bool(context.connection.closed) for context in contexts] == [True, False]

    asyncio.run(play())
    assert committed == [4]


@pytest.mark.parametrize(("module", "request_", "method"), REQUESTS)
def test_answers_may_be_late(module: Any, request_: Any, method: str) -> None:
    async def play() -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        context = context_of(3, transactions=SimpleNamespace(**{method: lambda *_: future}))
        waiting = module.handle(request_, context)
        fenced = ErrorCode.PRODUCER_FENCED
        future.set_result(fenced if method.startswith("add") else ProducerResult(fenced))
        return await waiting

    answer = asyncio.run(play())
    if method == "add_partitions":
        code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    else:
        code = answer.error_code
    # InitProducerId learnt the newer code only in version 4.
    expected = ErrorCode.INVALID_PRODUCER_EPOCH if method == "init_producer_id" else ErrorCode.PRODUCER_FENCED
    assert code == expected


def test_half_a_producer_is_rejected() -> None:
    context = context_of(3)
    for producer in ((5, -1), (-1, 0)):
        answer: Any = api_22_init_producer_id.handle(InitProducerIdRequest("tx", 1000, *producer), context)
        assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_producer_without_transactions_gets_an_id() -> None:
    async def new_producer_id() -> int:
        return 41

    context = context_of(4, transactions=SimpleNamespace(new_producer_id=new_producer_id))
    answer: Any = api_22_init_producer_id.handle(InitProducerIdRequest(None), context)
    assert asyncio.run(answer).producer_id == 41


def test_end_of_a_transaction_returns_the_next_epoch() -> None:
    result = ProducerResult(ErrorCode.NONE, 5, 3)
    asked = []

    def end(*wanted: Any) -> Any:
        asked.append(wanted)
        return answered(result)

    context = context_of(5, transactions=SimpleNamespace(end=end))
    answer: Any = api_26_end_txn.handle(EndTxnRequest("tx", 5, 2, True), context)
    assert (answer.producer_id, answer.producer_epoch) == (5, 3)
    assert asked[0][0].client_version == 2
    assert asked[0][1] == 7


def test_failures_are_raised_now_or_later() -> None:
    async def failed() -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
        return future

    async def play() -> None:
        with pytest.raises(KafkaError):
            when(await failed(), lambda found: found)

    asyncio.run(play())


def test_offsets_wait_for_what_the_coordinator_says() -> None:
    async def later(code: ErrorCode) -> ErrorCode:
        return code

    async def commit(request: Any, producer_id: int, producer_epoch: int) -> list[ErrorCode]:
        assert (producer_id, producer_epoch, request.generation_id) == (5, 0, -1)
        return [ErrorCode.NONE] * len(request.offsets)

    def play(*codes: Any) -> list[int]:
        left = list(codes)
        transactions = SimpleNamespace(is_stale_commit=lambda *_: False, verify_or_add_offsets=lambda *_: left.pop(0))
        groups = SimpleNamespace(commit_transactional_offsets=commit)
        partitions = [TxnOffsetCommitRequestPartition(index, 3) for index in (0, 9)]
        request = TxnOffsetCommitRequest("tx", "g", 5, 0, topics=[TxnOffsetCommitRequestTopic("t", partitions)])
        context = context_of(5, transactions=transactions, groups=groups)
        answer: Any = asyncio.run(api_28_txn_offset_commit.handle(request, context))
        assert not left
        return [partition.error_code for partition in answer.topics[0].partitions]

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert play(later(ErrorCode.NONE)) == [ErrorCode.NONE, unknown]
    assert play(ErrorCode.INVALID_TXN_STATE) == [ErrorCode.INVALID_TXN_STATE, unknown]
    assert play(later(ErrorCode.CONCURRENT_TRANSACTIONS)) == [ErrorCode.CONCURRENT_TRANSACTIONS, unknown]


def test_offsets_are_not_committed_when_their_topic_is_deleted_meanwhile() -> None:
    """The next topic of its name would begin there."""
    images = [ClusterImage().with_topics(Topic(name, name.encode() * 16, (LED,)) for name in ("t", "u"))]
    committed: list[Any] = []

    async def verified() -> ErrorCode:
        images[0] = images[0].with_topic(Topic("t", b"n" * 16, (LED,)))
        return ErrorCode.NONE

    async def commit(request: Any, *_: Any) -> list[ErrorCode]:
        committed.extend(offset.topic for offset in request.offsets)
        return [ErrorCode.NONE] * len(request.offsets)

    transactions = SimpleNamespace(is_stale_commit=lambda *_: False, verify_or_add_offsets=lambda *_: verified())
    groups = SimpleNamespace(commit_transactional_offsets=commit)
    context = context_of(3, transactions=transactions, groups=groups, image=lambda: images[0])
    topics = [TxnOffsetCommitRequestTopic(name, [TxnOffsetCommitRequestPartition(0, 3)]) for name in ("t", "u")]
    request = TxnOffsetCommitRequest("tx", "g", 5, 0, topics=topics)
    answer: Any = asyncio.run(api_28_txn_offset_commit.handle(request, context))
    codes = [topic.partitions[0].error_code for topic in answer.topics]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert committed == ["u"]


def test_markers_of_all_topics_are_appended_before_one_is_waited_for() -> None:
    """Appended late, one would end the transaction after the one that it was meant for."""
    written: dict[tuple[str, int], asyncio.Future[None]] = {}

    def write_marker(marker: Any) -> asyncio.Future[None]:
        future = written[marker.topic, marker.partition] = asyncio.get_running_loop().create_future()
        return future

    async def play() -> Any:
        topics = [WriteTxnMarkersRequestTopic("t", [0, 1]), WriteTxnMarkersRequestTopic("u", [0])]
        request = WriteTxnMarkersRequest([WriteTxnMarkersRequestMarker(5, 0, True, topics)])
        transactions = SimpleNamespace(write_marker=write_marker, is_stale_sender=lambda *_: False)
        context = context_of(1, transactions=transactions)
        context.session.broker_id = 2
        waiting = asyncio.ensure_future(api_27_write_txn_markers.handle(request, context))
        for _ in range(5):
            await asyncio.sleep(0)
        assert set(written) == {("t", 0), ("t", 1), ("u", 0)}
        written["t", 1].set_exception(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        for place in ("t", 0), ("u", 0):
            written[place].set_result(None)
        return await waiting

    (answer,) = asyncio.run(play()).markers
    codes = [(topic.name, [partition.error_code for partition in topic.partitions]) for topic in answer.topics]
    assert codes == [("t", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]), ("u", [ErrorCode.NONE])]


@pytest.mark.parametrize("is_broker", [True, False], ids=["broker", "client"])
def test_marker_on_a_connection_that_its_broker_gave_up_has_no_effect(is_broker: bool) -> None:
    """It was sent again on another one; here it may come when the producer's next transaction has begun.

    Clients may share a client id, and one may carry a broker's.
    """
    is_served = not is_broker
    written = []

    def write_marker(marker: Any) -> asyncio.Future[None]:
        written.append(marker.topic)
        future = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    transactions = SimpleNamespace(is_stale_sender=lambda *_: True, write_marker=write_marker)
    context = context_of(1, transactions=transactions)
    context.client_id = "broker-2"
    context.session.broker_id = 2 if is_broker else None
    topics = [WriteTxnMarkersRequestTopic("t", [0])]
    request = WriteTxnMarkersRequest([WriteTxnMarkersRequestMarker(5, 0, False, topics)])
    answer = asyncio.run(api_27_write_txn_markers.handle(request, context))
    assert (answer is not None, bool(context.connection.closed), written) == (
        is_served,
        not is_served,
        ["t"] * is_served,
    )


def test_commit_marker_is_rejected_when_a_client_sends_it() -> None:
    """Only the coordinator knows whether a transaction is committed; a client may abort one that hangs."""
    topics = [WriteTxnMarkersRequestTopic("t", [0])]
    markers = [WriteTxnMarkersRequestMarker(5, 0, result, topics) for result in (False, True)]
    with pytest.raises(KafkaError) as raised:
        asyncio.run(api_27_write_txn_markers.handle(WriteTxnMarkersRequest(markers), context_of(1)))
    assert raised.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_verification_is_rejected_when_a_client_asks_for_it() -> None:
    with pytest.raises(KafkaError) as raised:
        api_24_add_partitions_to_txn.handle(AddPartitionsToTxnRequest(), context_of(4))
    assert raised.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("verify_only", [True, False])
@pytest.mark.parametrize("index", [1, 2], ids=["known", "unknown"])
def test_batch_adds_or_verifies_only_where_all_partitions_exist(verify_only: bool, index: int) -> None:
    called: list[str] = []

    class Transactions:
        def verify_partitions(self, wanted: Any) -> dict[tuple[str, int], ErrorCode]:
            called.append("verified")
            return dict.fromkeys(wanted.partitions, ErrorCode.TRANSACTION_ABORTABLE)

        async def add_partitions(self, _wanted: Any, _connection: Any) -> ErrorCode:
            called.append("added")
            return ErrorCode.NONE

    topic = AddPartitionsToTxnRequestTopic("t", [0, index])
    transaction = AddPartitionsToTxnRequestTransaction("tx", 5, 0, verify_only, [topic])
    context = context_of(4, transactions=Transactions(), authorization=None)
    context.connection.session.broker_id = 2
    handled: Any = api_24_add_partitions_to_txn.handle(AddPartitionsToTxnRequest(transactions=[transaction]), context)
    [found] = asyncio.run(handled).results_by_transaction
    [results] = found.topic_results
    codes = [each.partition_error_code for each in results.results_by_partition]
    if index == 2:
        assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert called == []
    else:
        assert codes == [ErrorCode.TRANSACTION_ABORTABLE if verify_only else ErrorCode.NONE] * 2
        assert called == ["verified" if verify_only else "added"]


# --- Produce ---


class Log:
    """A partition in which some producers have a transaction open."""

    def __init__(self, topic: str, *opened: tuple[int, int]) -> None:
        self.topic = topic
        self.index = 0
        self.opened = set(opened)
        self.log = self
        self.history = self.producers = self
        self.appended: list[bytes] = []
        self.high_watermark = self.end_offset = 1

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        return (producer_id, epoch) in self.opened

    def append(self, records: memoryview, **_: Any) -> AppendResult:
        self.appended.append(bytes(records))
        return AppendResult(0, 0, -1, 0, False)

    def refuse(self, *_: Any) -> None:
        """A partition keeps in mind what it has refused."""


def batch_of(producer: tuple[int, int] = (5, 0), *, transactional: bool = True) -> bytearray:
    fields = BatchFields(
        producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, is_transactional=transactional
    )
    return encode_batch([(1, None, b"x", ())], fields)


def produce_context(log: Log, verify_or_add: Any) -> Any:
    def require(topic: str, index: int) -> Log:
        if topic != log.topic:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return log

    return context_of(
        12,
        partitions=SimpleNamespace(require=require),
        transactions=SimpleNamespace(verify_or_add=verify_or_add),
        clock=SimpleNamespace(now_ms=lambda: 1),
        quotas=ClientQuotas(11, 1),
    )


def never(*_: Any) -> Any:
    raise AssertionError("no coordinator had to be asked")


def test_a_producer_that_is_at_it_is_not_verified() -> None:
    log = Log("t", (5, 0))
    request = ProduceRequest("tx", -1, 1000, [("t", [(0, memoryview(batch_of()))]), ("u", [(0, None)])])
    assert rejections(request, produce_context(log, never)) == {}
    request = ProduceRequest("tx", -1, 1000, [("t", [(0, memoryview(batch_of(transactional=False)))])])
    assert rejections(request, produce_context(Log("t"), never)) == {}


def test_only_new_partitions_are_asked_for() -> None:
    asked = []

    def verify_or_add(wanted: Any, version: int) -> Any:
        asked.append((wanted, version))
        return {}

    request = ProduceRequest(
        "tx", -1, 1000, [("t", [(0, memoryview(batch_of()))]), ("u", [(0, memoryview(batch_of()))])]
    )
    refused = {("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert rejections(request, produce_context(Log("t"), verify_or_add)) == refused
    assert asked == [(("tx", 5, 0, [("t", 0)]), 12)]


def test_producers_do_not_mix() -> None:
    records: list[tuple[int, memoryview | None]] = [(0, memoryview(batch_of())), (0, memoryview(batch_of((6, 0))))]
    with pytest.raises(KafkaError) as refused:
        rejections(ProduceRequest("tx", -1, 1000, [("t", records)]), produce_context(Log("t", (5, 0)), never))
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_write_that_waits_keeps_its_bytes() -> None:
    log = Log("t")
    answers: list[Any] = []

    def verify_or_add(*_: Any) -> Any:
        return answers.pop(0)

    async def play(first: dict[Any, Any]) -> Any:
        async def later() -> Any:
            return first

        log.appended.clear()
        answers[:] = [later()]
        buffer = batch_of()
        expected = bytes(buffer)
        context = produce_context(log, verify_or_add)
        waiting: Any = api_00_produce.handle(
            ProduceRequest("tx", -1, 1000, [("t", [(0, memoryview(buffer))])]), context
        )
        buffer[:] = bytes(len(buffer))
        (frame,) = await waiting
        assert not answers
        return expected, bytes(frame)

    expected, _ = asyncio.run(play({}))
    assert log.appended == [expected]
    _, frame = asyncio.run(play({("t", 0): ErrorCode.INVALID_TXN_STATE}))
    assert log.appended == []
    assert ErrorCode.INVALID_TXN_STATE.to_bytes(2, "big") in frame


def test_transaction_ended_during_verification_of_another_is_rejected() -> None:
    """Before transaction.version 2 its marker has the same epoch: the batch would begin one that is never ended."""
    logs = {"t": Log("t", (5, 0)), "u": Log("u")}
    asked: list[Any] = []
    refused = {("t", 0): ErrorCode.INVALID_TXN_STATE, ("u", 0): ErrorCode.INVALID_TXN_STATE}

    async def verify_or_add(wanted: Any, _: int) -> Any:
        asked.append(list(wanted.partitions))
        logs["t"].opened.clear()
        return {place: refused[place] for place in wanted.partitions}

    async def play() -> Any:
        context = produce_context(logs["t"], verify_or_add)
        context.services.partitions.require = lambda topic, _: logs[topic]
        batches: Batches = [(topic, [(0, memoryview(batch_of()))]) for topic in logs]
        return await api_00_produce.handle(ProduceRequest("tx", -1, 1000, batches), context)  # type: ignore[misc]

    asyncio.run(play())
    assert [log.appended for log in logs.values()] == [[], []]
    assert asked == [[("u", 0)], [("u", 0), ("t", 0)]]


def test_partition_that_appears_during_verification_is_not_written_to() -> None:
    """It was not asked for: the coordinator would not end the transaction there, and what was committed be aborted."""
    logs = {"t": Log("t"), "u": Log("u")}
    here = {"u"}
    asked: list[Any] = []

    def require(topic: str, _: int) -> Log:
        if topic not in here:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return logs[topic]

    async def verify_or_add(wanted: Any, _: int) -> Any:
        asked.append(list(wanted.partitions))
        here.add("t")
        return {}

    async def play() -> tuple[bytes, ...]:
        context = produce_context(logs["t"], verify_or_add)
        context.services.partitions.require = require
        context.services.partitions.refused = lambda *_: None
        batches: Batches = [(topic, [(0, memoryview(batch_of()))]) for topic in logs]
        waiting: Any = api_00_produce.handle(ProduceRequest("tx", -1, 1000, batches), context)
        return tuple(bytes(part) for part in await waiting)

    (frame,) = asyncio.run(play())
    assert [len(log.appended) for log in logs.values()] == [0, 1]
    assert ErrorCode.KAFKA_STORAGE_ERROR.to_bytes(2, "big") in frame
    assert asked == [[("u", 0)]]


@pytest.mark.parametrize("topics", [["t"], ["t", "u"]])
def test_partition_that_opens_only_after_verification_is_not_written_to(topics: list[str]) -> None:
    """As when a descriptor is free again: its part in the transaction was not verified."""
    logs = {"t": Log("t"), "u": Log("u")}
    failures = [ErrorCode.KAFKA_STORAGE_ERROR]

    def require(topic: str, _: int) -> Log:
        if topic == "t" and failures:
            raise KafkaError(failures.pop())
        return logs[topic]

    context = produce_context(logs["t"], lambda *_: {})
    context.services.partitions.require = require
    context.services.partitions.refused = lambda *_: None
    batches: Any = [(topic, [(0, memoryview(batch_of()))]) for topic in topics]
    answer: Any = api_00_produce.handle(ProduceRequest("tx", -1, 1000, batches), context)
    assert [len(log.appended) for log in logs.values()] == [0, len(topics) - 1]
    assert ErrorCode.KAFKA_STORAGE_ERROR.to_bytes(2, "big") in bytes(answer[0])


def test_keep_copies() -> None:
    buffer = batch_of()
    kept = keep(ProduceRequest("tx", 1, 2, [("t", [(0, memoryview(buffer)), (1, None)])]))
    expected = bytes(buffer)
    buffer[:] = bytes(len(buffer))
    ((topic, ((index, records), (_, nothing))),) = kept.topics
    assert (kept.transactional_id, kept.acks, kept.timeout_ms, topic, index, nothing) == ("tx", 1, 2, "t", 0, None)
    assert records == expected


def test_partition_whose_transaction_ends_in_a_later_question_is_verified() -> None:
    """It was open after the first answer and is not after the second: it is part of the third question."""
    logs = {name: Log(name, (5, 0)) for name in "tuv"} | {"w": Log("w")}
    asked: list[list[str]] = []

    async def verify_or_add(wanted: Any, _: int) -> Any:
        asked.append([topic for topic, _ in wanted.partitions])
        logs["tu"[len(asked) - 1] if len(asked) < 3 else "w"].opened.clear()
        return dict.fromkeys(wanted.partitions, ErrorCode.INVALID_TXN_STATE)

    async def play() -> Any:
        context = produce_context(logs["t"], verify_or_add)
        context.services.partitions.require = lambda topic, _: logs[topic]
        batches: Batches = [(topic, [(0, memoryview(batch_of()))]) for topic in logs]
        return await rejections(ProduceRequest("tx", -1, 1000, batches), context)  # type: ignore[misc]

    assert asyncio.run(play()) == {(name, 0): ErrorCode.INVALID_TXN_STATE for name in "tuw"}
    assert asked == [["w"], ["w", "t"], ["w", "t", "u"]]
