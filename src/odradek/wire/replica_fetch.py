"""The follower's side of Fetch by hand: requests name many partitions, the answers' records stay in the receive buffer.

`fetch.py` is the leader's side; the generated codec (`messages/fetch.py`) says the same as both, and tests hold them
equal. Only the versions that brokers of this program speak to each other are here: topic ids, and the replica's state
in a tagged field (KIP-903).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from odradek.wire.fetch import FetchPartition
from odradek.wire.primitives import (
    DECODE_FAULTS,
    ENCODE_FAULTS,
    DecodeError,
    EncodeError,
    read_compact_count,
    read_tag,
    read_unsigned_varint,
    skip_tags,
    tag_mismatch,
    unsupported,
    write_unsigned_varint,
)

_MIN_VERSION: Final = 15
_MAX_VERSION: Final = 17
_FETCH: Final = 1

_pack_head = Struct(">iiibii").pack
_pack_partition = Struct(">iiqiqix").pack
_pack_int32 = Struct(">i").pack
# An empty rack, one tag: number 1, 13 bytes, of which the last says that there are no tags within.
_pack_tail = Struct(">BBBBiqB").pack
_unpack_head = Struct(">ihi").unpack_from
_unpack_partition = Struct(">ihqqq").unpack_from
_unpack_epoch_end = Struct(">iq").unpack_from
_unpack_leader = Struct(">ii").unpack_from
_PARTITION_SIZE: Final = 30
_NOTHING: Final = memoryview(b"")

TopicPartitions = tuple[bytes, Sequence[FetchPartition]]


class ReplicaFetchRequest:
    """What a follower asks of a leader. `topics` and `forgotten` go by topic id; sizes are bytes."""

    API_KEY: ClassVar[int] = _FETCH
    MIN_VERSION: ClassVar[int] = _MIN_VERSION
    MAX_VERSION: ClassVar[int] = _MAX_VERSION
    FLEXIBLE_FROM: ClassVar[int] = 12

    __slots__ = (
        "broker_epoch", "broker_id", "forgotten", "max_bytes", "max_wait_ms", "min_bytes", "session_epoch",
        "session_id", "topics",
    )  # fmt: skip

    def __init__(self, broker_id: int, broker_epoch: int, max_wait_ms: int, min_bytes: int, max_bytes: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.session_id = 0
        self.session_epoch = 0
        self.topics: Sequence[TopicPartitions] = ()
        self.forgotten: Sequence[tuple[bytes, Sequence[int]]] = ()

    def encode(self, out: bytearray, version: int) -> None:
        """Append the body to `out`; raises EncodeError."""
        if not _MIN_VERSION <= version <= _MAX_VERSION:
            raise EncodeError(f"a follower does not speak Fetch version {version}")
        try:
            out += _pack_head(self.max_wait_ms, self.min_bytes, self.max_bytes, 0, self.session_id, self.session_epoch)
            write_unsigned_varint(out, len(self.topics) + 1)
            for topic_id, partitions in self.topics:
                out += topic_id
                write_unsigned_varint(out, len(partitions) + 1)
                for row in partitions:
                    out += _pack_partition(*row)
                out.append(0)
            write_unsigned_varint(out, len(self.forgotten) + 1)
            for topic_id, indexes in self.forgotten:
                out += topic_id
                write_unsigned_varint(out, len(indexes) + 1)
                for index in indexes:
                    out += _pack_int32(index)
                out.append(0)
            out += _pack_tail(1, 1, 1, 13, self.broker_id, self.broker_epoch, 0)
        except ENCODE_FAULTS as fault:
            raise EncodeError(f"Fetch of a follower, version {version}: {fault}") from fault


class FetchedReplica(NamedTuple):
    """The answer for one partition.

    `records` are whole batches in the receive buffer: they are gone when the handler of the answer returns.
    `diverging_epoch` is (epoch, end offset), `current_leader` (id, epoch).
    """

    topic_id: bytes
    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    records: memoryview
    diverging_epoch: tuple[int, int] | None
    current_leader: tuple[int, int] | None


class ReplicaFetchResponse:
    """What the leader answers."""

    API_KEY: ClassVar[int] = _FETCH
    MIN_VERSION: ClassVar[int] = _MIN_VERSION
    MAX_VERSION: ClassVar[int] = _MAX_VERSION
    FLEXIBLE_FROM: ClassVar[int] = 12
    COPIES_FRAME: ClassVar[bool] = False
    """The connection hands over the receive buffer itself, writable: nothing of it may be kept."""

    __slots__ = ("error_code", "partitions", "session_id", "throttle_time_ms")

    def __init__(self, throttle_time_ms: int, error_code: int, session_id: int) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.session_id = session_id
        self.partitions: list[FetchedReplica] = []

    @classmethod
    def decode(cls, view: memoryview, position: int, version: int) -> tuple[ReplicaFetchResponse, int]:
        """(response, position behind it); raises DecodeError."""
        if not _MIN_VERSION <= version <= _MAX_VERSION:
            raise unsupported("FetchResponse", version)
        try:
            response = cls(*_unpack_head(view, position))
            topics, position = read_compact_count(view, position + 10, 18)
            for _ in range(topics):
                topic_id = bytes(view[position : position + 16])
                count, position = read_compact_count(view, position + 16, _PARTITION_SIZE + 6)
                for _ in range(count):
                    fetched, position = _decode_partition(topic_id, view, position)
                    response.partitions.append(fetched)
                position = skip_tags(view, position)
            return response, skip_tags(view, position)
        except DECODE_FAULTS as fault:
            raise DecodeError(f"FetchResponse version {version}: {fault}") from fault


def _decode_partition(topic_id: bytes, view: memoryview, position: int) -> tuple[FetchedReplica, int]:
    index, code, high_watermark, _, log_start_offset = _unpack_partition(view, position)
    aborted, position = read_unsigned_varint(view, position + _PARTITION_SIZE)
    for _ in range(aborted - 1):
        position = skip_tags(view, position + 16)
    size, position = read_unsigned_varint(view, position + 4)
    records = _NOTHING
    if size > 1:
        end = position + size - 1
        if end > len(view):
            raise DecodeError(f"records of {size - 1} bytes with {len(view) - position} bytes left")
        records = view[position:end]
        position = end
    diverging = leader = None
    if view[position]:
        diverging, leader, position = _partition_tags(view, position)
    else:
        position += 1
    fields = (topic_id, index, code, high_watermark, log_start_offset, records, diverging, leader)
    return tuple.__new__(FetchedReplica, fields), position


def _partition_tags(view: memoryview, position: int) -> tuple[tuple[int, int] | None, tuple[int, int] | None, int]:
    diverging: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None
    tags, position = read_unsigned_varint(view, position)
    for _ in range(tags):
        tag, position, end = read_tag(view, position)
        if tag == 0:
            epoch, end_offset = _unpack_epoch_end(view, position)
            diverging = epoch, end_offset
            position = skip_tags(view, position + 12)
        elif tag == 1:
            leader_id, leader_epoch = _unpack_leader(view, position)
            leader = leader_id, leader_epoch
            position = skip_tags(view, position + 8)
        else:
            position = end
        if position != end:
            raise tag_mismatch(tag, position, end)
    return diverging, leader, position
