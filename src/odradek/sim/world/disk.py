"""A file system in memory that knows what would be left after a crash.

A `Volume` outlives processes. What a process wrote is in the page cache: it survives the process, and is lost in part
when the machine loses power. `sync` makes a file's content durable and `sync_directory` the names in a directory, no
more than POSIX promises. A `SimulatedDisk` is the Disk port of one process on a volume.
"""

from __future__ import annotations

import asyncio
import errno
import posixpath
import random
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Generic, ParamSpec, TypeVar

from odradek.ports.clock import Clock
from odradek.ports.disk import Bytes, DiskError
from odradek.sim.world.loop import Process, ProcessKilled, SimulatedLoop

P = ParamSpec("P")
T = TypeVar("T")

SECTOR = 512
UNLIMITED = 1 << 40
"""The capacity of a disk that is not full."""
_Write = tuple[int, bytes | None]
"""Position and data; None truncates to the position."""


class Inode:
    """A file's content in the cache, and what leads from its durable content to that."""

    __slots__ = ("data", "durable", "modified_ms", "unsynced")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        self.unsynced: list[_Write] = []
        self.modified_ms = 0

    def write(self, position: int, data: bytes) -> None:
        """Write to the page cache."""
        _apply(self.data, (position, data))
        self.unsynced.append((position, data))

    def truncate(self, size: int) -> None:
        """Set the size in the page cache."""
        _apply(self.data, (size, None))
        self.unsynced.append((size, None))

    def rot(self, position: int, bits: int) -> None:
        """The bits of a byte become others, in the cache and on the device."""
        self.data[position] ^= bits
        if position < len(self.durable):
            durable = bytearray(self.durable)
            durable[position] ^= bits
            self.durable = bytes(durable)

    def sync(self) -> None:
        """Make the page cache durable."""
        if self.unsynced:
            self.durable = bytes(self.data)
            self.unsynced.clear()

    def lose_cache(self, rng: random.Random) -> bool:
        """Power loss: the durable content and some of what was written since. Whether anything was lost."""
        if not self.unsynced:
            return False
        before = bytes(self.data)
        how = rng.random()
        left = bytearray(self.durable)
        if how < 0.25:
            left = self.data
        elif how < 0.7:
            kept = rng.randrange(len(self.unsynced) + 1)
            for write in self.unsynced[:kept]:
                _apply(left, write)
            if kept < len(self.unsynced) and rng.random() < 0.6:
                _tear(left, self.unsynced[kept], rng, in_order=True)
        else:
            # Written back in any order, as a device with a cache may do between two flushes.
            for write in self.unsynced:
                _tear(left, write, rng, in_order=False)
        self.data = bytearray(left)
        self.durable = bytes(left)
        self.unsynced.clear()
        return before != self.durable


def _apply(content: bytearray, write: _Write) -> None:
    position, data = write
    if data is None:
        if len(content) > position:
            del content[position:]
        else:
            content.extend(bytes(position - len(content)))
        return
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _tear(content: bytearray, write: _Write, rng: random.Random, *, in_order: bool) -> None:
    """Some of a write's sectors: the first ones, or any."""
    position, data = write
    if data is None:
        if rng.random() < 0.5:
            _apply(content, write)
        return
    first = position // SECTOR
    last = (position + max(0, len(data) - 1)) // SECTOR
    keep = rng.randrange(last - first + 2)
    for sector in range(first, last + 1):
        if (sector - first < keep) if in_order else (rng.random() < 0.6):
            start = max(position, sector * SECTOR)
            end = min(position + len(data), (sector + 1) * SECTOR)
            _apply(content, (start, data[start - position : end - position]))


class Names(dict[str, T]):
    """Absolute paths, indexed by the directories above them. Changes only by items, `pop`, `update` and `|=`."""

    __slots__ = ("_below",)

    def __init__(self, names: Mapping[str, T]) -> None:
        super().__init__()
        self._below: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self.update(names)

    def __setitem__(self, path: str, value: T) -> None:
        if path not in self:
            for directory in _ancestors(path):
                self._below[directory][path] = None
        super().__setitem__(path, value)

    def __delitem__(self, path: str) -> None:
        super().__delitem__(path)
        for directory in _ancestors(path):
            del self._below[directory][path]

    def pop(self, path: str, *default: Any) -> Any:
        """As `dict.pop`."""
        if path not in self:
            return super().pop(path, *default)
        value = self[path]
        del self[path]
        return value

    def update(self, names: Mapping[str, T]) -> None:  # type: ignore[override]
        """As `dict.update` of a mapping."""
        for path, value in names.items():
            self[path] = value

    def __ior__(self, names: Mapping[str, T]) -> Names[T]:  # type: ignore[override, misc]
        self.update(names)
        return self

    def below(self, directory: str) -> list[str]:
        """The names anywhere below a directory, in the order in which they appeared."""
        return list(self._below.get(directory, ()))


@lru_cache(4096)
def _ancestors(path: str) -> tuple[str, ...]:
    """The directories above a path; the root has none."""
    if path == "/":
        return ()
    parent = posixpath.dirname(path)
    return (parent, *_ancestors(parent))


@lru_cache(4096)
def _absolute(path: str) -> str:
    return posixpath.normpath(posixpath.join("/", path))


_NamespaceChange = tuple[str, dict[str, Inode | None], tuple[str, ...]]
"""A directory, the names that appeared in it, and those that went."""


class Volume:
    """One machine's file system."""

    __slots__ = (
        "_changes_of", "_last_change", "_namespace_log", "boots", "capacity", "corrupted", "directories",
        "durable_names", "faults", "files", "locks",
    )  # fmt: skip

    def __init__(self) -> None:
        self.files: Names[Inode] = Names({})
        self.directories: Names[None] = Names({"/": None})
        self.durable_names: Names[Inode | None] = Names({"/": None})
        """What the names would be after a power loss; None stands for a directory."""
        self._namespace_log: dict[int, _NamespaceChange] = {}
        """Changes that are not durable yet, by their number, in order."""
        self._changes_of: defaultdict[str, list[int]] = defaultdict(list)
        """The numbers of the changes in a directory, or of its own name, some of them durable by now."""
        self._last_change = 0
        self.locks: dict[str, Process] = {}
        self.boots = 1
        self.capacity = UNLIMITED
        self.faults = DiskFaults()
        self.corrupted: set[str] = set()

    def used(self) -> int:
        """Bytes in use."""
        return sum(len(inode.data) for inode in self.files.values())

    # --- names ---

    def changed(self, directory: str, appeared: dict[str, Inode | None], gone: tuple[str, ...] = ()) -> None:
        """Note a change of names, durable only once the directory is synced."""
        self._last_change += 1
        self._namespace_log[self._last_change] = directory, appeared, gone
        for path in (directory, *gone):
            self._changes_of[path].append(self._last_change)

    def sync_directory(self, path: str) -> None:
        """Make the names in the directory durable."""
        # That an earlier directory of this name went is not later than what is in the present one.
        for number in self._changes_of.pop(path, ()):
            entry = self._namespace_log.pop(number, None)
            if entry is not None:
                self._make_durable(entry)

    def _make_durable(self, entry: _NamespaceChange) -> None:
        _, appeared, gone = entry
        for path in gone:
            if isinstance(self.durable_names.pop(path, None), Inode):
                continue
            for name in self.durable_names.below(path):
                del self.durable_names[name]
        self.durable_names.update(appeared)

    def power_loss(self, rng: random.Random) -> int:
        """Lose what was not synced, in part; how many files lost something."""
        self.boots += 1
        kept: dict[str, bool] = {}
        for entry in self._namespace_log.values():
            # Names of one directory are journaled in order; how far the journal got is chance.
            going_on = kept.get(entry[0], True) and rng.random() < 0.85
            kept[entry[0]] = going_on
            if going_on:
                self._make_durable(entry)
        self._namespace_log.clear()
        self._changes_of.clear()
        self.directories = Names({"/": None})
        self.files = Names({})
        for path in sorted(self.durable_names):
            inode = self.durable_names[path]
            if posixpath.dirname(path) not in self.directories:
                continue
            if inode is None:
                self.directories[path] = None
            else:
                self.files[path] = inode
        self.durable_names = Names({**self.directories, **self.files})
        lost = sum(self.files[path].lose_cache(rng) for path in sorted(self.files))
        self.locks.clear()
        return lost


class DiskFaults:
    """What goes wrong from now on; chances are per call."""

    __slots__ = ("crash_in", "injected", "no_descriptor", "read_error", "refused", "slow", "sync_error", "write_error")

    def __init__(self) -> None:
        self.crash_in = 0
        """After so many changes the process dies, in the middle of whatever it does; 0 for never."""
        self.write_error = 0.0
        self.sync_error = 0.0
        self.read_error = 0.0
        self.slow = 0.0
        self.no_descriptor = 0.0
        """How often a file or directory cannot be opened because the process may have no more open (EMFILE)."""
        self.injected = 0
        """Failures of the disk itself."""
        self.refused = 0
        """Calls that had no descriptor."""

    @property
    def suffered(self) -> int:
        """How many calls failed by the world's will."""
        return self.injected + self.refused


class SimulatedFile:
    """An open file; closing it changes nothing."""

    __slots__ = ("_disk", "inode", "path")

    def __init__(self, disk: SimulatedDisk, path: str, inode: Inode) -> None:
        self._disk = disk
        self.path = path
        self.inode = inode

    def fileno(self) -> int:
        """Raise OSError: a simulated file has no descriptor."""
        raise OSError(errno.EBADF, "a simulated file has no descriptor")

    def size(self) -> int:
        """The size in bytes."""
        return len(self.inode.data)

    def append(self, parts: Sequence[Bytes]) -> int:
        """Write the parts at the end; the position of the first byte. Raises OSError."""
        start = len(self.inode.data)
        self._disk.write(self.path, self.inode, start, b"".join(parts))
        return start

    def write_at(self, position: int, data: Bytes) -> None:
        """Write at a position. Raises OSError."""
        self._disk.write(self.path, self.inode, position, bytes(data))

    def read(self, position: int, size: int) -> bytes:
        """The bytes at a position, fewer at the end. Raises OSError."""
        self._disk.check(self.path, "read")
        return bytes(self.inode.data[position : position + size])

    def is_cached(self, position: int, size: int) -> bool:
        """Whether a read would not wait for the disk."""
        return self._disk.rng.random() < 0.7

    def truncate(self, size: int) -> None:
        """Set the size. Raises OSError."""
        self._disk.check(self.path, "write")
        self._disk.touch(self.inode)
        self.inode.truncate(size)

    def sync(self) -> None:
        """Make the content durable. Raises OSError."""
        self._disk.check(self.path, "sync")
        self.inode.sync()

    def close(self) -> None:
        """Close the file."""
        return


class _Lock:
    __slots__ = ("_path", "_process", "_volume")

    def __init__(self, volume: Volume, path: str, process: Process) -> None:
        self._volume = volume
        self._path = path
        self._process = process

    def release(self) -> None:
        if self._volume.locks.get(self._path) is self._process:
            del self._volume.locks[self._path]


class _Job(Generic[T]):
    """A call in a lane, executed once: in its turn, or before that by who cannot wait."""

    __slots__ = ("_done", "_failure", "_function", "_result")

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._done = False
        self._failure: Exception | None = None
        self._result: T

    def execute(self) -> None:
        if self._done:
            return
        self._done = True
        try:
            self._result = self._function()
        except Exception as error:  # noqa: BLE001  # handed on to who awaits it, as a thread does
            self._failure = error

    def result(self) -> T:
        if self._failure is not None:
            raise self._failure
        return self._result


class SimulatedDisk:
    """The Disk port of one process."""

    __slots__ = ("_clock", "_jobs", "_lanes", "_loop", "_process", "rng", "volume")

    def __init__(self, volume: Volume, process: Process, loop: SimulatedLoop, clock: Clock, rng: random.Random) -> None:
        self.volume = volume
        self.rng = rng
        self._process = process
        self._loop = loop
        self._clock = clock
        self._lanes: dict[str, asyncio.Lock] = {}
        self._jobs: dict[str, deque[_Job[Any]]] = defaultdict(deque)

    # --- faults ---

    def check(self, path: str, kind: str) -> None:
        """Raise what the world wants this call to fail with."""
        if not self._process.alive:
            raise DiskError(errno.EIO, "the process is dead", path)
        faults = self.volume.faults
        if faults.crash_in and kind != "read":
            faults.crash_in -= 1
            if not faults.crash_in:
                self._loop.kill(self._process)
                raise ProcessKilled(path)
        chance = getattr(faults, f"{kind}_error")
        if chance and self.rng.random() < chance:
            faults.injected += 1
            raise DiskError(errno.EIO, "simulated I/O error", path)

    def take_descriptor(self, path: str) -> None:
        """Take a descriptor for a call or an open file. Raises OSError if all are taken."""
        faults = self.volume.faults
        if faults.no_descriptor and self.rng.random() < faults.no_descriptor:
            faults.refused += 1
            raise OSError(errno.EMFILE, "too many open files", path)

    def write(self, path: str, inode: Inode, position: int, data: bytes) -> None:
        """Write to a file. Raises DiskError for a fault of the volume."""
        self.check(path, "write")
        volume = self.volume
        if volume.capacity < UNLIMITED and position + len(data) > len(inode.data):
            self._ensure_room(path, len(data))
        self._loop.trace.mix(b"disk%d" % zlib.crc32(data))
        self.touch(inode)
        inode.write(position, data)

    def _ensure_room(self, path: str, size: int) -> None:
        if self.volume.used() + size > self.volume.capacity:
            self.volume.faults.injected += 1
            raise DiskError(errno.ENOSPC, "no space left on device", path)

    def touch(self, inode: Inode) -> None:
        """Set the modification time to now."""
        inode.modified_ms = self._clock.now_ms()

    # --- the Disk port ---

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        """As `Disk.open`."""
        path = self.absolute(path)
        self.check(path, "read")
        self.take_descriptor(path)
        inode = self.volume.files.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            inode = self._create(path)
        return SimulatedFile(self, path, inode)

    def _create(self, path: str) -> Inode:
        parent = posixpath.dirname(path)
        if parent not in self.volume.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", parent)
        if path in self.volume.directories:
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        self.check(path, "write")
        inode = self.volume.files[path] = Inode()
        self.touch(inode)
        self.volume.changed(parent, {path: inode})
        return inode

    def read_file(self, path: str, most: int | None = None) -> bytes:
        """As `Disk.read_file`."""
        file = self.open(path)
        return file.read(0, file.size() if most is None else min(most, file.size()))

    def write_atomic(self, path: str, data: Bytes, *, sync: bool = True) -> None:
        """As `Disk.write_atomic`."""
        temporary = path + ".tmp"
        try:
            file = self.open(temporary, create=True)
            file.truncate(0)
            file.append((data,))
            if sync:
                file.sync()
            self.rename(temporary, path)
            if sync:
                self.sync_directory(posixpath.dirname(path) or ".")
        except DiskError:
            raise
        except OSError as error:
            raise DiskError(error.errno, error.strerror, path) from error

    def rename(self, source: str, target: str) -> None:
        """As `Disk.rename`."""
        source, target = self.absolute(source), self.absolute(target)
        self.check(source, "write")
        files, directories = self.volume.files, self.volume.directories
        if posixpath.dirname(target) not in directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", target)
        if source in files:
            if target in directories:
                raise IsADirectoryError(errno.EISDIR, "is a directory", target)
            inode = files.pop(source)
            files[target] = inode
            self._moved(source, target, {target: inode})
            return
        if source not in directories:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", source)
        if files.below(target) or directories.below(target) or target in files:
            raise OSError(errno.ENOTEMPTY, "directory not empty", target)
        self._rename_directory(source, target)

    def _rename_directory(self, source: str, target: str) -> None:
        volume = self.volume
        for path in volume.files.below(source):
            volume.files[target + path[len(source) :]] = volume.files.pop(path)
        for path in [source, *volume.directories.below(source)]:
            del volume.directories[path]
            volume.directories[target + path[len(source) :]] = None
        # What is inside moves with its durable state; names in it that were not synced count as synced by the rename.
        volume.sync_directory(source)
        moved: dict[str, Inode | None] = {target: None}
        for name in volume.durable_names.below(source):
            moved[target + name[len(source) :]] = volume.durable_names[name]
        self._moved(source, target, moved)

    def _moved(self, source: str, target: str, appeared: dict[str, Inode | None]) -> None:
        parent = posixpath.dirname(target)
        # One entry: a rename is atomic, after a crash there is the old name or the new one.
        self.volume.changed(parent, appeared, (source,))

    def remove(self, path: str) -> None:
        """As `Disk.remove`."""
        path = self.absolute(path)
        self.check(path, "write")
        if self.volume.files.pop(path, None) is not None:
            self.volume.changed(posixpath.dirname(path), {}, (path,))

    def remove_tree(self, path: str) -> None:
        """As `Disk.remove_tree`."""
        path = self.absolute(path)
        self.check(path, "write")
        volume = self.volume
        if path not in volume.directories:
            return
        self.take_descriptor(path)
        for name in volume.files.below(path):
            del volume.files[name]
        for name in [path, *volume.directories.below(path)]:
            del volume.directories[name]
        volume.changed(posixpath.dirname(path), {}, (path,))

    def make_directories(self, path: str) -> None:
        """As `Disk.make_directories`."""
        path = self.absolute(path)
        self.check(path, "write")
        missing = []
        while path not in self.volume.directories:
            if path in self.volume.files:
                raise FileExistsError(errno.EEXIST, "is a file", path)
            missing.append(path)
            path = posixpath.dirname(path)
        for each in reversed(missing):
            self.volume.directories[each] = None
            self.volume.changed(posixpath.dirname(each), {each: None})

    def list(self, path: str) -> list[str]:
        """As `Disk.list`."""
        path = self.absolute(path)
        self.check(path, "read")
        self.take_descriptor(path)
        if path not in self.volume.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        names = (*self.volume.files.below(path), *self.volume.directories.below(path))
        start = len(path.rstrip("/")) + 1
        return sorted(name[start:] for name in names if "/" not in name[start:])

    def exists(self, path: str) -> bool:
        """As `Disk.exists`."""
        path = self.absolute(path)
        return path in self.volume.files or path in self.volume.directories

    def is_directory(self, path: str) -> bool:
        """As `Disk.is_directory`."""
        return self.absolute(path) in self.volume.directories

    def absolute(self, path: str) -> str:
        """As `Disk.absolute`."""
        return _absolute(path)

    def size(self, path: str) -> int:
        """As `Disk.size`."""
        return len(self._inode(path).data)

    def modified_ms(self, path: str) -> int:
        """As `Disk.modified_ms`."""
        return self._inode(path).modified_ms

    def _inode(self, path: str) -> Inode:
        inode = self.volume.files.get(self.absolute(path))
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return inode

    def sync_directory(self, path: str) -> None:
        """As `Disk.sync_directory`."""
        path = self.absolute(path)
        self.check(path, "sync")
        self.take_descriptor(path)
        if path not in self.volume.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self.volume.sync_directory(path)

    def free_bytes(self, path: str) -> tuple[int, int]:
        """As `Disk.free_bytes`."""
        return max(0, self.volume.capacity - self.volume.used()), self.volume.capacity

    def lock(self, path: str) -> _Lock:
        """As `Disk.lock`."""
        path = self.absolute(path)
        self.take_descriptor(path)
        holder = self.volume.locks.get(path)
        if holder is not None and holder.alive:
            raise BlockingIOError(errno.EAGAIN, "the lock is held", path)
        if path not in self.volume.files:
            self._create(path)
        self.volume.locks[path] = self._process
        return _Lock(self.volume, path, self._process)

    async def run(self, lane: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """In the lane's order, at some moment between the call and its return, as a thread would."""
        lock = self._lanes.get(lane)
        if lock is None:
            lock = self._lanes[lane] = asyncio.Lock()

        jobs = self._jobs[lane]
        job = _Job(partial(function, *args, **kwargs))
        jobs.append(job)

        async def thread() -> None:
            async with lock:
                slow = self.volume.faults.slow
                await asyncio.sleep(self.rng.uniform(0, 0.003) + (self.rng.uniform(0, slow) if slow else 0))
                self._loop.off_loop(job.execute)
                jobs.popleft()
                await asyncio.sleep(self.rng.uniform(0, 0.003))

        # A thread continues when the task that waits for it is cancelled. What it raises is for that task alone.
        await asyncio.shield(asyncio.get_running_loop().create_task(thread()))
        return job.result()

    def wait(self, lane: str) -> None:
        """No time passes: what is on its way happens now."""
        for job in self._jobs[lane]:
            job.execute()

    def boot_id(self) -> str:
        """As `Disk.boot_id`; a power loss changes it."""
        try:
            self.take_descriptor("boot_id")
        except OSError:
            return ""
        return str(self.volume.boots)

    def keeps_up(self) -> bool:
        """As `Disk.keeps_up`."""
        return not self.volume.faults.slow and self.rng.random() < 0.97
