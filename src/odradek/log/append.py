"""Checks and rewriting of batches before they are appended (LogValidator, UnifiedLog.analyzeAndValidateRecords).

The usual append, one batch of a client that needs no change, is decided by PartitionLog from the header
alone. Everything that looks at records, or changes more than the header, is `prepare`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, NoReturn

from odradek.log.config import LONG_MAX, VALIDATE_RECORDS, LogConfig
from odradek.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    check_batch,
    parse_header,
    patch_placement,
    set_log_append_time,
    set_max_timestamp,
    split_batches,
)
from odradek.records.builder import BatchFields, finish_batch
from odradek.records.columns import RecordColumns
from odradek.records.compression import content_bound
from odradek.records.control import ControlRecord, decode_control_record, decode_marker
from odradek.records.errors import CorruptRecords, InvalidRecords, TooLargeRecords, UnsupportedMagic
from odradek.records.examination import examine_records
from odradek.records.record import Record, decode_columns, decode_records, records_section
from odradek.wire.errors import ErrorCode, KafkaError


class Origin(IntEnum):
    """Who appends, and so what is checked (AppendOrigin)."""

    CLIENT = 0
    COORDINATOR = 1
    REPLICATION = 2


class AppendResult(NamedTuple):
    """Offsets of an append; `log_append_time_ms` is -1 unless the topic's timestamps are LogAppendTime."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


class Prepared(NamedTuple):
    """Bytes to be written and where their batches are. Offsets are not yet assigned."""

    data: memoryview
    batches: list[tuple[int, BatchHeader]]
    log_append_time_ms: int


class Examined(NamedTuple):
    """A producer's batch that was checked, and compressed as its topic demands, before its append."""

    original: memoryview
    """The bytes that were examined."""
    config: LogConfig
    """The settings by which they were examined."""
    data: memoryview
    """The bytes to be written, without the topic's time."""
    batches: list[tuple[int, BatchHeader]]
    """Where their batches are."""
    error: KafkaError | None
    """Why the append must fail."""


_LONG_BYTES: Final = 16 << 10
"""More bytes take long to read: 2,300 of the smallest records, 1.6 us each."""
_LONG_RECORDS: Final = 1000
_LONG_CONTENT: Final = 1 << 20
"""More bytes take long to decompress."""
_NAMELESS: Final = 17
"""Bytes up to and with the magic: Kafka treats fewer as no batch."""
_LEAST_LENGTH: Final = 14
"""The least length of a batch of any format in Kafka (LegacyRecord.RECORD_OVERHEAD_V0)."""


def _names_no_batch(batches: memoryview) -> bool:
    """Whether what a client sent does not begin with a whole batch, or with one of format 0 or 1.

    For Kafka that is an invalid request, anything else that is wrong a corrupt batch: ProduceRequest.validateRecords,
    ByteBufferLogInputStream.
    """
    if len(batches) < LOG_OVERHEAD:
        return True
    length = int.from_bytes(batches[8:LOG_OVERHEAD], "big", signed=True)
    if length < _LEAST_LENGTH:
        return False
    if len(batches) < _NAMELESS:
        return True
    magic = batches[_NAMELESS - 1]
    return magic < MAGIC or (magic == MAGIC and LOG_OVERHEAD + length > len(batches))


def refused(error: CorruptRecords, batches: memoryview | None = None) -> NoReturn:
    """Raise the KafkaError for what `records` found; `batches` are given if a client sent them."""
    if batches is not None and isinstance(error, TooLargeRecords):
        # Java's and librdkafka's producers know what to do with it, which CORRUPT_MESSAGE would have them repeat.
        code = ErrorCode.MESSAGE_TOO_LARGE
    elif batches is not None and isinstance(error, UnsupportedMagic):
        code = ErrorCode.INVALID_RECORD if _names_no_batch(batches) else ErrorCode.CORRUPT_MESSAGE
    elif isinstance(error, UnsupportedMagic):
        code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    elif isinstance(error, InvalidRecords) or (batches is not None and _names_no_batch(batches)):
        code = ErrorCode.INVALID_RECORD
    else:
        code = ErrorCode.CORRUPT_MESSAGE
    raise KafkaError(code, str(error)) from error


def check_size(size: int, config: LogConfig) -> None:
    """Raise KafkaError MESSAGE_TOO_LARGE if a batch of `size` bytes exceeds `max.message.bytes`."""
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes exceeds max.message.bytes={config.max_message_bytes}",
        )


def check_fits_segment(size: int, config: LogConfig) -> None:
    """Raise KafkaError RECORD_LIST_TOO_LARGE if batches of `size` bytes exceed `segment.bytes`."""
    if size > config.segment_bytes:
        raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes exceed segment.bytes={config.segment_bytes}")


def check_timestamp(timestamp: int, config: LogConfig, now_ms: int) -> None:
    """INVALID_TIMESTAMP outside of message.timestamp.before.max.ms and message.timestamp.after.max.ms."""
    if timestamp == NO_TIMESTAMP:
        return
    age = now_ms - timestamp
    if age > config.message_timestamp_before_max_ms or -age > config.message_timestamp_after_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {timestamp} is more than {config.message_timestamp_before_max_ms} ms before or "
            f"{config.message_timestamp_after_max_ms} ms after the broker's time {now_ms}",
        )


def prepare(batches: memoryview, config: LogConfig, now_ms: int, origin: Origin) -> Prepared:
    """Check all batches, and bring them to the topic's timestamp type and compression.

    CLIENT gives exactly one batch, as Kafka demands of magic 2. Raises KafkaError.
    """
    batches, placed = _checked(batches, config, now_ms, origin)
    if origin is Origin.REPLICATION:
        return Prepared(batches, placed, NO_TIMESTAMP)
    return _stamp(batches, placed, config, now_ms)


def takes_long(batches: memoryview, config: LogConfig) -> bool:
    """Whether the append of a producer's batch would read or compress so much that it should happen before, and apart.

    Broken batches may seem to.
    """
    size = len(batches)
    if size < HEADER_SIZE or batches[_NAMELESS - 1] != MAGIC:
        return False
    header = parse_header(batches, 0)
    codec = header.attributes & COMPRESSION_MASK
    target = config.target_codec
    if (target is None or target == codec) and not _reads_records(config):
        return False
    if size > _LONG_BYTES:
        return True
    if not codec:
        return False
    return header.records_count > _LONG_RECORDS or content_bound(codec, batches[HEADER_SIZE:]) > _LONG_CONTENT


def examine(batches: memoryview, config: LogConfig, now_ms: int) -> Examined:
    """As `prepare` for a producer's batch, but for the topic's time, which the append decides. For any thread."""
    try:
        data, placed = _checked(batches, config, now_ms, Origin.CLIENT)
    except KafkaError as error:
        return Examined(batches, config, batches, [], error)
    return Examined(batches, config, data, placed, None)


def prepare_examined(examined: Examined, now_ms: int) -> Prepared:
    """Complete an examined batch at the time of its append. Raises the KafkaError that the examination found."""
    if examined.error is not None:
        raise examined.error
    return _stamp(examined.data, examined.batches, examined.config, now_ms)


def _checked(
    batches: memoryview, config: LogConfig, now_ms: int, origin: Origin
) -> tuple[memoryview, list[tuple[int, BatchHeader]]]:
    """The checked batches in the topic's compression, and where they are. Raises KafkaError."""
    try:
        placed = list(split_batches(batches, allow_partial_tail=origin is not Origin.COORDINATOR))
        if not placed:
            raise InvalidRecords("no record batch")
        if origin is Origin.CLIENT and len(placed) > 1:
            raise InvalidRecords(f"{len(placed)} record batches where a producer sends one")
        from_client = origin is Origin.CLIENT
        for position, header in placed:
            if origin is not Origin.REPLICATION:
                check_size(header.size, config)
            if origin is not Origin.COORDINATOR:  # which has encoded its batch in this process just now
                check_batch(batches, position, from_client=from_client)
        last, header = placed[-1]
        batches = batches[: last + header.size]
        if origin is Origin.REPLICATION:
            return batches, placed
        return _bring_to_topic(batches, placed, config, now_ms, from_client)
    except CorruptRecords as error:
        refused(error, batches if origin is Origin.CLIENT else None)


def _bring_to_topic(
    batches: memoryview, placed: list[tuple[int, BatchHeader]], config: LogConfig, now_ms: int, from_client: bool
) -> tuple[memoryview, list[tuple[int, BatchHeader]]]:
    rewritten: list[bytearray] | None = None
    for index, (position, header) in enumerate(placed):
        is_control = header.attributes & CONTROL_BIT
        if from_client:
            _check_records(batches, position, header, config, now_ms)
        target = config.target_codec
        if target is not None and target != header.attributes & COMPRESSION_MASK and not is_control:
            if rewritten is None:
                rewritten = [bytearray(batches[at : at + other.size]) for at, other in placed]
            rewritten[index] = recompress(batches, position, header, config)
            check_size(len(rewritten[index]), config)
    if rewritten is not None:
        batches = memoryview(bytearray().join(rewritten))
        placed = list(split_batches(batches))
    return batches, placed


def _stamp(batches: memoryview, placed: list[tuple[int, BatchHeader]], config: LogConfig, now_ms: int) -> Prepared:
    if config.log_append_time:
        for position, header in placed:
            set_log_append_time(batches, position, header, now_ms)
    else:
        for position, header in placed:
            if header.attributes & TIMESTAMP_TYPE_BIT:
                # What a broker writes is the topic's type; Kafka clears the bit, too.
                set_max_timestamp(batches, position, header, header.max_timestamp)
    placed = [(position, parse_header(batches, position)) for position, _ in placed]
    return Prepared(batches, placed, now_ms if config.log_append_time else NO_TIMESTAMP)


class RejectedRecords(KafkaError):
    """Some records of a batch are invalid, and so none of it was appended (KIP-467).

    `record_errors` are (index in the batch, message), so that the producer can name the invalid records.
    """

    def __init__(self, code: ErrorCode, record_errors: list[tuple[int, str]]) -> None:
        self.record_errors = record_errors
        first = "; ".join(f"record {index}: {text}" for index, text in record_errors[:3])
        super().__init__(code, f"{len(record_errors)} records are invalid, among them {first}")


def _check_records(batches: memoryview, position: int, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if config.log_append_time:
        if header.attributes & TIMESTAMP_TYPE_BIT:
            raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type LogAppendTime")
    else:
        check_timestamp(header.max_timestamp, config, now_ms)
    if not _reads_records(config):
        return
    check_each_time = _checks_each_time(config)
    check_each_offset = config.batch_validation == VALIDATE_RECORDS
    facts = examine_records(batches, header, position, max_uncompressed_bytes=config.max_decompressed_bytes)
    is_valid = not (config.compact and facts.has_null_key)
    if is_valid and check_each_offset:
        is_valid = not facts.has_gaps and facts.most_headers <= config.max_record_headers
    if is_valid and check_each_time:
        is_valid = _is_timely(facts.least_timestamp, config, now_ms) and _is_timely(
            facts.largest_timestamp, config, now_ms
        )
    if not is_valid:
        columns = decode_columns(batches, header, position, max_uncompressed_bytes=config.max_decompressed_bytes)
        _name_invalid(columns, header, config, now_ms, check_each_time=check_each_time)


def _reads_records(config: LogConfig) -> bool:
    """Whether the topic's settings demand a look at each record of a producer."""
    return config.compact or _checks_each_time(config) or config.batch_validation == VALIDATE_RECORDS


def _checks_each_time(config: LogConfig) -> bool:
    return config.message_timestamp_before_max_ms != LONG_MAX and not config.log_append_time


def _is_timely(timestamp: int, config: LogConfig, now_ms: int) -> bool:
    try:
        check_timestamp(timestamp, config, now_ms)
    except KafkaError:
        return False
    return True


def _name_invalid(
    columns: RecordColumns, header: BatchHeader, config: LogConfig, now_ms: int, *, check_each_time: bool
) -> None:
    """Raise RejectedRecords if there are invalid records."""
    check_each_offset = config.batch_validation == VALIDATE_RECORDS
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    rows = zip(columns.offsets, columns.timestamps, columns.keys, columns.headers, strict=True)
    for index, (offset, timestamp, key, headers) in enumerate(rows):
        if config.compact and key is None:
            errors.append((index, "the record has no key, and the topic is compacted"))
        elif check_each_offset and offset - header.base_offset != index:
            errors.append((index, f"the record has the offset delta {offset - header.base_offset}"))
        elif check_each_offset and len(headers) > config.max_record_headers:
            errors.append((index, f"the record has {len(headers)} headers (odradek.max.record.headers)"))
        elif check_each_time:
            try:
                check_timestamp(timestamp, config, now_ms)
            except KafkaError as error:
                code = error.code
                errors.append((index, error.message))
    if errors:
        raise RejectedRecords(code, errors)


def recompress(batches: memoryview, position: int, header: BatchHeader, config: LogConfig) -> bytearray:
    """The batch in the topic's `compression.type`, all else as it was."""
    target = config.target_codec
    assert target is not None
    section = records_section(batches, header, position, max_uncompressed_bytes=config.max_decompressed_bytes)
    fields = BatchFields(
        header.base_offset,
        header.partition_leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )
    shape = (header.records_count, header.last_offset_delta, header.base_timestamp, header.max_timestamp)
    attributes = header.attributes & ~COMPRESSION_MASK
    return finish_batch(bytearray(section), target, config.compression_level(target), shape, fields, attributes)


def control_record(batches: memoryview, position: int, header: BatchHeader) -> ControlRecord | None:
    """The record of a control batch; None for one that compaction has emptied. CORRUPT_MESSAGE if broken."""
    if not header.records_count:
        return None
    marker = decode_marker(batches, position, header)
    if marker is not None:
        return marker
    try:
        records: list[Record] = decode_records(batches[position : position + header.size], header)
        return decode_control_record(records[0])
    except CorruptRecords as error:
        refused(error)


def control_records(batches: memoryview, headers: list[tuple[int, BatchHeader]]) -> dict[int, ControlRecord | None]:
    """The records of the control batches, by position; see `control_record`."""
    return {at: control_record(batches, at, header) for at, header in headers if header[5] & CONTROL_BIT}


def up_to_epoch(
    data: memoryview, batches: list[tuple[int, BatchHeader]], leader_epoch: int
) -> tuple[memoryview, list[tuple[int, BatchHeader]]]:
    """Without the first batch of a later epoch and all behind it.

    A former leader may have truncated the records that it was sending, and have copied others from its successor: these
    do not follow the receiver's records, though their offsets do (KAFKA-18723).
    """
    for index, (position, header) in enumerate(batches):
        if header.partition_leader_epoch > leader_epoch:
            return data[:position], batches[:index]
    return data, batches


def check_replicated(
    batches: list[tuple[int, BatchHeader]], expected: int, directory: str
) -> list[tuple[int, BatchHeader]]:
    """The batches of a leader, whose offsets have to begin at `expected` or later. INVALID_RECORD."""
    for _, header in batches:
        if header.base_offset < expected:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"{directory}: replicated batch at offset {header.base_offset} where {expected} is due",
            )
        expected = header.next_offset
    return batches


def place(
    data: memoryview, batches: list[tuple[int, BatchHeader]], offset: int, leader_epoch: int
) -> list[tuple[int, BatchHeader]]:
    """Give the batches their offsets, beginning with this one, and their leader epoch, in place."""
    placed = []
    for position, header in batches:
        patch_placement(data, position, header, offset, leader_epoch)
        placed.append((position, header._replace(base_offset=offset, partition_leader_epoch=leader_epoch)))
        offset += header.last_offset_delta + 1
    return placed
