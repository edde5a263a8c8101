"""PartitionRecords of the usual shape, read from their bytes in one step: most records of a large log are that.

Usual is a partition that is not being moved, whose replicas all have a directory, without eligible leader replicas.
The generic decoder takes several times as long, which a log of a million partitions shows.
Source: Kafka's `PartitionRecord.json`, versions 1 and 2.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from odradek.kraft.metadata_records import FRAME_VERSION
from odradek.metadata.image import PartitionState
from odradek.metadata.kraft.partition_records import Shared
from odradek.wire.messages.cluster_metadata import PartitionRecord

_TYPE: Final = PartitionRecord.RECORD_TYPE
_REPLICAS_AT: Final = 23
"""After the frame, the partition's index and the topic's id."""
_LEAST_BYTES: Final = 41
"""Of a record without replicas; each replica adds its id and its directory, each member of the ISR its id."""
_SHORT_COUNT: Final = 0x7F
"""The largest compact count of one byte; a count is one more than the number of elements."""

_structs: Final[dict[tuple[int, int], Struct]] = {}


class UsualPartition(NamedTuple):
    """A partition and the state that its record sets."""

    topic_id: bytes
    partition: int
    state: PartitionState


def read_usual_partition(value: memoryview, shared: Shared) -> UsualPartition | None:
    """The state in a value of the metadata log; None for any other record, which may be broken."""
    size = len(value)
    if size < _LEAST_BYTES or value[0] != FRAME_VERSION or value[1] != _TYPE or value[2] not in (1, 2):
        return None
    replicas_count = value[_REPLICAS_AT]
    isr_at = _REPLICAS_AT - 3 + 4 * replicas_count
    if not 0 < replicas_count <= _SHORT_COUNT or isr_at >= size:
        return None
    isr_count = value[isr_at]
    if not 0 < isr_count <= _SHORT_COUNT or size != _LEAST_BYTES + 20 * (replicas_count - 1) + 4 * (isr_count - 1):
        return None
    fields = _struct(replicas_count - 1, isr_count - 1).unpack_from(value, 3)
    after = 2 + replicas_count
    after_isr = after + isr_count
    removing, adding, leader, leader_epoch, partition_epoch, directories_count = fields[after_isr : after_isr + 6]
    if removing != 1 or adding != 1 or directories_count != replicas_count or fields[-1]:
        return None
    replicas, isr = fields[3:after], fields[after + 1 : after_isr]
    directories = fields[after_isr + 6 : -1]
    state = PartitionState(
        leader,
        leader_epoch,
        shared.setdefault(replicas, replicas),
        shared.setdefault(isr, isr),
        partition_epoch,
        directories=shared.setdefault(directories, directories),
    )
    return UsualPartition(fields[1], fields[0], state)


def _struct(replicas: int, isr: int) -> Struct:
    found = _structs.get((replicas, isr))
    if found is None:
        found = Struct(f">i16sB{replicas}iB{isr}iBB3iB{'16s' * replicas}B")
        _structs[replicas, isr] = found
    return found
