"""Taking `log.dirs` into use: lock them, read what they hold, resolve what a crash left, set strays aside (LogManager).

Reads the names in each directory and four small files, however many partitions there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from math import inf
from typing import Final

from odradek.log.directories.checkpoint_formats import LOCK, CorruptCheckpoint, MetaProperties, parse_partition_metadata
from odradek.log.directories.log_directory import LogDirectory, LogDirectoryError
from odradek.log.directories.ownership import refuse_foreign
from odradek.log.directories.placed_logs import PlacedLogs
from odradek.log.directories.replica_copy import TAKES_OVER
from odradek.log.directories.replica_moves import ReplicaMoves
from odradek.log.directories.scan import (
    are_those_of_last_use,
    may_have_lost_records,
    note_boots,
    note_epoch,
    note_losses,
    promised_until,
    scan,
)
from odradek.log.segments.files import LOG, PARTITION_METADATA, STRAY_DIRECTORY, segment_path
from odradek.records.topic_partition import PartitionKey

_NOT_ASSIGNED: Final = "is not assigned to this broker"


class DirectoriesStartup:
    """The steps of a start in their order: `lock`, `load`, `set_aside_strays`, `expect`."""

    __slots__ = (
        "_joins_quorum", "_moves", "_places", "_topic_id_of", "adopts", "promised_until", "records_may_be_lost",
    )  # fmt: skip

    def __init__(self, places: PlacedLogs, moves: ReplicaMoves, *, adopts: bool, joins_quorum: bool = False) -> None:
        self._places = places
        self._moves = moves
        self._topic_id_of: Callable[[str], bytes | None] | None = None
        self._joins_quorum = joins_quorum
        self.adopts = adopts
        """Whether a partition's directory that names another topic id is taken over instead of set aside."""
        self.records_may_be_lost = False
        """After `load`: the machine stopped with records that were not synced. After `expect`: a disk was replaced."""
        self.promised_until = -inf
        """After `load`: when the last promises of the process before end, by the machine's monotonic clock; infinity if
        that is unknown."""

    # --- locks ---

    def lock(self) -> None:
        """Create the directories and keep other processes out of them.

        Raises LogDirectoryError when one is in use, or was written by another product or a newer version.
        """
        places = self._places
        for directory in places.directories:
            refuse_foreign(places.disk, directory.path, adopts=self.adopts, joins_quorum=self._joins_quorum)
        for directory in places.directories:
            try:
                places.disk.make_directories(directory.path)
                directory.lock = places.disk.lock(f"{directory.path}/{LOCK}")
            except BlockingIOError as error:
                self.unlock()
                raise LogDirectoryError(
                    f"{directory.path}: another process uses this log directory (it holds {LOCK})"
                ) from error
            except OSError as error:
                directory.offline = f"{directory.path}: {error}"
        self._check_any_online()

    def unlock(self) -> None:
        """Release the locks."""
        for directory in self._places.directories:
            if directory.lock is not None:
                directory.lock.release()
                directory.lock = None

    def _check_any_online(self) -> None:
        directories = self._places.directories
        if all(directory.offline for directory in directories):
            self.unlock()
            reasons = "; ".join(directory.offline or "" for directory in directories)
            raise LogDirectoryError(f"no log directory can be used: {reasons}")

    # --- what the directories hold ---

    def load(
        self,
        *,
        cluster_id: str,
        node_id: int,
        topic_id_of: Callable[[str], bytes | None] | None = None,
    ) -> None:
        """Take the directories into use; locks them if `lock` has not.

        `topic_id_of` distinguishes a deleted topic, whose removal a power loss undid, from the next one of its name.
        Raises LogDirectoryError if a directory belongs to another node, or all of them fail.
        """
        self._topic_id_of = topic_id_of
        if all(directory.lock is None for directory in self._places.directories):
            self.lock()
        try:
            self._load_directories(MetaProperties(cluster_id, node_id, None))
        except LogDirectoryError:
            self.unlock()
            raise
        finally:
            self._topic_id_of = None  # it refers to the whole image of the start

    def _load_directories(self, own: MetaProperties) -> None:
        for directory in self._places.directories:
            if directory.offline is None:
                try:
                    self._load_directory(directory, own)
                except OSError as error:
                    directory.offline = f"{directory.path}: {error}"
            if directory.offline is not None:
                self.promised_until = inf
                self._places.report(f"log directory {directory.offline}")
        self._moves.finish_interrupted()
        self._check_any_online()

    def _load_directory(self, directory: LogDirectory, own: MetaProperties) -> None:
        places = self._places
        found = scan(places.disk, directory, own, places.random, places.report)
        directory.after_crash = not found.clean
        self.promised_until = max(self.promised_until, promised_until(places.disk, found, directory.path))
        if may_have_lost_records(places.disk, found, directory.path):
            self.records_may_be_lost = True
            directory.bound_watermarks()
        for path in found.doomed:
            places.pending.delete_later((path,), 0)
        for key, path in found.futures:
            if self._is_of_earlier_topic(path, key[0]):
                places.doom(path, key, 0)
            else:
                self._moves.found(key, directory, path)
        for key in found.partitions:
            directory.known += 1
            if key in places.where and not self._resolve(key, directory, f"{key[0]}-{key[1]}"):
                continue
            places.where[key] = directory
            if not found.clean:
                directory.unrecovered.add(key)
        directory.was_read = True

    def _resolve(self, key: PartitionKey, directory: LogDirectory, name: str) -> bool:
        """Decide which of two directories keeps a partition that both hold; whether it is the new one.

        An interrupted exchange leaves two, a deletion whose renaming a power loss undid, or a disk that failed while
        the partition was created.
        """
        places = self._places
        other = places.where[key]
        pairs = (directory, other), (other, directory)
        stale = (pair for pair in pairs if self._is_of_earlier_topic(f"{pair[1].path}/{name}", key[0]))
        exchanged = (pair for pair in pairs if places.disk.exists(f"{pair[0].path}/{name}/{TAKES_OVER}"))
        decided = next(chain(stale, exchanged), None)
        if decided is None:
            if self._topic_id_of is not None and self._topic_id_of(key[0]) is None and not self.adopts:
                other.forget(key)
                self.set_aside(key, other, _NOT_ASSIGNED)
                return True
            decided = next((pair for pair in pairs if self._was_never_written(f"{pair[1].path}/{name}")), None)
        if decided is None:
            raise LogDirectoryError(f"{name} is in two log directories, {other.path} and {directory.path}: remove one")
        stays, goes = decided
        places.doom(f"{goes.path}/{name}", key, 0)
        goes.forget(key)
        return stays is directory

    def _was_never_written(self, path: str) -> bool:
        """Whether the partition's directory has held no record since it was created."""
        disk = self._places.disk
        first = segment_path(path, 0, LOG)
        segments = [f"{path}/{name}" for name in disk.list(path) if name.endswith(LOG)]
        return not segments or (segments == [first] and disk.size(first) == 0)

    def _is_of_earlier_topic(self, path: str, topic: str) -> bool:
        """Whether the directory belongs to another topic than the one that has the name now."""
        topic_id = None if self._topic_id_of is None or self.adopts else self._topic_id_of(topic)
        if topic_id is None:
            return False
        try:
            return parse_partition_metadata(self._places.disk.read_file(f"{path}/{PARTITION_METADATA}")) != topic_id
        except (FileNotFoundError, CorruptCheckpoint):
            return False

    # --- what the cluster knows of them ---

    @property
    def has_unread(self) -> bool:
        """Whether a directory could not be read at the start: which partitions it holds is unknown."""
        return not all(directory.was_read for directory in self._places.directories)

    def expect(self, counted_on: Iterable[PartitionKey], *, may_be_new: bool = False) -> None:
        """Note a loss if a partition that the cluster counts as complete here has no directory: its disk was replaced.

        Not while a directory could not be read: the partition may be in it, and is offline then. `may_be_new`: the
        cluster does not know whether this broker has created a partition. One that no checkpoint names is then a new
        one with an empty log, if the directories are those of the last process. LogDirectoryError if the loss cannot be
        noted on the disk for want of a descriptor.
        """
        places = self._places
        if self.records_may_be_lost or self.has_unread:
            return
        missing = [key for key in counted_on if key not in places.where]
        if may_be_new and are_those_of_last_use(places.disk, [each.path for each in places.directories]):
            missing = [key for key in missing if any(each.is_named(key) for each in places.directories)]
        if missing:
            self.records_may_be_lost = True
            places.report(
                f"{len(missing)} partitions have no directory in log.dirs, {missing[0][0]}-{missing[0][1]} first: "
                "their records may be lost; replicas on other brokers take precedence"
            )
            try:
                note_losses(places.disk, places.directories, places.failed)
            except LogDirectoryError:
                self.unlock()
                raise

    def accept_losses(self) -> None:
        """Forget the losses: the cluster no longer relies on records here that may be lost."""
        if self.records_may_be_lost:
            self.records_may_be_lost = False
            note_boots(self._places.disk, self._places.directories, self._places.failed)

    def registered(self, epoch: int) -> None:
        """Note the epoch of this process's registration; with it the controllers of a KRaft cluster judge the losses.

        A process that is killed loses no records: the next one reports this epoch as that of a clean stop (KIP-966).
        """
        self.note_use(epoch)
        self.accept_losses()

    def note_use(self, epoch: int) -> None:
        """Note that the directories are used under the registration of this epoch."""
        places = self._places
        note_epoch(places.disk, places.directories, epoch, places.failed)

    def set_aside_strays(self, is_known: Callable[[str, int], bool]) -> int:
        """Rename the directories of partitions that the cluster does not know here to `-stray`; their number.

        A broker that stops between the deletion of a topic and that of its files leaves some. They are kept, as in
        Kafka: it may be the metadata that lost them. With `adopts` none is renamed: they may be waiting for adoption.
        """
        if self.adopts:
            return 0
        places = self._places
        strays = [key for key, directory in places.where.items() if directory.offline is None and not is_known(*key)]
        renamed = 0
        for key in strays:
            directory = places.where.pop(key)
            directory.forget(key)
            if not places.disk.is_directory(f"{directory.path}/{key[0]}-{key[1]}"):
                continue  # a file, which no broker wrote
            renamed += 1
            try:
                self.set_aside(key, directory, _NOT_ASSIGNED)
            except OSError as error:
                places.failed(directory.path, error)
        return renamed

    def set_aside(self, key: PartitionKey, directory: LogDirectory, why: str) -> None:
        """Rename a partition's directory and keep it, as Kafka: the metadata may have lost it. Raises OSError."""
        stray = self._places.rename_away(f"{directory.path}/{key[0]}-{key[1]}", key, STRAY_DIRECTORY)
        self._places.report(f"{key[0]}-{key[1]} {why}: its directory was renamed to {stray}")
