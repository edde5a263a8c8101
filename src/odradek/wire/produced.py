"""Produce by hand, as a producer needs it: requests of encoded batches, and what became of each.

The generated codec (`messages/produce.py`) says the same thing; tests hold the two equal in every version. A request
with one batch takes a step, and so does the answer that it is written: a record that is sent alone waits for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from odradek.wire.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
)
from odradek.wire.primitives import ENCODE_FAULTS, EncodeError, write_compact_nullable_string, write_unsigned_varint
from odradek.wire.produce import FLEXIBLE_FROM, TOPIC_ID_FROM, ProducedPartition, TopicKey

_pack_one = Struct(">hiB16sBi").pack

_unpack_one = Struct(">B16sBihqqqBBBBiB").unpack_from
_ONE_BYTES: Final = 57
_ONE: Final = 2
"""How compact arrays say that they have one element."""

Produced = tuple[TopicKey, ProducedPartition]
"""The topic's id (where the version has no ids: its name) and what became of the batch for one of its partitions."""


class TopicBatches(NamedTuple):
    """Encoded batches by partition of a topic; older versions carry its name, newer ones its id (16 bytes)."""

    name: str
    topic_id: bytes
    batches: list[tuple[int, bytes | bytearray]]


class BatchesRequest:
    """A Produce request."""

    API_KEY: ClassVar[int] = ProduceRequest.API_KEY
    FLEXIBLE_FROM: ClassVar[int] = FLEXIBLE_FROM

    __slots__ = ("acks", "timeout_ms", "topics", "transactional_id")

    def __init__(
        self, transactional_id: str | None, acks: int, timeout_ms: int, topics: Sequence[TopicBatches]
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics

    def encode(self, out: bytearray, version: int) -> None:
        """Append to `out`; raises EncodeError, after which `out` holds a part of the message."""
        if version != TOPIC_ID_FROM or len(self.topics) != 1 or len(self.topics[0].batches) != 1:
            self._generated().encode(out, version)
            return
        ((_, topic_id, ((index, batch),)),) = self.topics
        try:
            write_compact_nullable_string(out, self.transactional_id)
            out += _pack_one(self.acks, self.timeout_ms, _ONE, topic_id, _ONE, index)
            write_unsigned_varint(out, len(batch) + 1)
            out += batch
            out += b"\0\0\0"
        except ENCODE_FAULTS as fault:
            raise EncodeError(f"ProduceRequest version {version}: {fault}") from fault

    def _generated(self) -> ProduceRequest:
        return ProduceRequest(
            self.transactional_id,
            self.acks,
            self.timeout_ms,
            [
                ProduceRequestTopic(name, topic_id, [ProduceRequestPartition(*each) for each in batches])
                for name, topic_id, batches in self.topics
            ],
        )


class ProduceAnswer:
    """An answer to Produce."""

    API_KEY: ClassVar[int] = ProduceResponse.API_KEY

    __slots__ = ("partitions", "throttle_time_ms")

    def __init__(self, partitions: Sequence[Produced], throttle_time_ms: int) -> None:
        self.partitions = partitions
        self.throttle_time_ms = throttle_time_ms

    @classmethod
    def decode(cls, view: memoryview, position: int, version: int) -> tuple[ProduceAnswer, int]:
        """(answer, position behind it); raises DecodeError."""
        if version == TOPIC_ID_FROM and len(view) - position == _ONE_BYTES:
            topics, topic_id, count, index, code, offset, appended, start, errors, text, row, topic, throttle, tags = (
                _unpack_one(view, position)
            )
            if topics == count == _ONE and errors == 1 and not (text or row or topic or tags):
                produced = ProducedPartition(index, code, offset, appended, start)
                return cls(((topic_id, produced),), throttle), position + _ONE_BYTES
        response, position = ProduceResponse.decode(view, position, version)
        partitions = [
            (topic.topic_id if version >= TOPIC_ID_FROM else topic.name, _produced(each))
            for topic in response.responses
            for each in topic.partition_responses
        ]
        return cls(partitions, response.throttle_time_ms), position


def _produced(row: ProduceResponsePartition) -> ProducedPartition:
    leader = row.current_leader
    return ProducedPartition(
        row.index,
        row.error_code,
        row.base_offset,
        row.log_append_time_ms,
        row.log_start_offset,
        [(each.batch_index, each.batch_index_error_message) for each in row.record_errors],
        row.error_message,
        (leader.leader_id, leader.leader_epoch),
    )
