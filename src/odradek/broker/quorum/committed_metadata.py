"""The cluster as the committed records of the metadata log say, on a replica of the quorum; and its snapshots.

Source: Kafka's `QuorumController.QuorumMetaLogListener`, `SnapshotGenerator`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

from odradek.broker.kraft.committed_replay import CommittedReplay
from odradek.broker.kraft.metadata_snapshots import MetadataSnapshots
from odradek.broker.task_failures import logs_failure
from odradek.kraft.checkpoints import Checkpoint, CheckpointId
from odradek.metadata.image import ClusterImage
from odradek.metadata.kraft.durable_log import DurableMetadataLog
from odradek.ports.clock import Clock

logger = logging.getLogger("odradek.broker.quorum")
_log_failure = logs_failure(logger, "replaying the metadata log failed")


class CommittedMetadata:
    """`load`, then what `Follower` says; subscribers are called after each replay. `close` ends it."""

    __slots__ = (
        "_committed",
        "_failed",
        "_log",
        "_replay",
        "_snapshot_written",
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
        self._replay = CommittedReplay(log, clock, snapshots, cluster_id)
        self._snapshot_written = snapshot_written
        self._failed = failed
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
        return self._replay.waiting_records()

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
        await self._replay.load()
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
        """See `Follower`."""
        self._replay.appended(batches)

    def truncated(self, offset: int) -> None:
        """See `Follower`; the offset is that of a batch."""
        self._replay.truncated(offset)

    def installed(self, content: Checkpoint, end_offset: int) -> None:
        """See `Follower`."""
        self._replay.installed(content, end_offset)
        self._publish()

    def committed(self, high_watermark: int) -> None:
        """See `Follower`."""
        self._committed = high_watermark
        self._woken.set()

    # --- replaying ---

    async def _run(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            if self._committed <= self._replay.end_offset:
                continue
            # What is committed meanwhile is for the next turn.
            await self._replay.replay_to(self._committed)
            self._publish()
            snapshot = await self._replay.write_snapshot_if_due()
            if snapshot is not None:
                _, size = self._log.read_snapshot(snapshot, 0, 1)
                self._snapshot_written(snapshot, size)

    def _publish(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)
        for replayed in self._subscribers:
            replayed()
