"""The metadata log of a simulated controller: batches, the snapshot before them, and what a Fetch finds in them."""

from __future__ import annotations

from typing import Any, NamedTuple

from odradek.kraft.checkpoints import CheckpointId, encode_checkpoint
from odradek.kraft.metadata_log import encode_metadata_batch, read_entries
from odradek.kraft.metadata_observer import BEGINNING, LogEnd
from odradek.kraft.metadata_records import VersionedRecord
from odradek.metadata.image import ClusterImage
from odradek.metadata.kraft.difference import differences
from odradek.metadata.kraft.metadata_replay import MetadataReplay


class ModelBatch(NamedTuple):
    """A batch, and the image that the controller decided with it."""

    base: int
    end: int
    epoch: int
    data: bytes
    image: ClusterImage
    is_open: bool = False
    """Whether a metadata transaction (KIP-868) is open after it."""


class ModelSnapshot(NamedTuple):
    """A snapshot as brokers fetch it."""

    id: CheckpointId
    data: bytes
    image: ClusterImage


def versioned(records: Any) -> list[VersionedRecord]:
    """Records in their newest versions."""
    return [VersionedRecord(each, type(each).MAX_VERSION) for each in records]


def encode_batch_of(
    records: Any, base: int, epoch: int, now_ms: int, image: ClusterImage, *, is_open: bool = False
) -> ModelBatch:
    """A batch of metadata records with the image after it."""
    found = versioned(records)
    data = encode_metadata_batch(found, base_offset=base, leader_epoch=epoch, timestamp_ms=now_ms)
    return ModelBatch(base, base + len(found), epoch, data, image, is_open)


class ModelLog:
    """Batches in their order after the snapshot, if there is one. All of it is durable at once."""

    def __init__(self, image: ClusterImage) -> None:
        """`image` is that of an empty log."""
        self.batches: list[ModelBatch] = []
        self.snapshot: ModelSnapshot | None = None
        self._first_image = image

    @property
    def start(self) -> LogEnd:
        """The end of the snapshot."""
        return BEGINNING if self.snapshot is None else LogEnd(*self.snapshot.id)

    @property
    def end(self) -> LogEnd:
        """The end offset and the epoch of the last record."""
        return LogEnd(self.batches[-1].end, self.batches[-1].epoch) if self.batches else self.start

    @property
    def order(self) -> tuple[int, int]:
        """Greater for a log that is more up to date, as voters compare them."""
        end = self.end
        return end.epoch, end.offset

    @property
    def image(self) -> ClusterImage:
        """The image after the last record."""
        if self.batches:
            return self.batches[-1].image
        return self._first_image if self.snapshot is None else self.snapshot.image

    def replayed(self) -> ClusterImage:
        """The image of a controller that has read all records, as one does that becomes active."""
        replay = MetadataReplay(self._first_image)
        if self.snapshot is not None:
            for entry in read_entries(self.snapshot.data, whole=True):
                replay.read(entry)
        for batch in self.batches:
            for entry in read_entries(batch.data, whole=True):
                replay.read(entry)
        return replay.image

    def copy(self, other: ModelLog) -> None:
        """Become the same as the leader's log."""
        self.batches = list(other.batches)
        self.snapshot = other.snapshot

    def take_snapshot(self, committed: int, now_ms: int) -> bool:
        """Replace the committed records by a snapshot; False where there are none, or a transaction is open."""
        held = [each for each in self.batches if each.end <= committed]
        while held and held[-1].is_open:
            held.pop()
        if not held:
            return False
        last = held[-1]
        found = CheckpointId(last.end, last.epoch)
        records = versioned(differences(ClusterImage(), last.image))
        data = encode_checkpoint(found, records, timestamp_ms=now_ms, last_timestamp_ms=now_ms)
        self.snapshot = ModelSnapshot(found, data, last.image)
        self.batches = self.batches[len(held) :]
        return True

    # --- what a Fetch finds ---

    def needs_snapshot(self, end: LogEnd) -> bool:
        """Whether a replica that ends there has to begin with the snapshot."""
        if self.snapshot is None:
            return False
        start = self.start
        is_elsewhere = end.offset == start.offset and end.epoch != start.epoch
        return end.offset < start.offset or is_elsewhere or end.epoch < start.epoch

    def diverging(self, end: LogEnd) -> LogEnd | None:
        """Where the log of a replica that ends there differs from this one; None where it is a prefix of it."""
        if end == BEGINNING and self.snapshot is None:
            return None
        common = self.start
        for batch in self.batches:
            if batch.epoch <= end.epoch:
                common = LogEnd(batch.end, batch.epoch)
        return None if common.epoch == end.epoch and end.offset <= common.offset else common

    def read(self, offset: int, most: int) -> bytes:
        """The batches from an offset on: at least one where there is any, and some `most` bytes."""
        data = bytearray()
        for batch in self.batches:
            if batch.base >= offset and (not data or len(data) < most):
                data += batch.data
        return bytes(data)
