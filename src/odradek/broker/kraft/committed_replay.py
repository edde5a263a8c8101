"""The metadata log of a node, replayed as far as its records are committed; and the snapshots of the image.

A broker that fetches the log and a replica of the quorum that appends to it do the same with its records. They are
replayed in slices, so that a long log does not hold the event loop. Source: Kafka's `MetadataLoader`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from odradek.broker.kraft.metadata_snapshots import MetadataSnapshots
from odradek.kraft.checkpoints import Checkpoint, CheckpointId
from odradek.kraft.metadata_log import MetadataEntry, checked_end, read_entries
from odradek.kraft.metadata_records import decode_metadata_record
from odradek.log.disk_errors import is_transient
from odradek.metadata.image import ClusterImage
from odradek.metadata.kraft.durable_log import DurableMetadataLog
from odradek.metadata.kraft.metadata_replay import MetadataReplay
from odradek.ports.clock import Clock
from odradek.records.batch import LOG_OVERHEAD, split_batches

logger = logging.getLogger("odradek.broker.kraft")

_READ_BYTES: Final = 1 << 20
_RECORDS_IN_A_TURN: Final = 512
"""Records that are replayed before other work of the event loop gets a turn: some 3 ms."""


class CommittedReplay:
    """`load`, then each change of the log; `replay_to` the end of the committed records."""

    __slots__ = ("_clock", "_cluster_id", "_log", "_pending", "_replay", "_snapshots")

    def __init__(self, log: DurableMetadataLog, clock: Clock, snapshots: MetadataSnapshots, cluster_id: str) -> None:
        self._log = log
        self._clock = clock
        self._snapshots = snapshots
        self._cluster_id = cluster_id
        self._replay = MetadataReplay(ClusterImage(cluster_id))
        self._pending: deque[tuple[int, bytes]] = deque()
        """Batches by their first offset, of which some records may not be replayed."""

    @property
    def image(self) -> ClusterImage:
        """The image after the replayed records."""
        return self._replay.image

    @property
    def end_offset(self) -> int:
        """The offset after the last replayed record."""
        return self._replay.end_offset

    @property
    def is_in_transaction(self) -> bool:
        """Whether the replayed records end within a metadata transaction (KIP-868)."""
        return self._replay.is_in_transaction

    def waiting_records(self) -> Iterator[Any]:
        """The records of the log that are not replayed, in their order. Raises CorruptMetadata."""
        for _offset, batch in self._pending:
            for entry in read_entries(batch, whole=True):
                if isinstance(entry, MetadataEntry) and entry.offset >= self.end_offset:
                    yield decode_metadata_record(entry.value).record

    # --- the log ---

    async def load(self) -> None:
        """Replay the newest snapshot; the records after it wait until they are committed. Raises CorruptMetadata."""
        snapshot, offset = self._log.load_snapshot(), self._log.start.offset
        if snapshot is not None:
            for number, entry in enumerate(snapshot.entries):
                self._replay.read(entry)
                if not number % _RECORDS_IN_A_TURN:
                    await asyncio.sleep(0)
            self._end_snapshot(snapshot, offset)
        self._snapshots.begun_at(self._clock.monotonic())
        while batches := self._log.read(offset, _READ_BYTES) if offset < self._log.log_end.offset else b"":
            offset = checked_end(batches)
            self.appended(batches)
            await asyncio.sleep(0)

    def appended(self, batches: bytes | memoryview) -> None:
        """The log has grown. Each batch waits by itself, since a truncation may follow that keeps some of them."""
        self._snapshots.appended(len(batches))
        view = memoryview(batches)
        for position, header in split_batches(view, allow_partial_tail=False):
            end = position + header.batch_length + LOG_OVERHEAD
            self._pending.append((header.base_offset, bytes(view[position:end])))

    def truncated(self, offset: int) -> None:
        """The log ends before this offset now, which is that of a batch."""
        while self._pending and self._pending[-1][0] >= offset:
            self._pending.pop()

    def installed(self, content: Checkpoint, end_offset: int) -> None:
        """A snapshot has replaced the log: begin again with it."""
        self._pending.clear()
        self._replay = MetadataReplay(ClusterImage(self._cluster_id))
        for entry in content.entries:
            self._replay.read(entry)
        self._end_snapshot(content, end_offset)

    def _end_snapshot(self, content: Checkpoint, end_offset: int) -> None:
        for control in content.controls:
            self._replay.read_control(control)
        self._replay.end_snapshot(end_offset)
        self._snapshots.begun_at(self._clock.monotonic())

    # --- replaying ---

    async def replay_to(self, committed: int) -> None:
        """Replay the records below the offset. A snapshot that replaces the log meanwhile ends it."""
        replay, count = self._replay, 0
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
                        return
            if entries[-1].offset >= committed:
                return
            self._pending.popleft()

    async def write_snapshot_if_due(self) -> CheckpointId | None:
        """Write the image as a snapshot where the log has grown enough or the last one is old; its id.

        None also where no descriptor is free: the log is longer without it. Raises KafkaError and OSError.
        """
        if not self._snapshots.is_due(self._clock.monotonic()):
            return None
        try:
            return await self._snapshots.write(self._replay, self._log)
        except OSError as error:
            if not is_transient(error):
                raise
            logger.warning("cannot write a snapshot of the metadata log: %s; trying again when it has grown", error)
            return None
