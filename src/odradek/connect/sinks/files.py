"""Records as files in a folder, exactly once: a file's name has the offsets that it covers.

Each write makes one file for each partition, `TOPIC+PARTITION+FIRST-LAST.jsonl`, under a temporary name first, so that
readers see complete files only. The name has the topic that was read, whatever transforms make of it. A task that
starts finds its positions in the names. A file gets its name under a lock of the folder, and only where no other has
one of its offsets: a task that was replaced without its knowledge writes nothing twice.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import fcntl
import io
import json
import logging
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import quote, unquote

from odradek.connect.errors import ConnectError, PositionMoved, RecordRejected, TargetAway
from odradek.connect.model import Batch, SinkRecord
from odradek.connect.settings import REQUIRED, Importance, Setting, Type
from odradek.connect.worker_thread import WorkerThread
from odradek.records.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

SETTINGS: Final = (
    Setting("directory", Type.STRING, REQUIRED, "existing folder for the files, or s3://BUCKET/PREFIX; settings of "
            "the object store as storage.NAME", Importance.HIGH, group="Files"),
    Setting("format", Type.STRING, "json", "json: a line for each record; csv: the value's fields; parquet",
            choices=("json", "csv", "parquet"), group="Files"),
    Setting("flush.size", Type.INT, 10_000, "most records of a write", minimum=1, group="Files"),
    Setting("rotate.interval.ms", Type.LONG, 10_000, "longest time before gathered records are written", minimum=0,
            group="Files"),
)  # fmt: skip

SUFFIXES: Final = {"json": ".jsonl", "csv": ".csv", "parquet": ".parquet"}
"""Ends of names, by the setting `format`."""
_NAME: Final = re.compile(r"(?P<topic>[^+]+)\+(?P<partition>\d+)\+(?P<first>\d+)-(?P<last>\d+)\.(?:jsonl|csv|parquet)")

_UNFINISHED_S: Final = 3_600.0
"""How long after its last change a file with a temporary name belongs to no task."""


def file_name(partition: TopicPartition, first: int, last: int, suffix: str) -> str:
    """The name of a file with the offsets from first to last."""
    return f"{quote(partition.topic, safe='')}+{partition.partition}+{first:020d}-{last:020d}{suffix}"


def topic_id_name(partition: TopicPartition) -> str:
    """The name of the file with the id of the topic that the files of a partition belong to; readers ignore it."""
    return f".{quote(partition.topic, safe='')}+{partition.partition}.topic-id"


def positions_in(names: Collection[str]) -> dict[TopicPartition, int]:
    """Offsets of the next records, by the names of files."""
    found: dict[TopicPartition, int] = {}
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None:
            key = TopicPartition(unquote(match["topic"]), int(match["partition"]))
            found[key] = max(found.get(key, 0), int(match["last"]) + 1)
    return found


def plain(record: SinkRecord) -> dict[str, Any]:
    """A record as a JSON object."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _plain(record.key),
        "value": _plain(record.value),
        "headers": [[name, None if value is None else _text(value)] for name, value in record.headers],
    }


def _plain(value: Any) -> Any:
    return _text(value) if isinstance(value, bytes) else value


def _text(data: bytes) -> str:
    """Bytes as text, or in base64 where they are none."""
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


def _json(records: Sequence[SinkRecord]) -> bytes:
    return b"".join(
        json.dumps(plain(each), separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode() + b"\n"
        for each in records
    )


def _csv(records: Sequence[SinkRecord]) -> bytes:
    names: dict[str, None] = {}
    for record in records:
        if not isinstance(record.value, dict):
            raise ValueError(f"csv: a JSON object expected, got {type(record.value).__name__}")  # noqa: TRY004 - data
        names.update(dict.fromkeys(record.value))
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(names), restval="")
    writer.writeheader()
    for record in records:
        writer.writerow(
            {name: json.dumps(each) if isinstance(each, dict | list) else each for name, each in record.value.items()}
        )
    return out.getvalue().encode()


def _parquet(records: Sequence[SinkRecord]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [plain(each) for each in records]
    for row in rows:
        row["headers"] = json.dumps(row["headers"])
        if not isinstance(row["key"], str | None):
            row["key"] = json.dumps(row["key"])
    try:
        table = pa.Table.from_pylist(rows)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise ValueError(f"parquet: the records of one file have different types: {error}") from error
    out = io.BytesIO()
    try:
        pq.write_table(table, out, compression="zstd")
    except pa.ArrowNotImplementedError as error:
        raise ValueError(f"parquet: {error}") from error
    return out.getvalue()


Encoder = Callable[[Sequence[SinkRecord]], bytes]
"""Makes the content of a file. Raises ValueError where one of the records does not fit those before it."""
ENCODERS: Final[Mapping[str, Encoder]] = {"json": _json, "csv": _csv, "parquet": _parquet}
"""By the setting `format`."""


def by_origin(records: Sequence[SinkRecord]) -> dict[TopicPartition, list[tuple[int, SinkRecord]]]:
    """Records with their places in a batch, by the partition that has them."""
    found: dict[TopicPartition, list[tuple[int, SinkRecord]]] = defaultdict(list)
    for index, record in enumerate(records):
        found[record.origin].append((index, record))
    return found


def encoded(encode: Encoder, records: Sequence[tuple[int, SinkRecord]]) -> bytes:
    """The content of a file of these records.

    Raises RecordRejected with the place in the batch of the first one that does not fit those before it.
    """
    made = [record for _, record in records]
    try:
        return encode(made)
    except ValueError as error:
        failure = error
    fit, unfit = 0, len(made)
    while unfit - fit > 1:
        middle = (fit + unfit) // 2
        try:
            encode(made[:middle])
            fit = middle
        except ValueError as error:
            unfit, failure = middle, error
    raise RecordRejected(records[fit][0], str(failure)) from failure


def created_again(partition: TopicPartition, first: int, position: int, where: object) -> ConnectError:
    """The failure of a task that reads a record before the position at which it continued."""
    return ConnectError(
        f"{partition} begins again at offset {first}, before the position {position} in {where}: the topic was "
        "created again; remove what was written of the former one, or use another place"
    )


class FilesSink:
    """One task's files. See `Sink`."""

    def __init__(self, values: Mapping[str, Any], connector: str) -> None:
        """`values` are those of a checked configuration. The connector needs the folder for itself."""
        self._folder = Path(values["directory"])
        self._encode = ENCODERS[values["format"]]
        self._suffix = SUFFIXES[values["format"]]
        self._thread = WorkerThread(f"connect-{connector}")
        self._held: dict[TopicPartition, int] = {}
        self._topics: dict[str, str] = {}
        self.batch_records: int = values["flush.size"]
        """Records of one write."""
        self.batch_wait_s: float = values["rotate.interval.ms"] / 1000
        """How long records are gathered."""

    async def open(self) -> None:
        """See `Sink`."""
        if not await self._thread.run(self._folder.is_dir):
            raise ConnectError(f"directory {self._folder}: no such folder")
        await self._thread.run(self._remove_unfinished)

    async def positions(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See `Sink`."""
        found = await self._thread.run(self._read_positions, partitions)
        self._held.update({each: found.get(each, 0) for each in partitions})
        return {each: found[each] for each in partitions if each in found}

    async def write(self, batch: Batch) -> None:
        """See `Sink`."""
        for partition, records in by_origin(batch.records).items():
            await self._thread.run(self._write, partition, records)

    def note_topics(self, topic_ids: Mapping[str, bytes]) -> None:
        """See `TopicBoundSink`."""
        self._topics.update({topic: topic_id.hex() for topic, topic_id in topic_ids.items()})

    async def close(self) -> None:
        """See `Sink`."""
        await self._thread.close()

    # --- in the thread ---

    def _remove_unfinished(self) -> None:
        """Remove files that killed tasks left unfinished; others may be at work on young ones."""
        for each in self._folder.glob(".*+*.part"):
            with contextlib.suppress(OSError):
                if time.time() - each.stat().st_mtime > _UNFINISHED_S:
                    each.unlink()

    def _read_positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            found = positions_in(os.listdir(self._folder))
            topic_ids = {each: self._read_topic_id(each) for each in partitions if each in found}
        except OSError as error:
            raise TargetAway(f"{self._folder}: {error.strerror or error}") from error
        for each, topic_id in topic_ids.items():
            if topic_id and self._topics.get(each.topic, topic_id) != topic_id:
                raise created_again(each, 0, found[each], self._folder)
        return found

    def _read_topic_id(self, partition: TopicPartition) -> str:
        """The id of the topic that the files of a partition belong to; empty where it is not known."""
        try:
            return (self._folder / topic_id_name(partition)).read_text().strip()
        except FileNotFoundError:
            return ""

    def _keep_topic_id(self, partition: TopicPartition) -> None:
        topic_id = self._topics.get(partition.topic, "")
        if topic_id and topic_id != self._read_topic_id(partition):
            path = self._folder / topic_id_name(partition)
            part = path.with_name(f"{path.name}.part")
            with part.open("w") as file:
                file.write(f"{topic_id}\n")
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)

    def _write(self, partition: TopicPartition, records: list[tuple[int, SinkRecord]]) -> None:
        data = encoded(self._encode, records)
        first, last = records[0][1].offset, records[-1][1].offset
        path = self._folder / file_name(partition, first, last, self._suffix)
        part = path.with_name(f".{path.name}.{os.getpid()}.{id(self)}.part")
        try:
            with part.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self._publish(part, path, partition, first)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise TargetAway(f"{path}: {error.strerror or error}") from error

    def _publish(self, part: Path, path: Path, partition: TopicPartition, first: int) -> None:
        """Give a complete file its name.

        Raises PositionMoved if another task has written its first record, ConnectError for another topic's records.
        """
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            position = positions_in(os.listdir(self._folder)).get(partition, first)
            if position > first:
                part.unlink()
                if position == self._held.get(partition):
                    raise created_again(partition, first, position, self._folder)
                raise PositionMoved(f"{partition}: another task has written to {self._folder} since")
            self._keep_topic_id(partition)
            part.replace(path)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


FILE_STREAM_SETTINGS: Final = (
    Setting("file", Type.STRING, REQUIRED, "file to append to", Importance.HIGH, group="Files"),
)


class FileStreamSink:
    """Values as lines at the end of one file, as Kafka's example does: at least once. See `Sink`."""

    def __init__(self, values: Mapping[str, Any], connector: str) -> None:
        """`values` are those of a checked configuration."""
        self._path = Path(values["file"])
        self._thread = WorkerThread(f"connect-{connector}")
        self.batch_records = 1_000
        """Records of one write."""
        self.batch_wait_s = 0.0
        """Lines are written as they come."""

    async def open(self) -> None:
        """See `Sink`."""
        if not await self._thread.run(self._path.parent.is_dir):
            raise ConnectError(f"file {self._path}: its folder does not exist")

    async def positions(self, _partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """None: the group keeps them."""
        return {}

    async def write(self, batch: Batch) -> None:
        """See `Sink`."""
        lines = []
        for index, record in enumerate(batch.records):
            value = _plain(record.value)
            try:
                line = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)
                lines.append(f"{line}\n".encode())
            except ValueError as error:
                raise RecordRejected(index, str(error)) from error
        await self._thread.run(self._append, b"".join(lines))

    async def close(self) -> None:
        """See `Sink`."""
        await self._thread.close()

    def _append(self, data: bytes) -> None:
        try:
            with self._path.open("a+b") as file:
                if file.tell() and not self._ends_with_line(file):
                    # A write that was cut off left part of a line, which the next one is not to continue.
                    data = b"\n" + data
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise TargetAway(f"{self._path}: {error.strerror or error}") from error

    @staticmethod
    def _ends_with_line(file: BinaryIO) -> bool:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
