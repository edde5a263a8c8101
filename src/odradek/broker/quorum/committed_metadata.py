"""The cluster as the committed records of the metadata log say, on a replica of the quorum; and its snapshots.

Records are replayed once they are committed, in slices, so that a long log does not hold the event loop.
Source: Kafka's `QuorumController.QuorumMetaLogListener`, `MetadataLoader`, `SnapshotGenerator`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from odradek.broker.kraft.metadata_snapshots import MetadataSnapshots
from odradek.broker.task_failures import logs_failure
from odradek.kraft.checkpoints import Checkpoint, CheckpointId
from odradek.kraft.metadata_log import ControlEntry, MetadataEntry, read_entries
from odradek.kraft.metadata_records import decode_metadata_record
from odradek.metadata.image import ClusterImage
from odradek.metadata.kraft.durable_log import DurableMetadataLog
from odradek.metadata.kraft.metadata_replay import MetadataReplay
from odradek.ports.clock import Clock
from odradek.records.batch import LOG_OVERHEAD, split_batches

logger = logging.getLogger("odradek.broker.quorum")
_log_failure = logs_failure(logger, "replaying the metadata log failed")

_READ_BYTES: Final = 1 << 20
_RECORDS_IN_A_TURN: Final = 512
"""Records that are replayed before other work of the event loop gets a turn: some 3 ms."""

Entry = MetadataEntry | ControlEntry


class CommittedMetadata:
    """`load`, then what `Follower` says; subscribers are called after each replay. `close` ends it."""

    __slots__ = (
        "_clock",
        "_cluster_id",
        "_committed",
        "_failed",
        "_log",
        "_pending",
        "_replay",
        "_snapshot_written",
        "_snapshots",
        "_subscribers",
        "_task",
        "_waiting",
        "_woken",
    )

    def __init__(
        self,
        log: DurableMetadataLog,
        clock: Clock,
        snapshots: MetadataSnapshots,
        cluster_id: str,
        snapshot_written: Callable[[CheckpointId, int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """`snapshot_written` is called with a snapshot that is durable, and its size in bytes."""
        self._log = log
        self._clock = clock
        self._snapshots = snapshots
        self._cluster_id = cluster_id
        self._snapshot_written = snapshot_written
        self._failed = failed
        self._replay = MetadataReplay(ClusterImage(cluster_id))
        self._pending: deque[tuple[int, bytes]] = deque()
        """Batches by their first offset, of which some records may not be replayed."""
        self._committed = 0
        self._subscribers: list[Callable[[], None]] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def image(self) -> ClusterImage:
        """The image after the replayed records."""
        return self._replay.image

    @property
    def end_offset(self) -> int:
        """The offset after the last replayed record."""
        return self._replay.end_offset

    @property
    def log_end_offset(self) -> int:
        """The offset after the last record of the log, committed or not."""
        return self._log.log_end.offset

    def waiting_records(self) -> Iterator[Any]:
        """The records of the log that are not replayed, in their order. Raises CorruptMetadata."""
        for _offset, batch in self._pending:
            for entry in read_entries(batch, whole=True):
                if isinstance(entry, MetadataEntry) and entry.offset >= self.end_offset:
                    yield decode_metadata_record(entry.value).record

    @property
    def is_in_transaction(self) -> bool:
        """Whether the log ends within a metadata transaction (KIP-868)."""
        return self._replay.is_in_transaction

    def subscribe(self, replayed: Callable[[], None]) -> None:
        """Call after each replay of committed records."""
        self._subscribers.append(replayed)

    async def wait_until_replayed(self, offset: int) -> None:
        """Wait until all records below the offset are replayed."""
        while self.end_offset < offset:
            replayed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(replayed)
            await replayed

    # --- life ---

    async def load(self) -> None:
        """Replay the newest snapshot; the records after it wait until they are committed. Raises CorruptMetadata."""
        snapshot, offset = self._log.load_snapshot(), self._log.start.offset
        if snapshot is not None:
            for number, entry in enumerate(snapshot.entries):
                self._replay.read(entry)
                if not number % _RECORDS_IN_A_TURN:
                    await asyncio.sleep(0)
            self._end_snapshot(snapshot, offset)
        while batches := self._log.read(offset, _READ_BYTES) if offset < self._log.log_end.offset else b"":
            self.appended(batches)
            offset = list(read_entries(batches, whole=True))[-1].offset + 1
            await asyncio.sleep(0)
        self._snapshots.begun_at(self._clock.monotonic())
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(_log_failure)
        self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Replay no further records."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    # --- the log ---

    def appended(self, batches: bytes | memoryview) -> None:
        """See `Follower`. Each batch waits by itself, since a truncation may follow that keeps some of them."""
        self._snapshots.appended(len(batches))
        view = memoryview(batches)
        for position, header in split_batches(view, allow_partial_tail=False):
            end = position + header.batch_length + LOG_OVERHEAD
            self._pending.append((header.base_offset, bytes(view[position:end])))

    def truncated(self, offset: int) -> None:
        """See `Follower`; the offset is that of a batch."""
        while self._pending and self._pending[-1][0] >= offset:
            self._pending.pop()

    def installed(self, content: Checkpoint, end_offset: int) -> None:
        """See `Follower`."""
        self._pending.clear()
        self._replay = MetadataReplay(ClusterImage(self._cluster_id))
        for entry in content.entries:
            self._replay.read(entry)
        self._end_snapshot(content, end_offset)
        self._publish()

    def committed(self, high_watermark: int) -> None:
        """See `Follower`."""
        self._committed = high_watermark
        self._woken.set()

    def _end_snapshot(self, content: Checkpoint, end_offset: int) -> None:
        for control in content.controls:
            self._replay.read_control(control)
        self._replay.end_snapshot(end_offset)
        self._snapshots.begun_at(self._clock.monotonic())

    # --- replaying ---

    async def _run(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            if self._committed <= self._replay.end_offset:
                continue
            await self._replay_committed()
            self._publish()
            if self._snapshots.is_due(self._clock.monotonic()):
                await self._write_snapshot()

    async def _replay_committed(self) -> None:
        # What is committed meanwhile is for the next call: a batch is read from its first record that is new.
        committed, replay, count = self._committed, self._replay, 0
        while self._pending and self._pending[0][0] < committed:
            entries = list(read_entries(self._pending[0][1], whole=True))
            for entry in entries:
                if not replay.end_offset <= entry.offset < committed:
                    continue
                replay.read(entry)
                count += 1
                if not count % _RECORDS_IN_A_TURN:
                    await asyncio.sleep(0)
                    if replay is not self._replay:
                        return  # a snapshot has replaced the log meanwhile
            if entries[-1].offset >= committed:
                return
            self._pending.popleft()

    def _publish(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)
        for replayed in self._subscribers:
            replayed()

    async def _write_snapshot(self) -> None:
        before = self._log.start
        await self._snapshots.write(self._replay, self._log)
        if self._log.start != before:
            found = CheckpointId(*self._log.start)
            _, size = self._log.read_snapshot(found, 0, 1)
            self._snapshot_written(found, size)
