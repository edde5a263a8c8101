"""What the log's tests share: a clock that stands still, batches, and an environment on a real directory."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from odradek.log.append import AppendResult, Origin
from odradek.log.config import LogConfig
from odradek.log.environment import LogEnvironment, StandaloneOwner
from odradek.log.partition_log import PartitionLog
from odradek.log.writing.flush_plan import RolledLog
from odradek.ports.disk import Bytes, SystemDisk, SystemFile
from odradek.records.batch import parse_header as parse_header
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.control import encode_end_transaction

NOW = 1_700_000_000_000


class StandingClock:
    """A clock that moves only on request."""

    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000


class ForgetfulDisk(SystemDisk):
    """Other names of directories that are not synced can be undone, as a loss of power may do."""

    def __init__(self) -> None:
        super().__init__()
        self._renamed: list[tuple[str, str]] = []
        self.synced: list[str] = []

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if self.is_directory(target):
            self._renamed.append((source, target))

    def remove_tree(self, path: str) -> None:
        """Not done yet, so that the names can be undone."""

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self.synced.append(path)
        self._renamed = [each for each in self._renamed if each[0].rpartition("/")[0] != path]

    def lose_power(self) -> None:
        while self._renamed:
            source, target = self._renamed.pop()
            super().rename(target, source)


class LackingDisk(SystemDisk):
    """Has only this number of descriptors left, if set; each call that takes one keeps it. With EIO the disk fails."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.errno = errno.EMFILE

    def _take(self, path: str) -> None:
        if self.left is None:
            return
        if not self.left:
            raise OSError(self.errno, "failed", path)
        self.left -= 1

    def rename(self, source: str, target: str) -> None:
        if self.errno == errno.EIO:
            self._take(source)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        if self.errno == errno.EIO:
            self._take(path)
        super().remove(path)

    def open(self, path: str, *, create: bool = False) -> SystemFile:
        self._take(path)
        return super().open(path, create=create)

    def read_file(self, path: str, most: int | None = None) -> bytes:
        self._take(path)
        return super().read_file(path, most)

    def write_atomic(self, path: str, data: Bytes, *, sync: bool = True) -> None:
        self._take(path)
        super().write_atomic(path, data, sync=sync)

    def list(self, path: str) -> list[str]:
        self._take(path)
        return super().list(path)

    def sync_directory(self, path: str) -> None:
        self._take(path)
        super().sync_directory(path)

    def remove_tree(self, path: str) -> None:
        self._take(path)
        super().remove_tree(path)


class UnflushedOwner(StandaloneOwner):
    """Leaves rolled segments unsynced, as a process does that dies before their turn."""

    def segment_closed(self, _log: RolledLog, _end_offset: int) -> None:
        return


def log_environment(
    disk: SystemDisk | None = None, *, open_files: int = 1024, report: Callable[[str], None] | None = None
) -> LogEnvironment:
    disk = disk or SystemDisk()
    return LogEnvironment(disk, StandingClock(), open_files=open_files, owner=UnflushedOwner(disk, report))


def batch(
    count: int = 1,
    *,
    value: bytes = b"value",
    key: bytes | None = b"key",
    timestamps: Sequence[int] | None = None,
    codec: int = 0,
    **fields: int | bool,
) -> memoryview:
    times = timestamps or [NOW] * count
    return memoryview(
        encode_batch([(time, key, value, ()) for time in times], BatchFields(**fields), compression=codec)  # type: ignore[arg-type]
    )


def produced(
    producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False
) -> memoryview:
    return batch(
        count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )


def marker(producer_id: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0) -> memoryview:
    return memoryview(
        encode_end_transaction(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=NOW,
        )
    )


def open_log(
    directory: object, config: LogConfig | None = None, env: LogEnvironment | None = None, **kwargs: int | bool
) -> PartitionLog:
    return PartitionLog.open(
        "topic",
        0,
        f"{directory}/topic-0",
        config or LogConfig(),
        env or log_environment(),
        **kwargs,  # type: ignore[arg-type]
    )


def put(
    log: PartitionLog, data: memoryview, *, epoch: int = 0, origin: Origin = Origin.CLIENT, now: int = NOW
) -> AppendResult:
    return log.append(data, leader_epoch=epoch, now_ms=now, origin=origin)


def fetched(log: PartitionLog, offset: int, max_bytes: int = 1 << 20, upper: int | None = None) -> list[int]:
    """Base offsets of the batches that a read answers."""
    read = log.reader.read(offset, max_bytes, upper_offset=log.end_offset if upper is None else upper)
    data = b"".join(part.file.read(part.position, part.size) for part in read.ranges)
    assert len(data) == read.size
    return base_offsets(data)


def base_offsets(data: bytes) -> list[int]:
    found, position = [], 0
    while position < len(data):
        header = parse_header(data, position)
        found.append(header.base_offset)
        position += header.size
    return found
