"""Lines of files as records: one file that grows (Kafka's FileStreamSource), or the files of a folder or of S3.

A source offset is the number of bytes that were read. Only complete lines of files are read. Objects are complete:
their last line may lack its end, and one that is replaced is read again from its beginning.
"""

from __future__ import annotations

import csv
import fnmatch
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, cast

from odradek.connect.connector_settings import ErrorPolicy
from odradek.connect.errors import ConnectError, TargetAway
from odradek.connect.model import SourceRecord
from odradek.connect.object_folder import STORAGE_PREFIX, ObjectAt, ObjectFolder, is_url
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
    Setting("directory", Type.STRING, REQUIRED, "folder to read, or s3://BUCKET/PREFIX; settings of the object store "
            "as storage.NAME", Importance.HIGH, group="Files"),
    Setting("pattern", Type.STRING, "*", "names of files, with * and ?", group="Files"),
    Setting("format", Type.STRING, "lines", "lines: text; json: a document on each line; csv: with a line of names; "
            "quoted fields may have several lines",
            choices=("lines", "json", "csv"), group="Files"),
    _TOPIC,
    _BATCH,
    _LINE,
)  # fmt: skip


class Files(Protocol):
    """Where files are. Methods raise OSError, TargetAway, ConnectError."""

    are_complete: bool
    """Whether files never grow."""

    def check(self) -> None:
        """Raises ConnectError if there can be no files."""
        ...

    def names(self) -> list[str]:
        """The files that there are now, in the order of reading."""
        ...

    def state(self, name: str) -> tuple[int, str]:
        """(bytes, what differs when the file is replaced) of a file that was listed."""
        ...

    def open(self, name: str) -> BinaryIO:
        """A file that was listed."""
        ...


class LocalFiles:
    """One file, or those of a folder. See `Files`."""

    are_complete = False

    def __init__(self, file: str, folder: str, pattern: str) -> None:
        """Either `file`, or `folder` and the `pattern` of names."""
        self._file = file
        self._folder = Path(folder)
        self._pattern = pattern

    def check(self) -> None:
        """See `Files`."""
        if not self._file and not self._folder.is_dir():
            raise ConnectError(f"directory {self._folder}: no such folder")

    def names(self) -> list[str]:
        """See `Files`."""
        if self._file:
            return [self._file] if Path(self._file).exists() else []
        names = sorted(each.name for each in self._folder.iterdir() if each.is_file() and not each.name.startswith("."))
        return [str(self._folder / name) for name in names if fnmatch.fnmatchcase(name, self._pattern)]

    def state(self, name: str) -> tuple[int, str]:
        """See `Files`. A file of another inode may be the same one after an editor has written it."""
        return Path(name).stat().st_size, ""

    def open(self, name: str) -> BinaryIO:
        """See `Files`."""
        return Path(name).open("rb")


class ObjectFiles:
    """Objects of a store. See `Files`."""

    are_complete = True

    def __init__(self, url: str, options: Mapping[str, str], pattern: str) -> None:
        """`pattern` is one of names."""
        self._folder = ObjectFolder(url, options)
        self._pattern = pattern
        self._objects: dict[str, ObjectAt] = {}

    def check(self) -> None:
        """See `Files`. A folder of a store is there when something is in it."""

    def names(self) -> list[str]:
        """See `Files`."""
        found = [each for each in self._folder.objects() if fnmatch.fnmatchcase(each.name, self._pattern)]
        self._objects = {f"{self._folder.url}/{each.name}": each for each in found}
        return sorted(self._objects)

    def state(self, name: str) -> tuple[int, str]:
        """See `Files`."""
        return self._objects[name].size, self._objects[name].etag

    def open(self, name: str) -> BinaryIO:
        """See `Files`."""
        return cast(BinaryIO, self._folder.open(self._objects[name]))


class FilesSource:
    """One task's files. See `Source`."""

    def __init__(self, values: Mapping[str, Any], connector: str) -> None:
        """`values` are those of a checked configuration, of one file or of a folder."""
        folder, pattern = values.get("directory", ""), values.get("pattern", "")
        self._files: Files = (
            ObjectFiles(folder, values[STORAGE_PREFIX], pattern)
            if is_url(folder)
            else LocalFiles(values.get("file", ""), folder, pattern)
        )
        self._format: str = values.get("format", "lines")
        self._topic: str = values["topic"]
        self._limit: int = values["batch.size"]
        self._longest: int = values["max.line.bytes"]
        self._policy = ErrorPolicy.of(values)
        if self._format == "csv":
            # the limit of all readers in the process
            csv.field_size_limit(max(csv.field_size_limit(), self._longest))
        self._thread = WorkerThread(f"connect-{connector}")
        self._offsets = StoredOffsets()
        self._columns: dict[str, list[str]] = {}
        self._unread: list[str] = []

    async def open(self, offsets: StoredOffsets) -> None:
        """See `Source`."""
        await self._thread.run(self._files.check)
        self._offsets = offsets
        self._unread = []

    async def poll(self) -> Sequence[SourceRecord]:
        """See `Source`."""
        return await self._thread.run(self._poll)

    async def close(self) -> None:
        """See `Source`."""
        await self._thread.close()

    # --- in the thread ---

    def _poll(self) -> list[SourceRecord]:
        """The next lines of the files that were listed last, or of a new list of them."""
        try:
            listed = False
            while self._unread or not listed:
                if not self._unread:
                    self._unread = self._files.names()
                    listed = True
                while self._unread:
                    found = self._read(self._unread[0])
                    if found:
                        self._offsets.set(found[-1].source_partition, found[-1].source_offset)
                        return found
                    del self._unread[0]
        except OSError as error:
            raise TargetAway(f"{error.filename}: {error.strerror or error}") from error
        return []

    def _read(self, name: str) -> list[SourceRecord]:
        partition = {"filename": name}
        stored = self._offsets.of(partition)
        position = int(stored["position"]) if stored else 0
        size, mark = self._files.state(name)
        if size < position or (stored and stored.get("etag", mark) != mark):
            logger.warning("%s was replaced: reading it from its beginning", name)
            self._columns.pop(name, None)
            position = 0
        if size == position:
            return []
        with self._files.open(name) as file:
            if self._format == "csv" and name not in self._columns and not self._read_columns(name, file):
                return []
            file.seek(position)
            found = []
            offset: Mapping[str, Any] = {}
            for line, end in self._rows(name, file, position):
                value = self._value(name, line, is_header=self._format == "csv" and end - len(line) == 0)
                offset = {"position": end, "etag": mark} if mark else {"position": end}
                if value is not None:
                    found.append(SourceRecord(partition, offset, self._topic, None, value))
                if len(found) == self._limit:
                    break
            if offset and not found:
                # lines without a record are not read again with each poll
                self._offsets.set(partition, offset)
            return found

    def _rows(self, name: str, file: BinaryIO, position: int) -> Iterator[tuple[bytes, int]]:
        """(lines of one record, position behind them): in CSV, a quoted field may have ends of lines in it."""
        row = b""
        for line, end in self._lines(name, file, position):
            if self._format == "csv":
                # in an open quote, a pair of quotes is one of the text
                is_open = line.count(b'"') % 2 == 0 if row else _has_open_quote(line)
                row += line
                if len(row) > self._longest:
                    raise ConnectError(f"{name}: a row that ends at byte {end} is longer than max.line.bytes")
                if is_open:
                    continue
                line, row = row, b""
            yield line, end
        if row and self._files.are_complete:
            yield row, end

    def _lines(self, name: str, file: BinaryIO, position: int) -> Iterator[tuple[bytes, int]]:
        """(line with its end, position behind it) of complete lines."""
        while True:
            line = file.readline(self._longest + 1)
            if len(line) > self._longest:
                raise ConnectError(f"{name}: a line at byte {position} is longer than max.line.bytes")
            if not line.endswith(b"\n") and not (line and self._files.are_complete):
                return
            position += len(line)
            yield line, position

    def _read_columns(self, name: str, file: BinaryIO) -> bool:
        """Keep the names in the first line; False while it is incomplete."""
        for line, _ in self._rows(name, file, 0):
            self._columns[name] = next(csv.reader([line.decode(errors="replace").rstrip("\r\n")]))
            return True
        return False

    def _value(self, name: str, line: bytes, *, is_header: bool) -> Any:
        """The value of a line; None for one without a record, or with one that is skipped."""
        text = line.decode(errors="replace").rstrip("\r\n")
        if self._format == "lines":
            return text
        if not text or is_header:
            return None
        if self._format == "csv":
            return dict(zip(self._columns[name], next(csv.reader([text])), strict=False))
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            reason = f"{name}: not JSON: {text[:80]}: {error}"
            if not self._policy.tolerates_records:
                raise ConnectError(reason) from error
            if self._policy.logs_records:
                logger.warning("a line is skipped: %s", reason)
            return None


def _has_open_quote(line: bytes) -> bool:
    """Whether the last field of a row of CSV continues in the next line."""
    if b'"' not in line:
        return False
    try:
        next(csv.reader([line.decode(errors="replace")], strict=True))
    except csv.Error as error:
        return str(error) == "unexpected end of data"
    return False
