"""Folders of Apache Kafka made by the test: the metadata log of KRaft, and partitions in Kafka's own file formats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from odradek.kraft.metadata_records import encode_metadata_record
from odradek.log.directories.checkpoint_formats import format_offsets, format_partition_metadata
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.control import encode_end_transaction
from odradek.wire.messages.cluster_metadata import ConfigRecord, PartitionRecord, TopicRecord

CLUSTER = "kq73J_p_Rxe0EMR9ZNQLEQ"
DIRECTORY_ID = "AAECAwQFBgcICQoLDA0ODw"
BEGIN, END, ABORT = 23, 24, 25


class Raw:
    """A metadata record of a type that is given by its number, with its encoded fields."""

    def __init__(self, kind: int, body: bytes = b"\x00") -> None:
        self.RECORD_TYPE = kind
        self.body = body

    def encode(self, out: bytearray, _version: int) -> None:
        out += self.body


def metadata_log(records: Iterable[Any], first_offset: int = 0) -> bytes:
    """One batch for each record (a message, or one with its version), between control batches as KRaft has them."""
    data = bytearray()
    for offset, record in enumerate(records, first_offset):
        message, version = record if isinstance(record, tuple) else (record, 0)
        if message is None:
            data += encode_end_transaction(
                commit=True, producer_id=-1, producer_epoch=-1, coordinator_epoch=0, timestamp_ms=0, base_offset=offset
            )
        else:
            data += encode_batch([(0, None, encode_metadata_record(message, version), ())], BatchFields(offset, 1))
    return bytes(data)


def topic_records(
    name: str, topic_id: bytes, partitions: Sequence[Sequence[int]], configs: Mapping[str, str] | None = None
) -> list[Any]:
    """A topic whose partitions have these replicas, the first one leading in epoch 3, all in sync."""
    records: list[Any] = [TopicRecord(name, topic_id)]
    records += [ConfigRecord(2, name, key, value) for key, value in (configs or {}).items()]
    for number, replicas in enumerate(partitions):
        state = PartitionRecord(
            number, topic_id, list(replicas), list(replicas), leader=replicas[0], leader_epoch=3, partition_epoch=4
        )
        records.append(state)
    return records


def write_metadata(folder: Path, records: Iterable[Any]) -> None:
    """`__cluster_metadata-0` with one segment."""
    place = folder / "__cluster_metadata-0"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{0:020d}.log").write_bytes(metadata_log(records))
    (place / "quorum-state").write_text("{}")


def write_identity(folder: Path, node: int = 1, *, clean: bool = True, kraft: bool = True) -> None:
    """`meta.properties` of either kind, and the mark of a clean stop."""
    folder.mkdir(parents=True, exist_ok=True)
    if kraft:
        text = f"#\nnode.id={node}\ndirectory.id={DIRECTORY_ID}\nversion=1\ncluster.id={CLUSTER}\n"
    else:
        text = f"#\nversion=0\nbroker.id={node}\ncluster.id={CLUSTER}\n"
    (folder / "meta.properties").write_text(text)
    if clean:
        (folder / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":12}')


def write_partition(
    folder: Path, name: str, topic_id: bytes | None, segments: Mapping[int, int], producer_id: int = -1
) -> None:
    """A partition whose segments, by base offset, hold so many records each."""
    place = folder / name
    place.mkdir(parents=True)
    for base, count in segments.items():
        fields = BatchFields(base, 3, producer_id, 0, base) if producer_id >= 0 else BatchFields(base, 3)
        records = [(1_700_000_000_000 + base + i, b"k", b"value %d" % (base + i), ()) for i in range(count)]
        (place / f"{base:020d}.log").write_bytes(bytes(encode_batch(records, fields)) if count else b"")
        (place / f"{base:020d}.index").write_bytes(b"")
        (place / f"{base:020d}.timeindex").write_bytes(b"")
    (place / "leader-epoch-checkpoint").write_text("0\n1\n3 0\n")
    if topic_id is not None:
        (place / "partition.metadata").write_bytes(format_partition_metadata(topic_id))


def write_checkpoints(folder: Path, ends: Mapping[tuple[str, int], int]) -> None:
    """Recovery points and high watermarks at these offsets."""
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (folder / name).write_bytes(format_offsets(ends))
    for name in ("log-start-offset-checkpoint", "cleaner-offset-checkpoint"):
        (folder / name).write_bytes(format_offsets({}))
