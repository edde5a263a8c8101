"""Produce: append record batches, answer at once or when all in-sync replicas have them.

Version notes: 3 transactional id, batches of format 2; 5 log start offset; 7 zstd; 8 errors of single records (KIP-467); 9
flexible; 10 current leader in the answer (KIP-951); 12 transactions version 2 (KIP-890); 13 topic ids. Versions 0-2 are
listed by ApiVersions for old librdkafka's sake (KAFKA-18659) and refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from odradek.api.context import ANONYMOUS, RequestContext
from odradek.api.registry import api
from odradek.api.transactional_produce import ZSTD, codec_of, is_transactional, keep, refusals
from odradek.log.append import RejectedRecords
from odradek.log.partition_log import AppendResult
from odradek.metadata.image import INTERNAL_TOPICS
from odradek.ports.network import Part
from odradek.replication.partition import Partition
from odradek.transactions.service import Refusals
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.produce import ProducedPartition, ProduceRequest, TopicKey, decode_request, encode_response

ALL = -1
_FIRST_WITH_ZSTD = 7
_ADMIN_CLIENT = "__admin_client"
"""The client id for which Kafka lets records into the topics that its coordinators live in."""
_VALID_ACKS = (ALL, 0, 1)

Produced = list[tuple[TopicKey, list[ProducedPartition]]]
Uncommitted = tuple[Partition, int, list[ProducedPartition], int]
"""A partition, the last offset appended to it, and where its answer stands."""


def _all_failed(request: ProduceRequest, context: RequestContext, code: ErrorCode) -> list[Part] | None:
    """The answer that every partition failed with the code."""
    if request.acks == 0:
        context.connection.close("a produce request with acks=0 failed")
        return None
    error = KafkaError(code)
    failed = [(topic, [_failed(index, error) for index, _ in partitions]) for topic, partitions in request.topics]
    return _encode(failed, context)


@api(ApiKey.PRODUCE, decode=decode_request, overtaking=True, failed=_all_failed)
def handle(request: ProduceRequest, context: RequestContext) -> list[Part] | Awaitable[list[Part] | None] | None:
    if request.acks not in _VALID_ACKS:
        return _all_failed(request, context, ErrorCode.INVALID_REQUIRED_ACKS)
    if request.transactional_id is None:
        return _produce(request, context, None)
    refused = refusals(request, context)
    if isinstance(refused, dict):
        return _produce(request, context, refused)
    return _produce_later(keep(request), context, refused)


async def _produce_later(
    request: ProduceRequest, context: RequestContext, refused: Refusals | Awaitable[Refusals]
) -> list[Part] | None:
    """Append once it is known that the partitions belong to the transaction."""
    while not isinstance(refused, dict):
        refused = await refused or refusals(request, context)
    answer = _produce(request, context, refused)
    return await answer if isinstance(answer, asyncio.Future) else answer


def _produce(
    request: ProduceRequest, context: RequestContext, refused: Refusals | None
) -> list[Part] | asyncio.Future[list[Part]] | None:
    """`refused` is None for a producer without transactions."""
    acks = request.acks
    produced: Produced = []
    waiting: list[Uncommitted] = []
    failed = False
    now_ms = context.services.clock.now_ms()
    require = context.services.partitions.require
    for topic, partitions in request.topics:
        answers = []
        for index, records in partitions:
            try:
                partition = require(topic, index)
                if records is None:
                    raise KafkaError(ErrorCode.INVALID_RECORD, "there is no record batch")
                if context.version < _FIRST_WITH_ZSTD and codec_of(records) == ZSTD:
                    raise KafkaError(
                        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Produce {context.version} may not carry zstd"
                    )
                if partition.topic in INTERNAL_TOPICS and context.client_id != _ADMIN_CLIENT:
                    raise KafkaError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {partition.topic}"
                    )
                if refused is None:
                    if is_transactional(records):
                        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                elif refused and (code := refused.get((partition.topic, index))):
                    raise KafkaError(code)
                result = partition.append(records, now_ms=now_ms, all_in_sync=acks == ALL)
            except KafkaError as error:
                failed = True
                answers.append(_failed(index, error))
                continue
            if acks == ALL and not partition.is_committed(result.last_offset):
                waiting.append((partition, result.last_offset, answers, len(answers)))
            answers.append(_appended(index, result))
        produced.append((topic, answers))
    if acks == 0:
        if failed:
            # The client asked for no answer; a closed connection is the only way to tell it, as in Kafka.
            context.connection.close("a produce request with acks=0 failed")
        elif context.services.quotas.produce.active:
            _throttle(context)
        return None
    if not waiting:
        return _encode(produced, context)
    return _when_committed(produced, waiting, request.timeout_ms, context)


def _appended(index: int, result: AppendResult) -> ProducedPartition:
    # The usual answer, without the keyword handling of a NamedTuple's constructor, which is as dear as the encoding.
    first_offset, _, log_append_time_ms, log_start_offset, _ = result
    fields = (index, ErrorCode.NONE, first_offset, log_append_time_ms, log_start_offset, (), None, None)
    return tuple.__new__(ProducedPartition, fields)


def _failed(index: int, error: KafkaError) -> ProducedPartition:
    record_errors = error.record_errors if isinstance(error, RejectedRecords) else ()
    return ProducedPartition(index, error.code, record_errors=record_errors, error_message=error.message)


def _encode(produced: Produced, context: RequestContext) -> list[Part]:
    throttle_ms = _throttle(context) if context.services.quotas.produce.active else 0
    return [encode_response(context.version, context.correlation_id, produced, throttle_ms)]


def _throttle(context: RequestContext) -> int:
    """Count the request against the client's quota, and make its connection pause if it is too much."""
    services = context.services
    now_ms = services.clock.monotonic() * 1000
    throttle_ms = services.quotas.produce.record(ANONYMOUS, context.client_id or "", context.size, now_ms)
    if throttle_ms:
        context.connection.throttle(throttle_ms)
    return throttle_ms


def _when_committed(
    produced: Produced, waiting: list[Uncommitted], timeout_ms: int, context: RequestContext
) -> asyncio.Future[list[Part]]:
    """The answer once the high watermark has passed every append; REQUEST_TIMED_OUT where it has not in time."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[list[Part]] = loop.create_future()
    left = len(waiting)

    def finish(code: ErrorCode) -> None:
        timer.cancel()
        for partition, offset, answers, position in waiting:
            if not partition.is_committed(offset):
                answers[position] = _failed(partition.index, KafkaError(code))
        if not future.done():
            future.set_result(_encode(produced, context))

    def released() -> None:
        # Called when an append is committed, and when its partition left this broker before it could be.
        nonlocal left
        left -= 1
        if not left:
            finish(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    timer = loop.call_later(max(0, timeout_ms) / 1000, finish, ErrorCode.REQUEST_TIMED_OUT)
    for partition, offset, _, _ in waiting:
        partition.when_committed(offset, released)
    return future
