"""One compaction of one log, done in slices behind the Disk port (Cleaner).

First the dirty part is read for the last offset of every key, then each group of segments is rewritten to `.cleaned`
files. It owns its files and shares nothing with the event loop, which puts the finished segments in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from odradek.log.cleaner.batch_filter import LastRecord, Retention, Transactions, marker_of, walk
from odradek.log.cleaner.candidates import DICT_ENTRY_BYTES, Cleanable, SegmentFacts, group
from odradek.log.config import LogConfig
from odradek.log.segments.files import CLEANED, LOG, SEGMENT_SUFFIXES, SWAP, TRANSACTION_INDEX, FileCache, segment_path
from odradek.log.segments.segment import Segment
from odradek.log.segments.transaction_index import AbortedTransaction
from odradek.ports.disk import Disk
from odradek.records.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, check_batch
from odradek.records.compression import Codec
from odradek.records.errors import CorruptRecords
from odradek.records.record import records_section

# A read gives up the interpreter's lock: with small ones the event loop never waits for long.
_READ_BYTES: Final = 1 << 16
_WRITE_BYTES: Final = 1 << 18
_SLICE_BYTES: Final = 1 << 22
_OPEN_FILES: Final = 8


class Plan(NamedTuple):
    """What to compact, as the event loop decided it."""

    directory: str
    segments: Sequence[SegmentFacts]
    """All but the active one."""
    cleanable: Cleanable
    config: LogConfig
    now_ms: int
    aborted: Sequence[AbortedTransaction]
    last_records: Mapping[int, LastRecord]
    map_bytes: int
    """How much memory the keys may take."""


class Slice(NamedTuple):
    """A part of the work is done; `transferred` bytes were read and written in it."""

    transferred: int


class CleanedSegment(NamedTuple):
    """Its `.cleaned` files are complete and synced and can take the place of the sources, given by base offset."""

    base_offset: int
    sources: list[int]
    size: int
    has_aborted: bool


class CompactionResult(NamedTuple):
    """The last thing that a compaction says: how far the log is clean now."""

    end_offset: int
    keys: int
    read_bytes: int
    kept_bytes: int


Progress = Slice | CleanedSegment | CompactionResult


class DamagedSegment(Exception):
    """A segment cannot be compacted; says where and why. Nothing was changed."""


class Compaction:
    """Call `step` until it answers with an CompactionResult; each does a few megabytes of work."""

    __slots__ = ("_at", "_disk", "_keys", "_latest", "_plan", "_steps", "_transferred", "_unplaced")

    def __init__(self, plan: Plan, disk: Disk) -> None:
        self._plan = plan
        self._disk = disk
        self._keys: dict[bytes, int] = {}
        self._latest = plan.cleanable.first_dirty_offset - 1
        self._transferred = 0
        self._at = "", 0
        """The file and the position of the batch that is read."""
        self._unplaced: int | None = None
        """The base offset of the segment that is written or waits to be put in place."""
        self._steps = self._run()

    def step(self) -> Progress:
        """Blocks. Raises OSError, DamagedSegment."""
        try:
            return next(self._steps)
        except CorruptRecords as error:
            # The batch, or its records: a broker does not read those of a topic that is not compacted.
            path, position = self._at
            raise DamagedSegment(f"{path}: damaged at byte {position}: {error}") from error

    def discard(self) -> None:
        """Remove the files of a compaction that is given up. Not while a step runs."""
        if self._unplaced is None:
            return
        directory, base_offset = self._plan.directory, self._unplaced
        if self._disk.exists(segment_path(directory, base_offset, LOG + SWAP)):
            # It failed between the renames: the next start learns from the other files that the originals are complete.
            return
        for suffix in SEGMENT_SUFFIXES:
            with suppress(OSError):
                self._disk.remove(segment_path(directory, base_offset, suffix + CLEANED))

    def _run(self) -> Iterator[Progress]:
        plan = self._plan
        yield from self._read_keys()
        end_offset = self._latest + 1
        read = kept = 0
        levels = {int(codec): plan.config.compression_level(codec) for codec in Codec}
        retention = Retention(
            self._keys,
            self._latest,
            Transactions(plan.aborted),
            plan.last_records,
            (plan.now_ms, plan.config.delete_retention_ms),
            levels,
        )
        sources = [facts for facts in plan.segments if facts.base_offset < end_offset]
        for members in group(sources, plan.config.segment_bytes, plan.config.segment_index_bytes):
            self._unplaced = members[0].base_offset
            cleaned = _Output(self._disk, plan.directory, members[0].base_offset, plan.config, plan.now_ms)
            changed = len(members) > 1
            for facts in members:
                for view, header in self._batches(facts):
                    result = retention.keep(view, header)
                    if result.aborted is not None:
                        cleaned.aborted.append(result.aborted)
                    changed = changed or result.data is not view
                    if result.data is not None:
                        self._transferred += cleaned.add(result.data, header, result.max_timestamp)
                    if self._transferred >= _SLICE_BYTES:
                        yield self._slice()
                read += facts.size
            kept += cleaned.size
            if changed:
                yield cleaned.finish([facts.base_offset for facts in members])
            else:
                cleaned.drop()
            self._unplaced = None
        yield CompactionResult(end_offset, len(self._keys), read, kept)

    def _slice(self) -> Slice:
        transferred, self._transferred = self._transferred, 0
        return Slice(transferred)

    def _read_keys(self) -> Iterator[Progress]:
        """Fill the map from the dirty part, as far as memory goes."""
        plan = self._plan
        keys = self._keys
        start, stop = plan.cleanable.first_dirty_offset, plan.cleanable.first_uncleanable_offset
        # Whose marker lies before the dirty part would never end here.
        transactions = Transactions(aborted for aborted in plan.aborted if aborted.last_offset >= start)
        left = plan.map_bytes
        for facts in plan.segments:
            if facts.end_offset <= start:
                continue
            if facts.base_offset >= stop:
                return
            for view, header in self._batches(facts):
                if header.last_offset >= stop:
                    return
                if self._transferred >= _SLICE_BYTES:
                    yield self._slice()
                if header.last_offset < start:
                    continue
                if header.is_control:
                    transactions.on_marker(header, marker_of(view, header))
                elif not transactions.is_aborted(header) and header.records_count:
                    before = len(keys)
                    size = self._note_keys(view, header, start)
                    left -= (len(keys) - before) * DICT_ENTRY_BYTES + size
                self._latest = header.last_offset
                if left <= 0:
                    return

    def _note_keys(self, view: memoryview, header: BatchHeader, start: int) -> int:
        """Note the batch's keys; the bytes of those that are new."""
        keys = self._keys
        base = header.base_offset
        size = 0
        for record in walk(bytes(records_section(view, header)), header):
            key = record[5]
            offset = base + record[4]
            if key is not None and offset >= start:
                if key not in keys:
                    size += len(key)
                keys[key] = offset
        return size

    def _batches(self, facts: SegmentFacts) -> Iterator[tuple[memoryview, BatchHeader]]:
        """Each batch of a segment, its CRC checked. Raises CorruptRecords."""
        path = segment_path(self._plan.directory, facts.base_offset, LOG)
        file = self._disk.open(path)
        position, end = 0, facts.size
        chunk_start, chunk = 0, memoryview(b"")
        need = HEADER_SIZE
        expected = facts.base_offset
        try:
            while position < end:
                self._at = path, position
                at = position - chunk_start
                if len(chunk) - at < need:
                    chunk_start, at = position, 0
                    chunk = memoryview(file.read(position, min(max(_READ_BYTES, need), end - position)))
                    self._transferred += len(chunk)
                if need == HEADER_SIZE:
                    need = LOG_OVERHEAD + int.from_bytes(chunk[at + 8 : at + 12], "big", signed=True)
                    if not HEADER_SIZE <= need <= end - position:
                        raise CorruptRecords(f"a batch of {need} bytes")
                    if len(chunk) - at < need:
                        continue
                view = chunk[at : at + need]
                header = check_batch(view, 0, from_client=False)
                if not expected <= header.base_offset <= header.last_offset < facts.end_offset:
                    raise CorruptRecords(
                        f"a batch of offsets {header.base_offset} to {header.last_offset} where {expected} to "
                        f"{facts.end_offset - 1} belong"
                    )
                yield view, header
                expected = header.next_offset
                position += need
                need = HEADER_SIZE
        finally:
            file.close()


class _Output:
    """The segment that a group becomes."""

    __slots__ = ("_disk", "_files", "_parts", "_pending", "_segment", "aborted", "size")

    def __init__(self, disk: Disk, directory: str, base_offset: int, config: LogConfig, now_ms: int) -> None:
        self._disk = disk
        self._files = FileCache(disk, _OPEN_FILES)
        self._segment = Segment(self._files, directory, base_offset, 0, now_ms, CLEANED)
        disk.remove(self._segment.file_path(TRANSACTION_INDEX))
        self._segment.configure(config.index_interval_bytes, config.segment_index_bytes)
        self._segment.create()
        self._parts: list[memoryview | bytearray] = []
        self._pending = 0
        self.aborted: list[AbortedTransaction] = []
        self.size = 0

    def add(self, data: memoryview | bytearray, header: BatchHeader, max_timestamp: int) -> int:
        """The batch's bytes; how many were written to the file, now and then."""
        size = len(data)
        self._segment.note_batch(self.size, header.last_offset, max_timestamp, size)
        self._parts.append(data)
        self.size += size
        self._pending += size
        return self._write() if self._pending >= _WRITE_BYTES else 0

    def _write(self) -> int:
        written, self._pending = self._pending, 0
        if self._parts:
            self._segment.file().append((b"".join(self._parts),))
            self._parts.clear()
        return written

    def finish(self, sources: list[int]) -> CleanedSegment:
        self._write()
        segment = self._segment
        segment.size = self.size
        for transaction in self.aborted:
            segment.transactions.add(transaction)
        segment.finish_indexes()
        for path in _existing(self._disk, segment.file_paths()):
            self._files.get(path).sync()
        return CleanedSegment(segment.base_offset, sources, self.size, bool(self.aborted))

    def drop(self) -> None:
        """Nothing had to change: the source stays."""
        for path in self._segment.file_paths():
            self._disk.remove(path)


def _existing(disk: Disk, paths: Iterable[str]) -> list[str]:
    return [path for path in paths if disk.exists(path)]
