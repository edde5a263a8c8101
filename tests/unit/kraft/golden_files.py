"""The golden files: a metadata log and a checkpoint with every record, and what Apache Kafka 4.3.0 says of them.

`golden/*.log` and `golden/*.checkpoint` were written by `write` below; `golden/*.txt` is the output of
`kafka-dump-log --cluster-metadata-decoder --files FILE` without its first line, which names the path.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from odradek.kraft.checkpoints import CheckpointId, encode_checkpoint
from odradek.kraft.control_records import encode_control_batch
from odradek.kraft.metadata_log import encode_metadata_batch
from odradek.kraft.metadata_records import RECORDS, VersionedRecord
from odradek.wire.messages import control_records as control
from tests.unit.wire.samples import case, plausible

GOLDEN = Path(__file__).with_name("golden")
LOG = GOLDEN / "00000000000000000000.log"
CHECKPOINT = GOLDEN / "00000000000000000042-0000000003.checkpoint"
TIMESTAMP_MS = 1_700_000_000_000
VOTERS = control.VotersRecord(
    0,
    [
        control.VotersRecordVoter(
            node,
            bytes([node]) * 16,
            [control.VotersRecordEndpoint("CONTROLLER", f"host{node}", 9093)],
            control.VotersRecordKRaftVersionFeature(0, 1),
        )
        for node in (1, 2)
    ],
)
CONTROLS = [
    control.LeaderChangeMessage(0, 1, [control.LeaderChangeMessageVoter(1)], [control.LeaderChangeMessageVoter(1)]),
    control.KRaftVersionRecord(0, 1),
    VOTERS,
]


def every_record() -> list[VersionedRecord]:
    """A record of each type in each version with all its fields, and one with its defaults."""
    found = []
    for kind in RECORDS.values():
        each = case(kind.__name__)
        for version in each.versions:
            found.append(VersionedRecord(plausible(each, version, Random(f"{each.name} {version}")), version))
            found.append(VersionedRecord(kind(), version))
    return found


def write(directory: Path) -> None:
    """Write both files."""
    out = bytearray()
    offset = 0
    for message in CONTROLS:
        out += encode_control_batch([message], base_offset=offset, leader_epoch=1, timestamp_ms=TIMESTAMP_MS)
        offset += 1
    records = every_record()
    for some in (records[:5], records[5:]):
        out += encode_metadata_batch(some, base_offset=offset, leader_epoch=2, timestamp_ms=TIMESTAMP_MS + offset)
        offset += len(some)
    (directory / LOG.name).write_bytes(out)
    found = CheckpointId(42, 3)
    (directory / CHECKPOINT.name).write_bytes(
        encode_checkpoint(
            found,
            records[:7],
            controls=CONTROLS[1:],
            timestamp_ms=TIMESTAMP_MS,
            last_timestamp_ms=TIMESTAMP_MS - 5,
        )
    )
    assert found.file_name == CHECKPOINT.name
