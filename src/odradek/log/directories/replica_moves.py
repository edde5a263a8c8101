"""Replicas that move to another log directory: begin, copy, exchange, and finish an exchange after a crash."""

from __future__ import annotations

import asyncio
import errno
from typing import Final

from odradek.log.directories.background_recovery import LANE as RECOVERY_LANE
from odradek.log.directories.background_recovery import recover
from odradek.log.directories.checkpoint_formats import LOG_START_OFFSETS, format_partition_metadata
from odradek.log.directories.flusher import LogFlusher
from odradek.log.directories.log_directory import LogDirectory
from odradek.log.directories.offset_checkpoints import OffsetCheckpoints
from odradek.log.directories.placed_logs import PlacedLogs
from odradek.log.directories.replica_copy import TAKES_OVER, Move, future_name
from odradek.log.disk_errors import is_transient
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.files import PARTITION_METADATA
from odradek.records.topic_partition import PartitionKey
from odradek.wire.errors import ErrorCode, KafkaError

RETRY_SECONDS: Final = 1.0
"""After want of descriptors."""


class ReplicaMoves:
    """All moves of a broker. `begin`, then `copy` until nothing is left, then `exchange`."""

    __slots__ = ("_checkpoints", "_flusher", "_places", "under_way")

    def __init__(self, places: PlacedLogs, flusher: LogFlusher, checkpoints: OffsetCheckpoints) -> None:
        self._places = places
        self._flusher = flusher
        self._checkpoints = checkpoints
        self.under_way: dict[PartitionKey, Move] = {}

    def found(self, key: PartitionKey, directory: LogDirectory, path: str) -> None:
        """A start has found the future replica."""
        self.under_way.setdefault(key, Move(directory, path))

    def finish_interrupted(self) -> None:
        """Finish the exchanges that a crash interrupted; every directory is read by then."""
        for key, move in list(self.under_way.items()):
            try:
                self._finish_interrupted(key, move)
            except OSError as error:
                self._places.failed(move.path, error)

    def _finish_interrupted(self, key: PartitionKey, move: Move) -> None:
        """Finish the exchange of a complete replica; an incomplete one continues if its source is here."""
        source = self._places.where.get(key)
        name = f"{key[0]}-{key[1]}"
        if self._places.disk.exists(f"{move.path}/{TAKES_OVER}"):
            del self.under_way[key]
            if source is not None:
                start = source.log_starts.get(key)
                try:
                    self._places.doom(f"{source.path}/{name}", key, 0)
                except OSError as error:
                    # What it would be given from here on would be lost when the copy takes over after all.
                    self._places.failed(source.path, error)
                    return
                source.forget(key)
                if start is not None:
                    move.directory.log_starts[key] = start
            # The partition lies there from here on: without its name it is offline, and no empty one is made.
            self._places.where[key] = move.directory
            move.directory.known += 1
            move.directory.unrecovered.add(key)
            self._places.disk.rename(move.path, f"{move.directory.path}/{name}")
        elif source is None and not any(directory.offline for directory in self._places.directories):
            del self.under_way[key]
            self._places.doom(move.path, key, 0)

    def begin(self, log: PartitionLog, directory: LogDirectory, topic_id: bytes) -> None:
        """Begin to copy the log to the directory; what was on its way elsewhere is dropped. KafkaError."""
        key = (log.topic, log.partition)
        present = self.under_way.get(key)
        if present is not None and present.directory is directory:
            return
        if self._places.where.get(key) is directory:
            self.cancel(*key)
            return
        path = f"{directory.path}/{future_name(*key, self._places.random.uuid().hex())}"
        try:
            # What is known there of an earlier replica would be believed of this one when it has taken over.
            self._checkpoints.clear(directory, key)
            self._places.disk.make_directories(path)
            identity = format_partition_metadata(topic_id)
            self._places.disk.write_atomic(f"{path}/{PARTITION_METADATA}", identity, sync=False)
        except OSError as error:
            raise self._places.not_made(path, key, error) from error
        self.cancel(*key)
        self.under_way[key] = Move(directory, path)
        self._places.events.work_is_due()

    def cancel(self, topic: str, partition: int) -> None:
        """Give up what is on its way, if there is something."""
        move = self.under_way.pop((topic, partition), None)
        if move is None:
            return
        if move.log is not None:
            move.log.fail(f"{move.path} is given up")
        if move.directory.offline is not None:
            return
        try:
            self._places.doom(move.path, (topic, partition), 0)
        except OSError as error:
            self._places.failed(move.path, error)

    async def copy(self, source: PartitionLog) -> int:
        """Copy the next chunk of a log that moves; the number of bytes. KafkaError if a disk fails."""
        move = self.under_way[source.topic, source.partition]
        if source.is_offline:
            # It can say that nothing is left, and never give way: other moves would wait for this one for ever.
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{source.directory} can no longer be copied: it is offline"
            )
        if move.directory.offline is not None:
            self.cancel(source.topic, source.partition)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{move.path} is given up: {move.directory.offline}")
        if move.log is None:
            try:
                await self._check(move, source)
            finally:
                given_up = self.under_way.get((source.topic, source.partition)) is not move
                if given_up:
                    # The check may have created the directory again, however it ended.
                    self._places.remove_traces(move.path, (source.topic, source.partition))
            if given_up:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{move.path} is given up")
            # Of an exchange that failed some may be open, and the check has changed them.
            self._places.environment.files.forget_directory(move.path)
            move.log = PartitionLog.open(
                source.topic, source.partition, move.path, source.config, self._places.environment, clean=True
            )
        try:
            return await move.copy(source, self._places.disk, self._places.clock.now_ms())
        except OSError as error:
            raise self._places.storage_error(source.directory, error) from error

    async def _check(self, move: Move, source: PartitionLog) -> None:
        """Behind the Disk port: after a restart it may be much."""
        try:
            await self._places.disk.run(
                f"{RECOVERY_LANE} {move.directory.path} moves",
                recover,
                self._places.disk,
                self._places.clock,
                (source.topic, source.partition, move.path),
                source.config,
                0,
                0,
            )
        except KafkaError as error:
            given_up = self.under_way.get((source.topic, source.partition)) is not move
            if isinstance(error.__cause__, OSError) and not given_up:
                self._places.failed(move.path, error.__cause__)
            raise

    async def exchange(self, source: PartitionLog) -> PartitionLog | None:
        """Let the copied replica take over: the partition's log from now on; None if it has fallen behind again.

        Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        key = (source.topic, source.partition)
        move = self.under_way[key]
        log = move.log
        assert log is not None
        if source.durability.has_queued:
            await self._places.writer_of(source.directory).drained()
        await self._flusher.flush(log.durability, end_offset := log.end_offset)
        if log.durability.recovery_point < end_offset:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{move.path} cannot be synced now")
        log_start_offset = move.directory.log_starts[key] = source.log_start_offset
        failure = await self._checkpoints.persist(LOG_START_OFFSETS)
        if failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure
        given_up = self.under_way.get(key) is not move or move.directory.offline is not None
        stays = given_up or source.is_offline or source.log_start_offset != log_start_offset
        if stays or not self._finish(source, move):
            return None
        directory = self._places.where[key]
        path = f"{move.directory.path}/{key[0]}-{key[1]}"
        # It shares the producers of the source: if the rest fails it must not continue with them.
        move.log = None
        log.take_over(source)
        # Syncs what was copied in this thread: in the source it may be synced, and that is deleted soon.
        log.close()
        self._change_places(source, move, path)
        del self.under_way[key]
        self._places.pending.forget(source.durability)
        self._places.pending.forget(log.durability)
        source.fail(f"{source.directory} was moved to {path}")
        log.fail(f"{move.path} was renamed to {path}")
        directory.forget(key)
        move.directory.known += 1
        self._places.where[key] = move.directory
        return await self._take_place(source, move.directory, path, log_start_offset)

    async def _take_place(
        self, source: PartitionLog, directory: LogDirectory, path: str, log_start_offset: int
    ) -> PartitionLog | None:
        """Open the partition's new log, as soon as there are descriptors: no other task would. None if that is
        over meanwhile. KafkaError if the disk fails.
        """
        places, key = self._places, (source.topic, source.partition)
        # Opening a log that was deleted in between would create it again.
        while places.logs.get(key) is source and places.where.get(key) is directory and directory.offline is None:
            try:
                moved = PartitionLog.open(
                    *key, path, source.config, places.environment, log_start_offset=log_start_offset, clean=True
                )
            except KafkaError as error:
                if not is_transient(error.__cause__):
                    raise
                places.report(
                    f"could not open the moved replica {path}: {error.message}; retrying in {RETRY_SECONDS:g} s"
                )
                await asyncio.sleep(RETRY_SECONDS)
                continue
            moved.after_crash = source.after_crash
            places.logs[key] = moved
            return moved
        return None

    def _finish(self, source: PartitionLog, move: Move) -> bool:
        try:
            return move.finish(source, self._places.clock.now_ms())
        except OSError as error:
            raise self._places.storage_error(source.directory, error) from error

    def _change_places(self, source: PartitionLog, move: Move, path: str) -> None:
        """On the disk, at which the next start finds either of them in charge. KafkaError KAFKA_STORAGE_ERROR.

        From the marker on that is the copy: if it cannot be taken back, nothing more may be written to the source.
        """
        disk, places = self._places.disk, self._places
        try:
            # If there is one it decided against the directory that the source came from: that this one has another
            # name was synced with the checkpoint of `exchange`. An earlier try may have removed it, and no more.
            disk.remove(f"{source.directory}/{TAKES_OVER}")
            disk.sync_directory(source.directory)
        except OSError as error:
            raise places.storage_error(source.directory, error) from error
        failing = move.path
        try:
            disk.write_atomic(f"{move.path}/{TAKES_OVER}", b"")
            failing = source.directory
            places.doom(source.directory, (source.topic, source.partition), source.config.file_delete_delay_ms)
        except OSError as error:
            try:
                # Without a descriptor the marker was not created, and needs no removal to be synced.
                if not is_transient(error) or disk.exists(f"{move.path}/{TAKES_OVER}"):
                    disk.remove(f"{move.path}/{TAKES_OVER}")
                    disk.sync_directory(move.path)
            except OSError:
                source.fail(f"{move.path} takes over from {source.directory} at the next start")
                if is_transient(error):
                    # A transient error takes no directory offline, so that the failed log would go unnoticed.
                    failing, error = (
                        source.directory,
                        OSError(errno.EIO, f"could not undo the move of a replica: {error}"),
                    )
            raise places.storage_error(failing, error) from error
        try:
            disk.rename(move.path, path)
        except OSError as error:
            source.fail(f"{move.path} takes over from {source.directory} at the next start")
            raise places.storage_error(move.path, error) from error
