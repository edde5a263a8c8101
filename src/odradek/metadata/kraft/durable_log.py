"""The directory `__cluster_metadata-0` of a broker or controller: the metadata log, its snapshots, and its start.

The log begins at the end of its newest snapshot. A snapshot is durable before the log gives up the records that it
replaces, so that a crash between the two leaves both, and `open` completes the change.
Source: KIP-630; Kafka's `KafkaMetadataLog`, `Snapshots`.
"""

from __future__ import annotations

from typing import Any, Final

from odradek.kraft.checkpoints import Checkpoint, CheckpointId, parse_file_name, read_checkpoint
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.metadata_log import read_controls
from odradek.kraft.metadata_observer import BEGINNING, LogEnd
from odradek.kraft.raft.log_index import LogIndex
from odradek.kraft.raft.voter_history import VoterHistory
from odradek.log.append import Origin
from odradek.log.config import UNLIMITED, LogConfig
from odradek.log.environment import LogEnvironment
from odradek.log.partition_log import PartitionLog
from odradek.ports.disk import Bytes, File
from odradek.records.batch import split_batches
from odradek.records.errors import CorruptRecords
from odradek.wire.errors import ErrorCode, KafkaError

TOPIC: Final = "__cluster_metadata"
DIRECTORY: Final = f"{TOPIC}-0"
LARGEST_BATCH_BYTES: Final = 8 << 20
"""Of a batch of the metadata log, and of one answer to a Fetch (KafkaRaftClient.MAX_BATCH_SIZE_BYTES)."""
_PART: Final = ".part"
"""What a snapshot's file name ends with while its bytes arrive."""
_READ_BYTES: Final = 1 << 20
_SNAPSHOTS_KEPT: Final = 2
"""The newest one, and the one before for replicas that are fetching it."""


class DurableMetadataLog:
    """The log between `start` and `log_end`, and the snapshots.

    Changes are durable once `sync` returns, snapshots at once. Methods raise KafkaError KAFKA_STORAGE_ERROR or OSError
    if the disk fails. All are synchronous and belong to one thread.
    """

    def __init__(self, log: PartitionLog, environment: LogEnvironment, snapshots: list[CheckpointId]) -> None:
        """Take what `open` has loaded."""
        self._log = log
        self._environment = environment
        self._disk = environment.disk
        self._snapshots = snapshots
        self._part: tuple[CheckpointId, File] | None = None

    @classmethod
    def open(cls, parent: str, environment: LogEnvironment, *, segment_bytes: int = 1 << 30) -> DurableMetadataLog:
        """Open or create the log in the directory `parent` (`metadata.log.dir`), which exists durably.

        All batches are checked, and the log is cut off at the first that is torn or damaged; the environment's owner
        reports a repair. `segment_bytes` is `metadata.log.segment.bytes`. Raises CorruptMetadata if the log does not
        begin at 0 and no snapshot holds the records before its beginning.
        """
        directory, disk = f"{parent}/{DIRECTORY}", environment.disk
        disk.make_directories(directory)
        # A snapshot or a vote is durable only if the name of its directory is.
        disk.sync_directory(parent)
        names = disk.list(directory)
        for name in names:
            if name.endswith(_PART):
                disk.remove(f"{directory}/{name}")
        snapshots = sorted(found for name in names if (found := parse_file_name(name)) is not None)
        config = LogConfig(
            segment_bytes=segment_bytes,
            retention_ms=UNLIMITED,
            max_message_bytes=LARGEST_BATCH_BYTES,
            file_delete_delay_ms=0,
        )
        opened = cls(PartitionLog.open(TOPIC, 0, directory, config, environment), environment, snapshots)
        opened._begin_at_newest_snapshot()
        opened.sync()
        return opened

    def close(self) -> None:
        """Sync the log and close its files. One whose disk has failed is left to the next start, which recovers it."""
        if self._part is not None:
            self._part[1].close()
            self._part = None
        if not self._log.is_offline:
            self._log.close()

    # --- the log ---

    @property
    def directory(self) -> str:
        """The path that ends with `__cluster_metadata-0`."""
        return self._log.directory

    @property
    def start(self) -> LogEnd:
        """The end of the newest snapshot, with which the log begins."""
        return LogEnd(*self._snapshots[-1]) if self._snapshots else BEGINNING

    @property
    def log_end(self) -> LogEnd:
        """The end offset, and the epoch of the last record: that of the snapshot if none follows it."""
        epochs = self.epochs
        return LogEnd(self._log.end_offset, epochs[-1][0] if epochs else self.start.epoch)

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, first offset) of the records since `start`, in order."""
        end = self._log.end_offset
        return [each for each in self._log.history.leader_epochs.entries() if each[1] < end]

    def append(self, batches: bytes | memoryview) -> LogEnd:
        """Append complete batches, which have their offsets and epochs, and return the end of the log.

        Raises KafkaError, before anything is written, if they are damaged or do not follow the end of the log.
        """
        # An append may write into its argument, which may be a slice of an answer that others read, too.
        self._log.append(
            memoryview(bytearray(batches)),
            leader_epoch=-1,
            now_ms=self._environment.clock.now_ms(),
            origin=Origin.REPLICATION,
        )
        self._log.durability.finish_writes()
        return self.log_end

    def truncate_to(self, offset: int) -> LogEnd:
        """Remove every batch that ends above the offset, and return the end of the log.

        Raises ValueError for an offset below `start`: a snapshot holds only committed records.
        """
        if offset < self.start.offset:
            raise ValueError(f"the metadata log begins at {self.start.offset} and cannot be truncated to {offset}")
        self._log.truncate_to(offset)
        return self.log_end

    def read(self, offset: int, max_bytes: int, *, below: int | None = None) -> bytes:
        """Complete batches from the one that contains the offset on, at least one if there is one.

        `below` limits them to those that end at that offset or before it. Raises KafkaError OFFSET_OUT_OF_RANGE for an
        offset before `start` or above the end.
        """
        upper = self._log.end_offset if below is None else below
        found = self._log.reader.read(offset, max_bytes, upper_offset=upper)
        return b"".join(part.file.read(part.position, part.size) for part in found.ranges)

    def sync(self) -> LogEnd:
        """Make the log durable, and return its end."""
        self._log.durability.flush(snapshot=False)
        return self.log_end

    async def sync_in_thread(self, lane: str) -> LogEnd | None:
        """Make durable what the log holds now, in the disk's thread `lane`, and return the end that is durable.

        None where the log was truncated meanwhile. One call at a time; changes of the log may happen beside it.
        """
        end, durability = self.log_end, self._log.durability
        plan = durability.plan_flush(snapshot=False)
        if plan is not None:
            await self._disk.run(lane, plan.sync, self._disk)
            durability.finish_flush(plan)
        return end if self._log.durability.recovery_point >= end.offset else None

    def index(self) -> LogIndex:
        """What Raft decides by, after `open`: all of the log is durable then."""
        size = self._disk.size(self._path(self._snapshots[-1])) if self._snapshots else 0
        return LogIndex(
            start=self.start,
            epochs=self.epochs,
            end_offset=self._log.end_offset,
            snapshot_size=size,
            history=self._read_history(),
        )

    # --- snapshots ---

    @property
    def snapshots(self) -> list[CheckpointId]:
        """The complete snapshots, the oldest first."""
        return list(self._snapshots)

    def load_snapshot(self) -> Checkpoint | None:
        """The content of the newest snapshot; None without one. Raises CorruptMetadata."""
        if not self._snapshots:
            return None
        newest = self._snapshots[-1]
        try:
            return read_checkpoint(self._disk.read_file(self._path(newest)))
        except CorruptMetadata as error:
            raise CorruptMetadata(f"{self._path(newest)}: {error}") from error

    def read_snapshot(self, found: CheckpointId, position: int, max_bytes: int) -> tuple[bytes, int]:
        """At most `max_bytes` of a snapshot's file from that position on, and the size of the file.

        Raises KafkaError SNAPSHOT_NOT_FOUND and POSITION_OUT_OF_RANGE.
        """
        if found not in self._snapshots:
            raise KafkaError(ErrorCode.SNAPSHOT_NOT_FOUND, f"there is no {found.file_name}")
        file = self._disk.open(self._path(found))
        try:
            size = file.size()
            if not 0 <= position < size:
                raise KafkaError(ErrorCode.POSITION_OUT_OF_RANGE, f"{found.file_name} has {size} bytes")
            return file.read(position, min(max_bytes, size - position)), size
        finally:
            file.close()

    def write_snapshot(self, found: CheckpointId, position: int, data: Bytes) -> None:
        """Write the next bytes of a snapshot that is being fetched; position 0 begins it.

        Raises ValueError for a position other than the end of what has been written.
        """
        if position == 0:
            if self._part is not None:
                self._drop_part()
            file = self._disk.open(self._path(found) + _PART, create=True)
            file.truncate(0)
            self._part = found, file
        if self._part is None or self._part[0] != found or self._part[1].size() != position:
            raise ValueError(f"position {position} is not the next one of {found.file_name}")
        self._part[1].append([data])

    def install_snapshot(self, found: CheckpointId) -> Checkpoint:
        """Replace the log by the snapshot that has been written, and return its content.

        The log is then empty and begins at the snapshot's end. Raises CorruptMetadata, with the log unchanged, if the
        file is damaged, and ValueError if its bytes were not written, or it ends before `start`.
        """
        if self._part is None or self._part[0] != found or found.end_offset < self.start.offset:
            raise ValueError(f"{found.file_name} cannot be installed")
        part = self._path(found) + _PART
        try:
            content = read_checkpoint(self._disk.read_file(part))
        except CorruptMetadata as error:
            self._drop_part()
            raise CorruptMetadata(f"{part}: {error}") from error
        file, self._part = self._part[1], None
        file.sync()
        file.close()
        self._disk.rename(part, self._path(found))
        self._disk.sync_directory(self.directory)
        self._note(found)
        self._log.truncate_fully_and_start_at(found.end_offset)
        self.sync()
        self._remove_old_snapshots()
        return content

    def save_snapshot(self, found: CheckpointId, data: Bytes) -> None:
        """Write a snapshot of committed records, durably; the log then begins at its end.

        Raises ValueError unless it ends in the log, after `start`, and has the epoch of its last record.
        """
        end, epoch = found
        if not self.start.offset < end <= self._log.end_offset or self._epoch_before(end) != epoch:
            raise ValueError(f"{found.file_name} does not end in the log, from {self.start} to {self.log_end}")
        self._disk.write_atomic(self._path(found), data)
        self._note(found)
        self._begin_at_newest_snapshot()

    # --- inside ---

    def _path(self, found: CheckpointId) -> str:
        return f"{self.directory}/{found.file_name}"

    def _epoch_before(self, offset: int) -> int:
        """The epoch of the record before the offset; -1 if the log does not know it."""
        return self._log.history.leader_epochs.epoch_for(offset - 1)

    def _read_history(self) -> VoterHistory:
        """The voters that the newest snapshot and the log after it hold. Raises CorruptMetadata."""
        history = VoterHistory()
        try:
            if self._snapshots:
                history.replace_by(self.start.offset, self._snapshot_controls(self._snapshots[-1]))
            offset = self.start.offset
            while offset < self._log.end_offset:
                batches = memoryview(self.read(offset, _READ_BYTES))
                for position, header in split_batches(batches, allow_partial_tail=False):
                    for at, control in enumerate(read_controls(batches, position), header.base_offset):
                        if at >= self.start.offset:
                            history.append(at, control)
                    offset = header.next_offset
        except CorruptRecords as error:
            raise CorruptMetadata(f"{self.directory}: {error}") from error
        return history

    def _snapshot_controls(self, found: CheckpointId) -> list[Any]:
        """The control records with which a snapshot begins; they fit into one read."""
        data, _size = self.read_snapshot(found, 0, _READ_BYTES)
        controls: list[Any] = []
        for position, header in split_batches(memoryview(data), allow_partial_tail=True):
            if not header.is_control:
                break
            controls += read_controls(memoryview(data), position)
        return controls

    def _note(self, found: CheckpointId) -> None:
        self._snapshots = sorted({*self._snapshots, found})

    def _drop_part(self) -> None:
        assert self._part is not None
        found, file = self._part
        self._part = None
        file.close()
        self._disk.remove(self._path(found) + _PART)

    def _begin_at_newest_snapshot(self) -> None:
        """Let the log begin where the newest snapshot ends. A log that does not reach or contradicts it is replaced."""
        log = self._log
        base = log.log_start_offset
        newest = self._snapshots[-1] if self._snapshots else CheckpointId(0, 0)
        if base > newest.end_offset:
            raise CorruptMetadata(
                f"{self.directory}: the log begins at offset {base} and no snapshot holds the records before it"
            )
        known = self._epoch_before(newest.end_offset)
        if log.end_offset < newest.end_offset or (base < newest.end_offset and known not in (-1, newest.epoch)):
            log.truncate_fully_and_start_at(newest.end_offset)
        elif log.advance_log_start(newest.end_offset):
            while log.delete_old_segments(self._environment.clock.now_ms(), newest.end_offset):
                pass
        self._remove_old_snapshots()

    def _remove_old_snapshots(self) -> None:
        for old in self._snapshots[:-_SNAPSHOTS_KEPT]:
            self._disk.remove(self._path(old))
        self._snapshots = self._snapshots[-_SNAPSHOTS_KEPT:]
