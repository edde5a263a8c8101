"""Opening a log: what a crash left is repaired, what a clean stop left is believed (LogLoader, LogSegment.recover).

After an unclean stop every batch from the recovery point on is read and checked; at the first one that is broken the
log is cut off. Nothing below the recovery point is read, and nothing at all after a clean stop but the headers behind
the last index entry.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from odradek.log.append import control_record
from odradek.log.config import LogConfig
from odradek.log.directories.checkpoint_formats import CorruptCheckpoint, format_leader_epochs, parse_leader_epochs
from odradek.log.environment import LogEnvironment
from odradek.log.leader_epochs import LeaderEpochs
from odradek.log.producers.replay import replay_marker
from odradek.log.producers.state import CorruptSnapshot, ProducerStates
from odradek.log.segments.files import (
    CLEANED,
    DELETED,
    LEADER_EPOCHS,
    LOG,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    TRANSACTION_INDEX,
    base_offset_of,
    segment_path,
)
from odradek.log.segments.segment import MAX_RELATIVE_OFFSET, Located, Segment, bound
from odradek.records.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, check_batch, parse_header
from odradek.records.errors import CorruptRecords
from odradek.wire.errors import KafkaError

_CHUNK: Final = 1024 * 1024
_WINDOW_BYTES: Final = 1024 * 1024
"""How far back the batches before a producer's last one are looked for: what was in flight when a broker stopped."""


@dataclass(slots=True)
class LoadedLog:
    """What opening a log found."""

    segments: list[Segment]
    log_start_offset: int
    end_offset: int
    recovery_point: int
    leader_epochs: LeaderEpochs
    producers: ProducerStates
    snapshots: list[int]


def load(
    directory: str,
    config: LogConfig,
    environment: LogEnvironment,
    recovery_point: int,
    log_start_offset: int,
    *,
    clean: bool,
) -> LoadedLog:
    """Open the segments in a partition's directory, which is made if it does not exist. Raises OSError."""
    disk = environment.disk
    disk.make_directories(directory)
    names = _tidy(directory, environment)
    segments = _without_left_overs(_open_segments(directory, names, config, environment), environment)
    if segments:
        bound(segments)
    epochs, epochs_known = _load_epochs(directory, names, environment)
    loader = _Loader(directory, config, environment, segments, epochs)
    if not clean:
        loader.recover(recovery_point)
    end_offset = loader.end_offset(log_start_offset)
    segments = loader.segments
    bound(segments)
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    if any(segment.size for segment in segments) and (not epochs_known or loader.lacks_first_epochs(log_start_offset)):
        loader.rebuild_epochs()
    # Where no record is left, the epoch that begins at the end is that of the last record: leaders compare it.
    beyond = end_offset if log_start_offset < end_offset else end_offset + 1
    changed = epochs.truncate_from_end(beyond) | epochs.truncate_from_start(log_start_offset)
    if changed or loader.epochs_changed:
        disk.write_atomic(f"{directory}/{LEADER_EPOCHS}", format_leader_epochs(epochs.entries()), sync=False)
    producers = ProducerStates()
    snapshots = sorted(offset for offset in (_snapshot_offset(name) for name in names) if offset is not None)
    if not clean:
        # A later snapshot may be ahead of the transaction index, of which only what lies below is surely on the disk.
        for offset in [offset for offset in snapshots if offset > recovery_point]:
            snapshots.remove(offset)
            disk.remove(segment_path(directory, offset, SNAPSHOT))
    # Without any snapshot after a clean stop, Kafka, too, begins with no producers rather than read everything.
    if snapshots or not clean:
        snapshots = restore_producers(
            directory, segments, producers, environment, snapshots, end_offset, log_start_offset
        )
    return LoadedLog(
        segments=segments,
        log_start_offset=log_start_offset,
        end_offset=end_offset,
        recovery_point=end_offset if clean else min(recovery_point, end_offset),
        leader_epochs=epochs,
        producers=producers,
        snapshots=snapshots,
    )


# --- the directory ---


def _tidy(directory: str, environment: LogEnvironment) -> list[str]:
    """Finish or undo what a stop interrupted (removals, compaction's swap) and answer the names that remain."""
    disk = environment.disk
    names = disk.list(directory)
    cleaned = [name for name in names if name.endswith(CLEANED)]
    swaps = [name for name in names if name.endswith(SWAP)]
    # All files of a group have its base offset. While one of them is not renamed yet, the originals are whole. One that
    # an earlier compaction left of another group says nothing: of this one the originals may be gone.
    undone = {base_offset_of(name) for name in cleaned}
    # The swap first: should this stop half-way, what is left has to say the same.
    doomed = [name for name in swaps if base_offset_of(name) in undone]
    doomed += cleaned + [name for name in names if name.endswith((DELETED, ".tmp"))]
    for name in doomed:
        disk.remove(f"{directory}/{name}")
    swaps = [name for name in swaps if name not in doomed]
    if swaps:
        _finish_swap(directory, swaps, [name for name in names if name not in doomed], environment)
    if doomed or swaps:
        names = disk.list(directory)
    logs = {name[: -len(LOG)] for name in names if name.endswith(LOG)}
    kept = []
    for name in names:
        offset = base_offset_of(name)
        if offset is not None and name.endswith(SEGMENT_SUFFIXES) and name.partition(".")[0] not in logs:
            disk.remove(f"{directory}/{name}")
        else:
            kept.append(name)
    return kept


def _finish_swap(directory: str, swaps: list[str], names: list[str], environment: LogEnvironment) -> None:
    """Compacted segments were complete: remove the originals that they replace and give them their names."""
    disk = environment.disk
    ranges = []
    for name in swaps:
        base = base_offset_of(name)
        if base is None or not name.endswith(LOG + SWAP):
            continue
        size = disk.size(f"{directory}/{name}")
        segment = Segment(environment.files, directory, base, size, 0)
        segment.path = f"{directory}/{name}"
        end = base
        for found in segment.scan(0):
            end = found.header.next_offset
        environment.files.forget(segment.path)
        ranges.append((base, end))
    for low, high in ranges:
        for name in names:
            offset = base_offset_of(name)
            if offset is not None and low <= offset < high and not name.endswith(SWAP):
                disk.remove(f"{directory}/{name}")
    for name in swaps:
        disk.rename(f"{directory}/{name}", f"{directory}/{name[: -len(SWAP)]}")


def _open_segments(directory: str, names: list[str], config: LogConfig, environment: LogEnvironment) -> list[Segment]:
    segments = []
    present = set(names)
    for name in names:
        base = base_offset_of(name)
        if base is None or not name.endswith(LOG):
            continue
        path = f"{directory}/{name}"
        segment = Segment(environment.files, directory, base, environment.disk.size(path), environment.clock.now_ms())
        segment.configure(config.index_interval_bytes, config.segment_index_bytes)
        if name[: -len(LOG)] + TRANSACTION_INDEX not in present:
            segment.transactions.assume_empty()
        segments.append(segment)
    return segments


def _without_left_overs(segments: list[Segment], environment: LogEnvironment) -> list[Segment]:
    """Remove empty segments that begin below the end of the segment before them.

    Early versions left the files of a segment that could not be created for want of descriptors, and continued
    in the segment before. Recovery would mistake the records behind that offset for damage, and readers would skip
    them.
    """
    kept: list[Segment] = []
    for segment in segments:
        if not segment.size and kept and _has_records_from(kept[-1], segment.base_offset):
            environment.owner.repaired(
                f"{segment.file_path(LOG)} is empty and {kept[-1].file_path(LOG)} has later records: it is removed"
            )
            for path in segment.file_paths():
                environment.files.forget(path)
                if environment.disk.exists(path):
                    environment.disk.remove(path)
        else:
            kept.append(segment)
    return kept


def _has_records_from(segment: Segment, offset: int) -> bool:
    """Whether a segment has records from the offset on, as far as it can be read."""
    try:
        return segment.locate(offset) is not None
    except KafkaError:
        return False


def _snapshot_offset(name: str) -> int | None:
    return base_offset_of(name) if name.endswith(SNAPSHOT) else None


def _load_epochs(directory: str, names: list[str], environment: LogEnvironment) -> tuple[LeaderEpochs, bool]:
    if LEADER_EPOCHS not in names:
        return LeaderEpochs(), False
    path = f"{directory}/{LEADER_EPOCHS}"
    try:
        return LeaderEpochs(parse_leader_epochs(environment.disk.read_file(path))), True
    except CorruptCheckpoint as error:
        environment.owner.repaired(f"{path} is damaged: {error}; it is rebuilt from the batches")
        return LeaderEpochs(), False


# --- segments ---


class _Loader:
    __slots__ = ("config", "directory", "environment", "epochs", "epochs_changed", "segments")

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        environment: LogEnvironment,
        segments: list[Segment],
        epochs: LeaderEpochs,
    ) -> None:
        self.directory = directory
        self.config = config
        self.environment = environment
        self.segments = segments
        self.epochs = epochs
        self.epochs_changed = False

    def recover(self, recovery_point: int) -> None:
        """Check everything from the recovery point on and cut the log off where it is broken.

        The segment that ends at the recovery point is looked at, too: it may have been cut off there, and a power loss
        may have brought back what had been behind it.
        """
        index = max(0, bisect_left(self.segments, recovery_point, key=lambda segment: segment.base_offset) - 1)
        while index < len(self.segments):
            end_offset = self._recover_segment(index, recovery_point)
            index += 1
            if index < len(self.segments) and self._is_hole(index - 1, end_offset, recovery_point):
                self._drop(index)

    def _is_hole(self, index: int, end_offset: int, recovery_point: int) -> bool:
        """Whether the segment lost its end while the next one was begun.

        Segments are synced in the background after a roll, so a power loss may take the end of one and leave the next.
        Apache Kafka serves such a log if the loss is at a boundary of batches. Only compaction leaves gaps of its own,
        so a loss in a compacted log shows only where something has to be cut off.
        """
        next_base = self.segments[index + 1].base_offset
        if end_offset == next_base or self.config.compact or end_offset < recovery_point:
            return False
        self.environment.owner.repaired(
            f"{self.segments[index].path}: ends at offset {end_offset}, but the next segment begins at {next_base}"
        )
        return True

    def _recover_segment(self, index: int, recovery_point: int) -> int:
        """Check one segment; return its end offset. If it has to be cut off, later segments are removed, too."""
        segment = self.segments[index]
        start, next_offset = self._trusted_end(segment, recovery_point)
        file = segment.file()
        end = segment.size
        limit = segment.base_offset + MAX_RELATIVE_OFFSET + 1 if segment.limit is None else segment.limit
        position = start
        chunk_start, chunk = position, memoryview(b"")
        problem = None
        before = position, next_offset
        while position < end:
            try:
                if chunk_start + len(chunk) < min(end, position + HEADER_SIZE):
                    chunk_start, chunk = position, memoryview(file.read(position, min(_CHUNK, end - position)))
                need = (
                    int.from_bytes(chunk[position - chunk_start + 8 : position - chunk_start + 12], "big")
                    + LOG_OVERHEAD
                )
                if position + need <= end and chunk_start + len(chunk) < position + need:
                    chunk_start, chunk = position, memoryview(file.read(position, max(_CHUNK, need)))
                header = parse_header(chunk, position - chunk_start)
                if header.last_offset >= recovery_point:
                    check_batch(chunk, position - chunk_start, from_client=False)
                if before[1] < header.base_offset < next_offset:
                    # It fits to what came before the last batch: the base offset of that one, outside of its CRC, is
                    # wrong.
                    position, next_offset = before
                    raise CorruptRecords(f"offset {next_offset - 1} comes before {header.base_offset}")
                if not next_offset <= header.base_offset <= header.last_offset < limit:
                    raise CorruptRecords(f"offset {header.base_offset} where {next_offset} or more is due")
            except CorruptRecords as error:
                problem = error
                break
            segment.note_batch(position, header.last_offset, header.max_timestamp, header.size)
            # A power loss may keep a newer file of epochs and an older end of the log.
            if header.partition_leader_epoch >= 0:
                self.epochs_changed |= self.epochs.believe(header.partition_leader_epoch, header.base_offset)
            if header.partition_leader_epoch > self.epochs.latest:
                self.epochs.assign(header.partition_leader_epoch, header.base_offset)
                self.epochs_changed = True
            before = position, next_offset
            next_offset = header.next_offset
            position += header.size
        if problem is not None:
            self.environment.owner.repaired(
                f"{segment.path}: cut off at byte {position} (offset {next_offset}), "
                f"{end - position} bytes are lost: {problem}"
            )
            self._cut_off(index, position, next_offset)
        if segment.transactions.truncate_to(recovery_point):
            # Nor may that come back: it would stand in the way of what is aborted later at the same offsets.
            self.environment.files.get(segment.file_path(TRANSACTION_INDEX)).sync()
        segment.finish_indexes()
        return next_offset

    def _cut_off(self, index: int, position: int, end_offset: int) -> None:
        """End the segment at the byte, where its offsets end."""
        segment = self.segments[index]
        if index + 1 < len(self.segments) and self.segments[index + 1].base_offset != end_offset:
            # First, and the last ones first: a compacted log does not show a hole once its edge is smooth.
            self._drop(index + 1)
        file = segment.file()
        file.truncate(position)
        # The log may end at its recovery point now: a clean stop would have nothing to sync, and a power loss after it
        # bring back, in a log that is marked as clean, what was cut off.
        file.sync()
        segment.size = position

    def _trusted_end(self, segment: Segment, recovery_point: int) -> tuple[int, int]:
        """Return (position, offset) from which the segment is read again, with its indexes cut to there."""
        if recovery_point > segment.base_offset:
            try:
                segment.offsets().truncate_to(recovery_point)
                segment.times().truncate_to(recovery_point)
                start = self._resume_below(segment)
                if start is not None:
                    return start
            except KafkaError:
                # A broken index over a torn log. Whatever is wrong with the log, reading it all will say.
                pass
        segment.reset_indexes()
        return 0, segment.base_offset

    def _resume_below(self, segment: Segment) -> tuple[int, int] | None:
        position = segment.offsets().last_position()
        if position >= segment.size:
            return None
        next_offset = segment.base_offset
        for found in segment.scan(position):
            next_offset = found.header.base_offset
            break
        segment.resume_from_index()
        return position, next_offset

    def _drop(self, index: int) -> None:
        """Remove segments after one that was cut off: their offsets no longer follow its end."""
        for segment in reversed(self.segments[index:]):
            self.environment.owner.repaired(f"{segment.path}: removed: the segment before it has lost its end")
            for path in segment.file_paths():
                self.environment.files.forget(path)
                self.environment.disk.remove(path)
        self.environment.disk.sync_directory(self.directory)
        del self.segments[index:]

    def end_offset(self, log_start_offset: int) -> int:
        """Where the last segment ends; an empty segment at the log start offset if there is nothing above it."""
        while self.segments:
            last = self.segments[-1]
            if not last.size:
                last.reset_indexes()
                end_offset = last.base_offset
            else:
                end_offset = self._end_of(last)
            if end_offset < log_start_offset:
                self.environment.owner.repaired(
                    f"{self.directory}: ends at offset {end_offset}, below its start {log_start_offset}; "
                    "all segments are removed"
                )
                self._drop(0)
                self.epochs.clear()
                break
            return end_offset
        segment = Segment(self.environment.files, self.directory, log_start_offset, 0, self.environment.clock.now_ms())
        segment.configure(self.config.index_interval_bytes, self.config.segment_index_bytes)
        segment.create()
        self.segments.append(segment)
        return log_start_offset

    def _end_of(self, last: Segment) -> int:
        try:
            found = last.resume()
            return last.base_offset if found is None else found
        except KafkaError as error:
            # Closed cleanly, and damaged since.
            self.environment.owner.repaired(f"{error.message}; the segment is checked")
            self._recover_segment(len(self.segments) - 1, last.base_offset)
            found = last.resume()
            return last.base_offset if found is None else found

    def lacks_first_epochs(self, log_start_offset: int) -> bool:
        """Whether the epochs of the first batches are forgotten: they were deleted, and a crash has undone that.

        A follower notes a new log start on the disk only after it has taken it over.
        """
        entries = self.epochs.entries()
        if not entries or entries[0][1] <= log_start_offset:
            return False
        try:
            first = next(self.segments[0].scan(0), None)
        except KafkaError:
            return False
        return first is not None and first.header.base_offset < entries[0][1]

    def rebuild_epochs(self) -> None:
        """Read the epochs from all batches: the checkpoint is lost, and the check of the last batches has found where
        epochs continue, not where they began.
        """
        found = self.epochs.entries()
        self.epochs.clear()
        try:
            for segment in self.segments:
                for _, header in segment.scan(0):
                    if header.partition_leader_epoch > self.epochs.latest:
                        self.epochs.assign(header.partition_leader_epoch, header.base_offset)
                        self.epochs_changed = True
        except KafkaError as error:
            self.environment.owner.repaired(f"{error.message}; leader epochs after it are unknown")
            for epoch, start_offset in found:
                if epoch > self.epochs.latest:
                    self.epochs.assign(epoch, start_offset)


# --- producers ---


def restore_producers(
    directory: str,
    segments: list[Segment],
    producers: ProducerStates,
    environment: LogEnvironment,
    snapshots: list[int],
    end_offset: int,
    log_start_offset: int,
) -> list[int]:
    """Bring the producers' state to the end of the log: newest usable snapshot, then the batches after it.

    Answers the snapshots that remain; later and broken ones, and those that no segment begins at, are removed.
    """
    disk = environment.disk
    producers.clear()
    bases = {segment.base_offset for segment in segments}
    kept = [offset for offset in snapshots if offset <= end_offset]
    removed = [offset for offset in snapshots if offset > end_offset]
    start_offset = log_start_offset
    while kept:
        path = segment_path(directory, kept[-1], SNAPSHOT)
        try:
            producers.load(disk.read_file(path))
            producers.complete_windows(_tail(segments, kept[-1]))
            # Not from the log's start, if that is later: the markers below it may end what the snapshot has open.
            start_offset = max(kept[-1], segments[0].base_offset)
            if start_offset > kept[-1]:
                # What is gone between the two may have ended its transactions and continued its sequences: who is
                # not known may begin with any, who is known by an old one is refused for ever.
                producers.clear()
            _forget_compacted(segments, producers)
            break
        except CorruptSnapshot as error:
            environment.owner.repaired(f"{path} is damaged: {error}; an older snapshot and the batches replace it")
            removed.append(kept.pop())
    stray = [offset for offset in kept[:-1] if offset not in bases]
    for offset in (*removed, *stray):
        disk.remove(segment_path(directory, offset, SNAPSHOT))
    kept = [offset for offset in kept if offset not in stray]
    if start_offset < end_offset:
        for offset, data in _replay(segments, producers, start_offset, environment.owner.repaired):
            disk.write_atomic(segment_path(directory, offset, SNAPSHOT), data, sync=False)
            kept.append(offset)
    return kept


def _forget_compacted(segments: list[Segment], producers: ProducerStates) -> None:
    """Forget open transactions of a snapshot whose first batches are gone, though the log begins before them.

    Compaction takes nothing that is not decided, so they ended long ago, and it may have taken their markers, too.
    """
    for first_offset, producer_id in producers.open_transactions():
        slot = bisect_right(segments, first_offset, key=lambda segment: segment.base_offset) - 1
        if slot < 0:
            # The log begins later: records were deleted, decided or not.
            continue
        try:
            found = segments[slot].locate(first_offset)
        except KafkaError:
            continue
        if found is None or found.header.base_offset > first_offset or found.header.producer_id != producer_id:
            producers.forget_transaction(first_offset)


def _tail(segments: list[Segment], end_offset: int) -> Iterator[BatchHeader]:
    """Headers of the last batches before an offset, of as many segments as the window takes; of a segment in which
    something else than batches lies those before that.
    """
    last = bisect_right(segments, end_offset - 1, key=lambda segment: segment.base_offset) - 1
    if last < 0:
        return
    first, size = last, segments[last].size
    while first > 0 and size < _WINDOW_BYTES:
        first -= 1
        size += segments[first].size
    for segment in segments[first : last + 1]:
        try:
            position = 0
            if segment.size > _WINDOW_BYTES:
                position = segment.offsets().floor(segment.size - _WINDOW_BYTES, end_offset)
            for at in segment.scan(position):
                if at.header.base_offset >= end_offset:
                    return
                yield at.header
        except KafkaError:
            continue


def _replay(
    segments: list[Segment], producers: ProducerStates, start_offset: int, report: Callable[[str], None]
) -> Iterator[tuple[int, bytes]]:
    """Replay what follows the offset, and give snapshots to write where the last two segments begin, as Kafka does.

    Damage below the recovery point stays where it is: reads of the damaged batches fail, others succeed.
    Apache Kafka does not open such a log.
    """
    first = max(0, bisect_right(segments, start_offset, key=lambda segment: segment.base_offset) - 1)
    for index in range(first, len(segments)):
        segment = segments[index]
        if index >= len(segments) - 2 and segment.base_offset > start_offset:
            yield segment.base_offset, producers.snapshot()
        try:
            found = segment.locate(start_offset)
            for at in () if found is None else segment.scan(found.position):
                if at.header.has_producer_id:
                    _replay_batch(segment, at, producers)
        except KafkaError as error:
            report(f"{error.message}; what producers did in the rest of the segment is not known")


def _replay_batch(segment: Segment, at: Located, producers: ProducerStates) -> None:
    header = at.header
    if not header.is_control:
        producers.apply(header, header.base_offset)
        return
    replay_marker(producers, segment, header, control_record(segment.read_batch(at), 0, header))
