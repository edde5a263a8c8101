"""The records of `__transaction_state`, in Kafka's format, and what they hold: the whole state of a transactional id.

A key is int16 version 0 and the transactional id; a value is its version as an int16 and its fields; a null value is a
tombstone. Value version 1 is what brokers at transaction.version 1 and 2 write, 0 what older ones wrote.
Source: Kafka's TransactionLog.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from odradek.records.topic_partition import PartitionKey
from odradek.transactions.states import State
from odradek.wire.messages.transaction_state import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionLogValueTopicPartitions,
)
from odradek.wire.primitives import (
    ENCODE_FAULTS,
    DecodeError,
    EncodeError,
    write_compact_string,
    write_unsigned_varint,
)

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
MAX_EPOCH: Final = 32767
LAST_CLIENT_EPOCH: Final = MAX_EPOCH - 1
"""A client never gets the last epoch, so that a producer can always be fenced."""
NO_TIME: Final = -1
NO_PARTITIONS: Final[frozenset[PartitionKey]] = frozenset()

TV_0: Final = 0
TV_2: Final = 2
"""Levels of the feature transaction.version: from 2 on every end of a transaction bumps the epoch (KIP-890)."""

_FEW_PARTITIONS: Final = 4
_INT16: Final = Struct(">h")
_KEY_HEAD: Final = Struct(">hh")  # version, the transactional id's length
_INT32: Final = Struct(">i")
_HEAD_1: Final = Struct(">hqhib")  # version, producer id, epoch, timeout, state
_TIMES_1: Final = Struct(">qqB")  # last update, start, number of tagged fields
_INT64_TAG: Final = Struct(">BBq")
_INT16_TAG: Final = Struct(">BBh")


class Transaction(NamedTuple):
    """The state of one transactional id; never changed, only replaced. Times in ms since the epoch, -1 for none."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State
    update_ms: int
    start_ms: int = NO_TIME
    partitions: frozenset[PartitionKey] = NO_PARTITIONS
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last transition, usually the same one."""
    next_producer_id: int = NO_PRODUCER_ID
    """Takes over when the transaction is complete, because the epochs of the old one are used up."""
    last_producer_epoch: int = NO_EPOCH
    """The epoch before the last bump that the producer itself asked for. Not in the record: see `_last_epoch`."""
    client_version: int = TV_0
    """transaction.version of the client that began or ended the transaction."""

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the next epoch needs another producer id."""
        return self.producer_epoch >= LAST_CLIENT_EPOCH


class TransactionRecord(NamedTuple):
    """A transactional id's new state, or its tombstone."""

    transactional_id: str
    value: Transaction | None


def encode_record(record: TransactionRecord, transaction_version: int = TV_2) -> tuple[bytes, bytes | None]:
    """(key, value) as they are in the log. Raises EncodeError when a string or number is out of range."""
    transactional_id, found = record
    try:
        name = transactional_id.encode()
        key = _KEY_HEAD.pack(0, len(name)) + name
    except ENCODE_FAULTS as fault:
        raise EncodeError(f"transactional id: {fault}") from fault
    if found is None:
        return key, None
    # Below level 1 the older form is written, unless it has no room for what a client of level 2 has begun.
    version = 1 if transaction_version > 0 or found.client_version or found.next_producer_id >= 0 else 0
    return key, _encode_1(found) if version else _encode_0(found)


def _encode_0(found: Transaction) -> bytes:
    value = bytearray(_INT16.pack(0))
    topics = [TransactionLogValueTopicPartitions(topic, indexes) for topic, indexes in _by_topic(found.partitions)]
    TransactionLogValue(
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        transaction_timeout_ms=found.timeout_ms,
        transaction_status=found.state,
        # An id that has no transaction has no list rather than an empty one.
        transaction_partitions=None if found.state is State.EMPTY else topics,
        transaction_last_update_timestamp_ms=found.update_ms,
        transaction_start_timestamp_ms=found.start_ms,
    ).encode(value, 0)
    return bytes(value)


def _encode_1(found: Transaction) -> bytes:
    """By hand, because every transaction writes three of these; a test holds it equal to the generated codec."""
    try:
        value = bytearray(_HEAD_1.pack(1, found.producer_id, found.producer_epoch, found.timeout_ms, found.state))
        if found.state is State.EMPTY:
            value.append(0)
        elif len(found.partitions) <= _FEW_PARTITIONS:
            value += _encoded_few(found.partitions)
        else:
            value += _encoded_partitions(found.partitions)
        tags = []
        if found.previous_producer_id != NO_PRODUCER_ID:
            tags.append(_INT64_TAG.pack(0, 8, found.previous_producer_id))
        if found.next_producer_id != NO_PRODUCER_ID:
            tags.append(_INT64_TAG.pack(1, 8, found.next_producer_id))
        if found.client_version != TV_0:
            tags.append(_INT16_TAG.pack(2, 2, found.client_version))
        value += _TIMES_1.pack(found.update_ms, found.start_ms, len(tags))
        value += b"".join(tags)
    except ENCODE_FAULTS as fault:
        raise EncodeError(f"transaction record: {fault}") from fault
    return bytes(value)


def _encoded_partitions(partitions: frozenset[PartitionKey]) -> bytes:
    out = bytearray()
    topics = _by_topic(partitions)
    write_unsigned_varint(out, len(topics) + 1)
    for topic, indexes in topics:
        write_compact_string(out, topic)
        write_unsigned_varint(out, len(indexes) + 1)
        for index in indexes:
            out += _INT32.pack(index)
        out.append(0)
    return bytes(out)


_encoded_few = lru_cache(maxsize=1024)(_encoded_partitions)
"""A producer writes to the same few partitions in one transaction after the other."""


def _by_topic(partitions: frozenset[PartitionKey]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return list(topics.items())


def decode_record(key: bytes | memoryview, value: bytes | memoryview | None) -> TransactionRecord | None:
    """The record, or None for a key version that is not known here. Raises DecodeError for bytes that are none."""
    key = memoryview(key)
    if len(key) < 2:
        raise DecodeError("a transaction record's key has no version")
    (key_version,) = _INT16.unpack_from(key)
    if key_version != 0:
        return None
    transactional_id = TransactionLogKey.decode(key, 2, 0)[0].transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    body = memoryview(value)
    if len(body) < 2:
        raise DecodeError("a transaction record's value has no version")
    (version,) = _INT16.unpack_from(body)
    return TransactionRecord(transactional_id, _transaction(TransactionLogValue.decode(body, 2, version)[0]))


def _transaction(value: TransactionLogValue) -> Transaction:
    try:
        state = State(value.transaction_status)
    except ValueError as error:
        raise DecodeError(f"transaction status {value.transaction_status}") from error
    found = Transaction(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        update_ms=value.transaction_last_update_timestamp_ms,
        start_ms=value.transaction_start_timestamp_ms,
        partitions=frozenset(
            (topic.topic, index) for topic in value.transaction_partitions or () for index in topic.partition_ids
        ),
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )
    return found._replace(last_producer_epoch=_last_epoch(found))


def _last_epoch(found: Transaction) -> int:
    """`last_producer_epoch`, if the record implies it.

    Kafka forgets it over a restart, so that a producer whose transaction timed out is fenced for good if the broker
    restarts before it asks for its new epoch. While a transaction ends under transaction.version 2, it is the epoch
    before.
    """
    if found.client_version < TV_2 or found.state in (State.EMPTY, State.ONGOING):
        return NO_EPOCH
    rotated = found.producer_epoch == 0 and found.previous_producer_id != found.producer_id
    return LAST_CLIENT_EPOCH if rotated else found.producer_epoch - 1
