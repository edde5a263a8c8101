"""Lines of files as records: one file that grows (Kafka's FileStreamSource), or the files of a folder.

A source offset is the number of bytes that were read. Only complete lines are read.
"""

from __future__ import annotations

import csv
import fnmatch
import io
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from odradek.connect.errors import ConnectError, TargetAway
from odradek.connect.model import SourceRecord
from odradek.connect.settings import REQUIRED, Importance, Setting, Type
from odradek.connect.sources.source import StoredOffsets
from odradek.connect.worker_thread import WorkerThread

logger = logging.getLogger(__name__)

_TOPIC: Final = Setting("topic", Type.STRING, REQUIRED, "topic to write to", Importance.HIGH)
_BATCH: Final = Setting("batch.size", Type.INT, 2_000, "most lines of one transaction", minimum=1, group="Files")
_LINE: Final = Setting("max.line.bytes", Type.INT, 1_000_000, "longest line", minimum=1, group="Files")
FILE_STREAM_SETTINGS: Final = (
    Setting("file", Type.STRING, REQUIRED, "file to read", Importance.HIGH, group="Files"),
    _TOPIC,
    _BATCH,
    _LINE,
)
DIRECTORY_SETTINGS: Final = (
    Setting("directory", Type.STRING, REQUIRED, "folder to read", Importance.HIGH, group="Files"),
    Setting("pattern", Type.STRING, "*", "names of files, with * and ?", group="Files"),
    Setting("format", Type.STRING, "lines", "lines: text; json: a document on each line; csv: with a line of names",
            choices=("lines", "json", "csv"), group="Files"),
    _TOPIC,
    _BATCH,
    _LINE,
)  # fmt: skip


class FilesSource:
    """One task's files. See `Source`."""

    def __init__(self, values: Mapping[str, Any], connector: str) -> None:
        """`values` are those of a checked configuration, of one file or of a folder."""
        self._file = values.get("file", "")
        self._folder = values.get("directory", "")
        self._pattern: str = values.get("pattern", "")
        self._format: str = values.get("format", "lines")
        self._topic: str = values["topic"]
        self._limit: int = values["batch.size"]
        self._longest: int = values["max.line.bytes"]
        self._thread = WorkerThread(f"connect-{connector}")
        self._offsets = StoredOffsets()
        self._columns: dict[str, list[str]] = {}

    async def open(self, offsets: StoredOffsets) -> None:
        """See `Source`."""
        if self._folder and not await self._thread.run(Path(self._folder).is_dir):
            raise ConnectError(f"directory {self._folder}: no such folder")
        self._offsets = offsets

    async def poll(self) -> Sequence[SourceRecord]:
        """See `Source`."""
        return await self._thread.run(self._poll)

    async def close(self) -> None:
        """See `Source`."""
        await self._thread.close()

    # --- in the thread ---

    def _poll(self) -> list[SourceRecord]:
        try:
            for path in self._paths():
                found = self._read(path)
                if found:
                    self._offsets.set(found[-1].source_partition, found[-1].source_offset)
                    return found
        except OSError as error:
            raise TargetAway(f"{error.filename}: {error.strerror or error}") from error
        return []

    def _paths(self) -> list[Path]:
        if self._file:
            path = Path(self._file)
            return [path] if path.exists() else []
        folder = Path(self._folder)
        names = sorted(each.name for each in folder.iterdir() if each.is_file() and not each.name.startswith("."))
        return [folder / name for name in names if fnmatch.fnmatchcase(name, self._pattern)]

    def _read(self, path: Path) -> list[SourceRecord]:
        partition = {"filename": str(path)}
        stored = self._offsets.of(partition)
        position = int(stored["position"]) if stored else 0
        size = path.stat().st_size
        if size < position:
            logger.warning("%s is shorter than what was read of it: reading it from its beginning", path)
            self._columns.pop(str(path), None)
            position = 0
        if size == position:
            return []
        with path.open("rb") as file:
            if self._format == "csv" and str(path) not in self._columns and not self._read_columns(path, file):
                return []
            file.seek(position)
            found = []
            for line, end in self._lines(path, file, position):
                value = self._value(path, line, is_header=self._format == "csv" and end - len(line) == 0)
                if value is not None:
                    found.append(SourceRecord(partition, {"position": end}, self._topic, None, value))
                if len(found) == self._limit:
                    break
            return found

    def _lines(self, path: Path, file: BinaryIO, position: int) -> Iterator[tuple[bytes, int]]:
        """(line with its end, position behind it) of complete lines."""
        while True:
            line = file.readline(self._longest + 1)
            if len(line) > self._longest:
                raise ConnectError(f"{path}: a line at byte {position} is longer than max.line.bytes")
            if not line.endswith(b"\n"):
                return
            position += len(line)
            yield line, position

    def _read_columns(self, path: Path, file: BinaryIO) -> bool:
        """Keep the names in the first line; False while it is incomplete."""
        for line, _ in self._lines(path, file, 0):
            self._columns[str(path)] = next(csv.reader(io.StringIO(line.decode(errors="replace"))))
            return True
        return False

    def _value(self, path: Path, line: bytes, *, is_header: bool) -> Any:
        """The value of a line; None for one without a record."""
        text = line.decode(errors="replace").rstrip("\r\n")
        if self._format == "lines":
            return text
        if not text or is_header:
            return None
        if self._format == "csv":
            return dict(zip(self._columns[str(path)], next(csv.reader([text])), strict=False))
        try:
            return json.loads(text)
        except ValueError as error:
            raise ConnectError(f"{path}: not JSON: {text[:80]}: {error}") from error
