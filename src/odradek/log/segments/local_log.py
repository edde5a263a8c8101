"""The files of one log: its segments, the snapshots of its producers, and how they come and go (LocalLog).

Knows nothing of why: what is appended, truncated or deleted is decided by PartitionLog. Everything raises OSError.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from odradek.log.config import LogConfig
from odradek.log.directories.checkpoint_formats import format_leader_epochs
from odradek.log.environment import LogEnvironment
from odradek.log.retention import SegmentAge
from odradek.log.segments.files import CLEANED, DELETED, LEADER_EPOCHS, PARTITION_METADATA, SNAPSHOT, SWAP, segment_path
from odradek.log.segments.late_file import NewSnapshot
from odradek.log.segments.reading import LogRead, Tail, find_in_segment, plan_segment
from odradek.log.segments.segment import Segment, bound, create_later
from odradek.ports.disk import File, FileRange

if TYPE_CHECKING:
    from odradek.log.cleaner.segment_rewrite import CleanedSegment

_EMPTY: Final[list[FileRange]] = []


class LocalLog:
    """Segments in the order of their offsets; the last one is `active`."""

    __slots__ = ("_environment", "active", "config", "directory", "segments", "snapshots", "tail")

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        environment: LogEnvironment,
        segments: list[Segment],
        snapshots: list[int],
    ) -> None:
        self.directory = directory
        self.config = config
        self.segments = segments
        self.active = segments[-1]
        self.snapshots = snapshots
        """Offsets of which there is a snapshot of the producers, ascending."""
        self.tail = Tail()
        self._environment = environment

    def set_config(self, config: LogConfig) -> None:
        """Apply other settings to the segments."""
        self.config = config
        for segment in self.segments:
            segment.configure(config.index_interval_bytes, config.segment_index_bytes)

    def slot(self, offset: int) -> int:
        """Index of the segment that holds the offset."""
        return max(0, bisect_right(self.segments, offset, key=_base_offset) - 1)

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    def ages(self) -> list[SegmentAge]:
        """What retention decides by."""
        return [SegmentAge(segment.base_offset, segment.size, self._newest_ms(segment)) for segment in self.segments]

    def _newest_ms(self, segment: Segment) -> int:
        if not segment.size:
            return segment.created_ms
        largest = segment.load_max_timestamp()[0]
        return largest if largest >= 0 else self._environment.disk.modified_ms(segment.path)

    # --- write ---

    def write(self, segment: Segment, data: memoryview) -> None:
        """Put the bytes at the segment's end."""
        position = segment.size
        if segment.is_cold:
            segment.warm()
        at = self._environment.files.get(segment.path).append((data,))
        if at != position:
            raise OSError(f"{segment.path} has {at} bytes where {position} were written")
        segment.size = position + len(data)

    def warm_file(self, segment: Segment) -> File:
        """The segment's file, and all else open that a write needs."""
        if segment.is_cold:
            segment.warm()
        return self._environment.files.get(segment.path)

    def wrote(self, segment: Segment, file: File, size: int) -> None:
        """Note that `size` queued bytes of the segment are in the file."""
        segment.size += size
        segment.queued -= size
        if not segment.queued:
            # A handle opened during the write has a size in memory that is too small.
            self._environment.files.forget_others(segment.path, file)

    # --- read ---

    def read(self, offset: int, max_bytes: int, upper_offset: int, min_one_batch: bool, end_offset: int) -> LogRead:
        """Whole batches from the one that holds the offset on, none at or past `upper_offset`; see LogReader."""
        tail = self.tail
        index = tail.find(offset)
        if index is None:
            return self._read_segments(offset, max_bytes, upper_offset, min_one_batch, end_offset)
        start = tail.positions[index]
        extent = tail.extent(index, start + max_bytes, upper_offset)
        if extent is None:
            if not min_one_batch or tail.last_offsets[index] >= upper_offset:
                return LogRead(_EMPTY, 0, offset)
            extent = tail.ends[index], tail.last_offsets[index] + 1
        end, next_offset = extent
        found = FileRange(self._environment.files.get(self.active.path), start, end - start)
        return LogRead([found], end - start, next_offset)

    def _read_segments(
        self, offset: int, max_bytes: int, upper_offset: int, min_one_batch: bool, end_offset: int
    ) -> LogRead:
        ranges: list[FileRange] = []
        total = 0
        segments = self.segments
        slot = self.slot(offset)
        hint = self._hint(offset, segments[slot])
        while slot < len(segments):
            segment = segments[slot]
            slot += 1
            first = find_in_segment(segment, offset, hint)
            hint = None
            if first is None:
                # The segment's last offsets were compacted away.
                continue
            segment_end = segments[slot].base_offset if slot < len(segments) else end_offset
            extent = plan_segment(segment, first, segment_end, max_bytes - total, upper_offset)
            if extent is None:
                if ranges or not min_one_batch or first.header.last_offset >= upper_offset:
                    break
                extent = first.position + first.header.size, first.header.next_offset
            end, offset = extent
            if end > first.position:
                ranges.append(FileRange(segment.file(), first.position, end - first.position))
                total += end - first.position
            if end < segment.size:
                self.tail.remember(offset, segment, end)
                break
            if offset >= upper_offset or total >= max_bytes:
                break
        return LogRead(ranges, total, offset)

    def _hint(self, offset: int, segment: Segment) -> int | None:
        found = self.tail.hints.pop(offset, None)
        return found[1] if found is not None and found[0] == segment.base_offset else None

    # --- segments come and go ---

    def new_segment(self, base_offset: int, size: int = 0) -> Segment:
        """Return a segment with the configured indexes; creates no file."""
        environment = self._environment
        segment = Segment(environment.files, self.directory, base_offset, size, environment.clock.now_ms())
        segment.configure(self.config.index_interval_bytes, self.config.segment_index_bytes)
        return segment

    def roll(self, offset: int, producers: bytes | None, *, later: bool = False) -> None:
        """Begin a new active segment, and write the snapshot of the producers as of there; or change nothing.

        With None the caller takes the snapshot later. `later` leaves the files to the first write, which follows in
        the thread of the write queue.
        """
        active = self.active
        is_empty = not active.size + active.queued
        if not is_empty:
            active.finish_indexes()
        segment = self.new_segment(offset)
        try:
            if later and not is_empty and not any(map(self._environment.disk.exists, segment.file_paths())):
                snapshot = None
                if producers is not None and not self.has_snapshot(offset):
                    snapshot = _snapshot(self, offset, producers)
                    _note(self.snapshots, snapshot, offset)
                create_later(segment, self._environment.files, self._environment.disk, snapshot)
            else:
                segment.create()
                if producers is not None:
                    self.take_snapshot(offset, producers)
        except OSError:
            self._take_back(segment)
            raise
        if is_empty:
            # Its base was too low for the offsets that follow.
            self.remove_segments(self.segments[-1:])
            del self.segments[-1]
        self.segments.append(segment)
        self.active = segment
        bound(self.segments[-3:])
        self.tail.clear()
        if not active.queued:
            active.release()

    def _take_back(self, segment: Segment) -> None:
        """Remove a segment that could not be begun. Where the log went on in the one before, the next start would find
        a segment that begins in the middle of that, and cut off what lies behind.
        """
        environment = self._environment
        paths = segment.file_paths()
        if segment.base_offset not in self.snapshots:
            paths.append(segment_path(self.directory, segment.base_offset, SNAPSHOT))
        for path in paths:
            environment.files.forget(path)
            environment.disk.remove(path)

    def has_snapshot(self, offset: int) -> bool:
        """Of the producers as of the offset, or a later one."""
        return bool(self.snapshots) and self.snapshots[-1] >= offset

    def take_snapshot(self, offset: int, producers: bytes) -> None:
        """Write the producers' state as of the offset, unless that exists; drop an older stray one."""
        if not self.has_snapshot(offset):
            snapshot = _snapshot(self, offset, producers)
            snapshot.write(self._environment.disk)
            _note(self.snapshots, snapshot, offset)

    def remove_snapshots(self, offset: int) -> None:
        """Remove the snapshots of the offset and later ones."""
        snapshots = self.snapshots
        while snapshots and snapshots[-1] >= offset:
            self._environment.disk.remove(segment_path(self.directory, snapshots.pop(), SNAPSHOT))

    def truncate_to(self, offset: int) -> int:
        """Cut off everything from the offset on, which is above the first base offset; where the log ends then."""
        self.tail.clear()
        slot = self.slot(offset)
        # The last ones first: a kill meanwhile leaves the beginning of the log, without a hole.
        self.remove_segments(self.segments[:slot:-1])
        del self.segments[slot + 1 :]
        active = self.active = self.segments[-1]
        active.limit = None
        active.truncate_to(offset)
        next_offset = active.resume()
        return active.base_offset if next_offset is None else next_offset

    def prepare_restart(self, offset: int) -> Segment:
        """Open or create the only segment that `restart_with` leaves; changes nothing if that fails. Raises OSError."""
        for present in self.segments:
            if present.base_offset == offset:
                present.open_all()
                return present
        segment = self.new_segment(offset)
        try:
            segment.create()
        except OSError:
            self._take_back(segment)
            raise
        return segment

    def restart_with(self, segment: Segment) -> None:
        """Remove all batches and continue in a segment that `prepare_restart` returned."""
        self.tail.clear()
        self.remove_segments([each for each in reversed(self.segments) if each is not segment])
        if segment.size:
            segment.truncate_to(segment.base_offset)
        segment.limit = None
        self.segments = [segment]
        self.active = segment
        for snapshot in self.snapshots:
            self._environment.disk.remove(segment_path(self.directory, snapshot, SNAPSHOT))
        self.snapshots.clear()

    def remove_first(self, count: int) -> None:
        """Remove the oldest segments."""
        self.remove_segments(self.segments[:count])
        del self.segments[:count]
        self.tail.hints.clear()

    def remove_segments(self, segments: Sequence[Segment], *, keep_snapshot: int = -1) -> None:
        """Rename the segments' files to .deleted at once and remove them after file.delete.delay.ms.

        Where there is no descriptor nothing is renamed.
        """
        environment = self._environment
        for segment in segments:
            segment.release()
        renamed = []
        for segment in segments:
            paths = segment.file_paths()
            if segment.base_offset in self.snapshots and segment.base_offset != keep_snapshot:
                self.snapshots.remove(segment.base_offset)
                paths.append(segment_path(self.directory, segment.base_offset, SNAPSHOT))
            for path in paths:
                environment.files.forget(path)
                if environment.disk.exists(path):
                    environment.disk.rename(path, path + DELETED)
                    renamed.append(path + DELETED)
        environment.owner.delete_later(renamed, self.config.file_delete_delay_ms)

    def replace_segments(self, cleaned: CleanedSegment) -> bool:
        """Put a compacted segment in the place of its sources; False if the log no longer has these sources."""
        disk = self._environment.disk
        first = self.slot(cleaned.base_offset)
        sources = self.segments[first : first + len(cleaned.sources)]
        if [source.base_offset for source in sources] != cleaned.sources or self.active in sources:
            return False
        segment = self.new_segment(cleaned.base_offset, cleaned.size)
        if not cleaned.has_aborted:
            segment.transactions.assume_empty()
        for source in sources:
            # What may lack a descriptor comes before the first name: the next start finishes a swap that it finds, over
            # what the log is by then.
            source.release()
        present = [path for path in segment.file_paths() if disk.exists(path + CLEANED)]
        for path in present:
            disk.rename(path + CLEANED, path + SWAP)
        self.remove_segments(sources, keep_snapshot=cleaned.base_offset)
        for path in present:
            disk.rename(path + SWAP, path)
        segment.limit = sources[-1].limit
        self.segments[first : first + len(sources)] = [segment]
        self.tail.hints.clear()
        return True

    # --- making it durable ---

    def offset_after(self, offset: int, count: int, end_offset: int) -> int:
        """Where that number of segments ends, the first of which holds the offset; the end of the log at most."""
        following = self.slot(max(0, offset - 1)) + count
        return self.segments[following].base_offset if following < len(self.segments) else end_offset

    def write_out_indexes(self, recovery_point: int, target: int) -> list[File]:
        """Write what indexes hold in memory; the files of all segments with offsets within the two.

        And of the one that ends at the recovery point: that it was cut off there need not be durable.
        """
        environment = self._environment
        files = []
        for segment in self.segments[self.slot(max(0, recovery_point - 1)) :]:
            if segment.base_offset >= target:
                break
            segment.flush_indexes()
            files += [environment.files.get(path) for path in segment.file_paths() if environment.disk.exists(path)]
        return files

    def write_epochs(self, entries: Iterable[tuple[int, int]]) -> None:
        """The file of leader epochs, which the next flush makes durable."""
        path = f"{self.directory}/{LEADER_EPOCHS}"
        self._environment.disk.write_atomic(path, format_leader_epochs(entries), sync=False)

    def identity(self) -> list[File]:
        """The file that says which topic the log is of, if there is one."""
        path = f"{self.directory}/{PARTITION_METADATA}"
        disk = self._environment.disk
        return [disk.open(path)] if disk.exists(path) else []

    def other_files(self, recovery_point: int, target: int, *, inclusive: bool = False) -> list[File]:
        """The leader epochs, the snapshots of offsets within the two and, at first, which topic the log is of.

        `inclusive` is for a snapshot of the recovery point that may be newer than that.
        """
        disk = self._environment.disk
        least = recovery_point if inclusive else recovery_point + 1
        new = [offset for offset in self.snapshots if least <= offset <= target]
        snapshots = [segment_path(self.directory, offset, SNAPSHOT) for offset in new]
        paths = (f"{self.directory}/{LEADER_EPOCHS}", *snapshots)
        files = [disk.open(path) for path in paths if disk.exists(path)]
        return files if recovery_point else files + self.identity()

    def release(self) -> None:
        """Give back memory and files that an idle log does not need."""
        make_active(self)
        for segment in self.segments:
            if not segment.queued:
                # After a reopening its indexes would be ahead of the file.
                segment.release()
        self.tail.clear()
        self._environment.files.forget_directory(self.directory)


def make_active(log: LocalLog) -> None:
    """Make the files that a roll has left to the first write of the active segment, if there is no such write: it
    lacked a descriptor. Raises OSError.
    """
    active = log.active
    if not active.size and not active.queued:
        log._environment.files.make(active.path)


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _snapshot(log: LocalLog, offset: int, producers: bytes) -> NewSnapshot:
    """Return what has to be written; an older snapshot at which no segment begins is replaced."""
    stray = ""
    if log.snapshots and log.snapshots[-1] not in {segment.base_offset for segment in log.segments[-2:]}:
        stray = segment_path(log.directory, log.snapshots[-1], SNAPSHOT)
    return NewSnapshot(segment_path(log.directory, offset, SNAPSHOT), producers, stray)


def _note(snapshots: list[int], snapshot: NewSnapshot, offset: int) -> None:
    if snapshot.replaced:
        snapshots.pop()
    snapshots.append(offset)
