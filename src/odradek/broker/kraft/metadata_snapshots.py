"""Snapshots of the metadata log that a broker writes of its own image, so that its log stays short (KIP-630).

Each replica of the log writes its own. Source: Kafka's `SnapshotGenerator`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from odradek.kraft.checkpoints import CheckpointId, checkpoint_parts
from odradek.metadata.features import BROKER_METADATA, metadata_level
from odradek.metadata.image import ClusterImage
from odradek.metadata.kraft.difference import differences
from odradek.metadata.kraft.durable_log import DurableMetadataLog
from odradek.metadata.kraft.metadata_replay import MetadataReplay
from odradek.metadata.kraft.record_versions import versioned
from odradek.ports.clock import Clock

logger = logging.getLogger("odradek.broker.kraft")

_WORTH_IT_BYTES: Final = 64 << 10
"""A log that has grown less than that needs no snapshot, however old the last one is."""


class MetadataSnapshots:
    """Decides when the next one is due: after so many bytes of the log, or after so long."""

    __slots__ = ("_appended", "_begun", "_bytes_between", "_clock", "_seconds_between")

    def __init__(self, clock: Clock, bytes_between: int, seconds_between: float) -> None:
        """`metadata.log.max.record.bytes.between.snapshots`, and `metadata.log.max.snapshot.interval.ms` in seconds,
        where 0 is never.
        """
        self._clock = clock
        self._bytes_between = bytes_between
        self._seconds_between = seconds_between
        self._appended = 0
        self._begun = 0.0

    def begun_at(self, now: float) -> None:
        """The log begins with a snapshot, or at its first record, as of that time (seconds, monotonic)."""
        self._appended, self._begun = 0, now

    def appended(self, size: int) -> None:
        """The log has grown by so many bytes."""
        self._appended += size

    def is_due(self, now: float) -> bool:
        """Whether the log has grown enough, or the last snapshot is old."""
        is_old = 0 < self._seconds_between <= now - self._begun and self._appended >= _WORTH_IT_BYTES
        return is_old or self._appended >= self._bytes_between

    async def write(self, replay: MetadataReplay, log: DurableMetadataLog) -> CheckpointId | None:
        """Write the image as a snapshot, unless it would lose anything; its id. Raises KafkaError and OSError.

        None where a snapshot of the leader has replaced the log meanwhile.
        """
        image, end = replay.image, replay.end_offset
        self.begun_at(self._clock.monotonic())
        if not self._can_hold(replay, image):
            return None
        epoch = next((epoch for epoch, start in reversed(log.epochs) if start < end), log.start.epoch)
        found = CheckpointId(end, epoch)
        if end <= log.start.offset:
            return None
        now_ms = self._clock.now_ms()
        records = versioned(differences(ClusterImage(), image), metadata_level(image))
        data = bytearray()
        controls = replay.controls
        for part in checkpoint_parts(found, records, controls=controls, timestamp_ms=now_ms, last_timestamp_ms=now_ms):
            data += part
            await asyncio.sleep(0)
        if end <= log.start.offset:
            return None
        log.save_snapshot(found, data)
        logger.info("wrote the snapshot %s of the metadata log (%d bytes)", found.file_name, len(data))
        return found

    @staticmethod
    def _can_hold(replay: MetadataReplay, image: ClusterImage) -> bool:
        """Records that this version does not know would be lost."""
        is_known = BROKER_METADATA.min_level <= metadata_level(image) <= BROKER_METADATA.max_level
        return is_known and not replay.unknown and not replay.is_in_transaction
