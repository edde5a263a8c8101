"""Produce: append record batches, answer at once or when all in-sync replicas have them.

Version notes: 3 transactional id, batches of format 2; 5 log start offset; 7 zstd; 8 errors of records (KIP-467); 9
flexible; 10 current leader in the answer (KIP-951); 12 transactions version 2 (KIP-890); 13 topic ids. Versions 0-2 are
listed by ApiVersions for old librdkafka's sake (KAFKA-18659) and refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterator
from typing import Final, Protocol

from odradek.api.data.examined_batches import LEAST_BYTES, Examinations, examine_long_batches, has_long_batches
from odradek.api.data.new_leaders import MOVED, current_leader, endpoints
from odradek.api.data.produced_records import FIRST_WITH_ZSTD, check_carried, is_transactional
from odradek.api.data.transactional_produce import RejectedPartitions, keep, rejections
from odradek.api.requests.capabilities import (
    HasAuthorization,
    HasClock,
    HasDisk,
    HasImage,
    HasLongWork,
    HasNodeId,
    HasPartitions,
    HasQuotas,
    HasTransactions,
)
from odradek.api.requests.context import LateAnswer, RequestContext
from odradek.api.requests.long_work import Slices
from odradek.api.requests.registry import api
from odradek.api.requests.throttling import pause
from odradek.log.append import AppendResult, RejectedRecords
from odradek.log.partition_log import PartitionLog
from odradek.metadata.image import AUDIT_TOPIC, INTERNAL_TOPICS
from odradek.ports.network import Part
from odradek.replication.delayed_produce import Append, DelayedProduce
from odradek.replication.refused_batches import SENT_AGAIN
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.produce import ProducedPartition, ProduceRequest, TopicKey, decode_request, encode_response

ALL = -1
_ADMIN_CLIENT = "__admin_client"
"""The client id for which Kafka lets records into the topics that its coordinators live in."""
_VALID_ACKS = (ALL, 0, 1)
_NONE: Final = ErrorCode.NONE
SLICED_BYTES: Final = 4 << 20
"""Larger requests are appended at once, as copying the rest of one out of the receive buffer would hold the loop, too:
for 1 ms per 4 MB, as long as the appends to some hundred partitions."""
SLICED_PARTITIONS: Final = 1000
"""Requests for more partitions are appended in slices, however large they are."""
_SLOW_SECONDS: Final = 0.00005
"""An append that takes longer for each partition opens their logs: the kernel may need milliseconds for a new file, so
that the time is looked at after each of them."""

_WITHOUT_LOG_START: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors of an append whose answer has no log start offset in Kafka (`ReplicaManager.appendRecordsToLeader`)."""

Produced = list[tuple[TopicKey, list[ProducedPartition]]]
_AnswerPlace = tuple[TopicKey, int, list[ProducedPartition], int]
"""A topic as the request has it, a partition, and where its answer stands."""


class Uses(
    HasAuthorization,
    HasClock,
    HasDisk,
    HasImage,
    HasLongWork,
    HasNodeId,
    HasPartitions,
    HasQuotas,
    HasTransactions,
    Protocol,
):
    """What these handlers take of the broker."""


def _all_failed(request: ProduceRequest, context: RequestContext[Uses], code: ErrorCode) -> list[Part] | None:
    """The answer that every partition failed with the code."""
    if request.acks == 0:
        context.connection.close("a produce request with acks=0 failed")
        return None
    error = KafkaError(code)
    failed = [
        (topic, [_failed(topic, index, error, context) for index, _ in partitions])
        for topic, partitions in request.topics
    ]
    return _encode(failed, context, failed=False)


@api(ApiKey.PRODUCE, decode=decode_request, failed=_all_failed)
def handle(
    request: ProduceRequest, context: RequestContext[Uses]
) -> list[Part] | Awaitable[list[Part] | None] | LateAnswer | None:
    """Append the batches of each partition; the response comes late with acks=all, and never with acks=0.

    Errors are per partition, INVALID_REQUIRED_ACKS for all of them.
    """
    if request.acks not in _VALID_ACKS:
        return _all_failed(request, context, ErrorCode.INVALID_REQUIRED_ACKS)
    if context.size > LEAST_BYTES and has_long_batches(request, context):
        return _produce_examined(keep(request), context)
    if request.transactional_id is None:
        topics = request.topics
        if (len(topics) != 1 or len(topics[0][1]) != 1) and _is_sliced(request, context):
            return _produce_in_slices(request, context)
        return _produce(request, context, None)
    # A transaction must not get partitions to which the producer may not write.
    refused = rejections(request if context.denied is None else _without(context.denied, request), context)
    if isinstance(refused, dict):
        return _produce(request, context, refused)
    return _produce_later(keep(request), context, refused)


def _partitions(request: ProduceRequest) -> int:
    return sum(len(partitions) for _, partitions in request.topics)


def _is_sliced(request: ProduceRequest, context: RequestContext[Uses]) -> bool:
    partitions = _partitions(request)
    is_copied_soon = context.size <= SLICED_BYTES or partitions > SLICED_PARTITIONS
    return is_copied_soon and context.services.long_work.is_long(partitions)


def _without(denied: Collection[TopicKey], request: ProduceRequest) -> ProduceRequest:
    topics = [each for each in request.topics if each[0] not in denied]
    return ProduceRequest(request.transactional_id, request.acks, request.timeout_ms, topics)


async def _produce_examined(request: ProduceRequest, context: RequestContext[Uses]) -> list[Part] | None:
    """Append once a thread has examined the large batches.

    A transaction is verified after that: its verification must not age.
    """
    examined = await examine_long_batches(request, context)
    if request.transactional_id is not None:
        wanted = request if context.denied is None else _without(context.denied, request)
        refused = rejections(wanted, context)
        return await _produce_later(request, context, refused, examined)
    if context.services.long_work.is_long(_partitions(request)):
        slices = context.services.long_work.begin(context)
        pieces = list(_pieces(request, context.services.long_work.step))
        return await _produce_rest(pieces, slices, _SlicedAnswer(request, context, examined))
    return await _produce_later(request, context, None, examined)


async def _produce_later(
    request: ProduceRequest,
    context: RequestContext[Uses],
    refused: RejectedPartitions | Awaitable[RejectedPartitions] | None,
    examined: Examinations | None = None,
) -> list[Part] | None:
    """Append once it is known that the partitions belong to the transaction, if there is one."""
    future = _Future()
    if refused is not None and not isinstance(refused, dict):
        refused = await refused
    answer = _produce(request, context, refused, future, examined=examined)
    return await future.future if answer is future else answer  # type: ignore[return-value]  # else it is a list


class _Future:
    """A late answer that is awaited instead of being sent."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[list[Part] | None] = asyncio.get_running_loop().create_future()

    def answer(self, parts: list[Part] | None) -> None:
        if not self.future.done():
            self.future.set_result(parts)


def _produce(
    request: ProduceRequest,
    context: RequestContext[Uses],
    refused: RejectedPartitions | None,
    late: LateAnswer | None = None,
    whole: _SlicedAnswer | None = None,
    examined: Examinations | None = None,
) -> list[Part] | LateAnswer | None:
    """`refused` is None for a producer without transactions; `late` is where an answer goes that has to wait.

    With `whole` the request is a part of a longer one, to whose answer its outcome is added. `examined` are the batches
    that need no further examination.
    """
    acks = request.acks
    produced: Produced = []
    waiting: list[Append] = []
    places: list[_AnswerPlace] = []
    failed = False
    now_ms = context.services.clock.now_ms()
    require = context.services.partitions.require
    denied = context.denied
    for topic, partitions in request.topics:
        answers = []
        for index, records in partitions:
            log = None
            try:
                if denied is not None and topic in denied:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                partition = require(topic, index)
                if records is None or context.version < FIRST_WITH_ZSTD:
                    records = check_carried(records, context.version)
                if partition.topic in INTERNAL_TOPICS and not _may_append_internal(partition.topic, context):
                    raise KafkaError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {partition.topic}"
                    )
                if refused is None:
                    if is_transactional(records):
                        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                elif refused and (code := refused.get((topic, index))):
                    # Its producer may send it again, and the next one in flight may be let in: not before this one.
                    partition.refuse(records, code, now_ms)
                    raise KafkaError(code)
                evidence = examined.get((topic, index)) if examined else None
                log = partition.log
                result = partition.append(records, now_ms=now_ms, all_in_sync=acks == ALL, examined=evidence)
            except KafkaError as error:
                failed = True
                if records is not None and error.code in SENT_AGAIN:
                    context.services.partitions.refused(topic, index, records, error.code, now_ms)
                answers.append(_failed(topic, index, error, context, log))
                continue
            last_offset = result.last_offset
            # What is below the high watermark is written.
            if last_offset >= partition.high_watermark and (acks == ALL or last_offset >= partition.log.end_offset):
                waiting.append((partition, last_offset))
                places.append((topic, index, answers, len(answers)))
            answers.append(_appended(index, result))
        produced.append((topic, answers))
    if whole is not None:
        whole.add(produced, waiting, places, failed=failed)
        return None
    if acks == 0:
        _unanswered(context, failed=failed)
        return None
    if not waiting:
        return _encode(produced, context, failed=failed)
    late = late or context.connection.later()
    answer = _LateAnswer(produced, places, context, late, failed)
    _wait(DelayedProduce(waiting, answer.fail, answer.send), request)
    return late


def _wait(delayed: DelayedProduce, request: ProduceRequest) -> None:
    """Wait as the request's `acks` ask for; at once after the appends, as they may be lost from then on."""
    if request.acks == ALL:
        delayed.wait_for_replicas(request.timeout_ms)
    else:
        delayed.wait_until_written()


def _produce_in_slices(
    request: ProduceRequest, context: RequestContext[Uses]
) -> list[Part] | Awaitable[list[Part] | None] | LateAnswer | None:
    """Append to many partitions, and let others be served after every few ms.

    Each slice is as good as a request of its own: it looks its partitions up, and waits for what it has appended from
    that very turn of the loop on. Only the answer is one.
    """
    slices = context.services.long_work.begin(context)
    whole = _SlicedAnswer(request, context)
    pieces = _pieces(request, context.services.long_work.step)
    for piece in pieces:
        _produce(piece, context, None, whole=whole)
        if slices.is_over:
            return _produce_rest([keep(each) for each in pieces], slices, whole)
    return whole.answer() if whole.is_complete else whole.answer_to(context.connection.later())


def _pieces(request: ProduceRequest, step: int) -> Iterator[ProduceRequest]:
    """The request as several ones, each for a few partitions of a topic."""
    for topic, partitions in request.topics:
        for first in range(0, len(partitions), step):
            some = partitions[first : first + step]
            yield ProduceRequest(None, request.acks, request.timeout_ms, [(topic, some)])


async def _produce_rest(pieces: list[ProduceRequest], slices: Slices, whole: _SlicedAnswer) -> list[Part] | None:
    """Append what the first slice has left."""
    if pieces:
        await slices.next()
        is_slow = True
        for piece in pieces:
            for part in _pieces(piece, 1) if is_slow else (piece,):
                if slices.is_over:
                    await slices.next()
                began = slices.now()
                _produce(part, whole.context, None, whole=whole, examined=whole.examined)
                is_slow = slices.now() - began > _SLOW_SECONDS * _partitions(part)
        slices.end()
    if whole.is_complete:
        return whole.answer()
    future = _Future()
    whole.answer_to(future)
    return await future.future


class _SlicedAnswer:
    """The answer of a request that is appended in slices, each of which may wait to be confirmed."""

    __slots__ = ("_failed", "_late", "_open", "_produced", "_request", "context", "examined")

    def __init__(
        self, request: ProduceRequest, context: RequestContext[Uses], examined: Examinations | None = None
    ) -> None:
        self._request = request
        self.context = context
        """The circumstances of the request."""
        self.examined = examined
        """Batches that need no further examination."""
        self._produced: Produced = []
        self._failed = False
        self._open = 0
        self._late: LateAnswer | None = None

    def add(self, produced: Produced, waiting: list[Append], places: list[_AnswerPlace], *, failed: bool) -> None:
        """Note what was appended just now, and wait for it."""
        self._produced += produced
        self._failed = self._failed or failed
        if waiting and self._request.acks != 0:
            self._open += 1

            def fail(index: int, error: KafkaError) -> None:
                self._failed = True
                _fail_at(places[index], error, self.context)

            _wait(DelayedProduce(waiting, fail, self._confirmed), self._request)

    def _confirmed(self) -> None:
        """All appends of a slice are confirmed or have failed."""
        self._open -= 1
        if not self._open and self._late is not None:
            self._late.answer(self.answer())

    @property
    def is_complete(self) -> bool:
        """Whether no slice so far waits."""
        return not self._open

    def answer_to(self, late: LateAnswer) -> LateAnswer:
        """Answer there once no slice waits; to be called after the last slice, unless the answer is complete."""
        self._late = late
        return late

    def answer(self) -> list[Part] | None:
        """The answer, with each topic once for all of its slices that follow each other."""
        if self._request.acks == 0:
            _unanswered(self.context, failed=self._failed)
            return None
        merged: Produced = []
        rows = iter(self._produced)
        for topic, partitions in self._request.topics:
            answers: list[ProducedPartition] = []
            while len(answers) < len(partitions):
                answers += next(rows)[1]
            merged.append((topic, answers))
        return _encode(merged, self.context, failed=self._failed)


def _may_append_internal(topic: str, context: RequestContext[Uses]) -> bool:
    """Audit events come from brokers, or from super users, to whom the guard has reduced the clients."""
    if context.session.is_broker:
        return topic == AUDIT_TOPIC
    is_guarded = topic != AUDIT_TOPIC or context.services.authorization is not None
    return is_guarded and context.client_id == _ADMIN_CLIENT


def _unanswered(context: RequestContext[Uses], *, failed: bool) -> None:
    if failed:
        # The client asked for no answer; a closed connection is the only way to report it, as in Kafka.
        context.connection.close("a produce request with acks=0 failed")
    else:
        _throttle(context)


def _appended(index: int, result: AppendResult) -> ProducedPartition:
    # The usual answer, without the keyword handling of a NamedTuple's constructor, which is as dear as the encoding.
    first_offset, _, log_append_time_ms, log_start_offset, _ = result
    fields = (index, _NONE, first_offset, log_append_time_ms, log_start_offset, (), None, None)
    return tuple.__new__(ProducedPartition, fields)


def _failed(
    topic: TopicKey, index: int, error: KafkaError, context: RequestContext[Uses], log: PartitionLog | None = None
) -> ProducedPartition:
    """The answer for a partition; `log` is the one that rejected the batch, if one did."""
    context.note_error(error.code)
    record_errors = error.record_errors if isinstance(error, RejectedRecords) else ()
    leader = current_leader(context, topic, index) if error.code in MOVED else None
    start = -1 if log is None or error.code in _WITHOUT_LOG_START else log.log_start_offset
    return ProducedPartition(index, error.code, -1, -1, start, record_errors, error.message, leader)


def _fail_at(place: _AnswerPlace, error: KafkaError, context: RequestContext[Uses]) -> None:
    """Put the error of an append that is not confirmed in the place of its success. Its offsets stay, as in Kafka."""
    topic, partition, answers, position = place
    appended = answers[position]
    answers[position] = _failed(topic, partition, error, context)._replace(
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )


def _encode(produced: Produced, context: RequestContext[Uses], *, failed: bool) -> list[Part]:
    throttle_ms = _throttle(context)
    nodes = endpoints(context, (row.current_leader for _, rows in produced for row in rows)) if failed else ()
    return [encode_response(context.version, context.correlation_id, produced, throttle_ms, nodes)]


def _throttle(context: RequestContext[Uses]) -> int:
    """Count the request against the client's quota, and make its connection pause if it is too much."""
    quotas = context.services.quotas
    throttle_ms = 0
    if quotas.produce.active:
        now_ms = context.services.clock.monotonic() * 1000
        throttle_ms = quotas.produce.record(*context.quota_entity, context.size, now_ms)
    return pause(context, throttle_ms) if throttle_ms or quotas.request.active else 0


class _LateAnswer:
    """The answer of a request whose appends wait to be confirmed."""

    __slots__ = ("_context", "_failed", "_late", "_places", "_produced")

    def __init__(
        self,
        produced: Produced,
        places: list[_AnswerPlace],
        context: RequestContext[Uses],
        late: LateAnswer,
        failed: bool,
    ) -> None:
        self._produced = produced
        self._places = places
        self._context = context
        self._late = late
        self._failed = failed

    def fail(self, index: int, error: KafkaError) -> None:
        """Put the error in the place of the append's success."""
        self._failed = True
        _fail_at(self._places[index], error, self._context)

    def send(self) -> None:
        """All appends are confirmed or have failed."""
        self._late.answer(_encode(self._produced, self._context, failed=self._failed))
