"""A quorum's leader as a broker reaches it: a metadata log that a test fills, behind the requests of an observer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from odradek.client.errors import Disconnected
from odradek.kraft.checkpoints import CheckpointId, encode_checkpoint
from odradek.kraft.metadata_log import encode_metadata_batch
from odradek.kraft.metadata_observer import Server
from odradek.kraft.metadata_records import VersionedRecord
from odradek.wire.messages import fetch, fetch_snapshot
from odradek.wire.messages.cluster_metadata import TopicRecord

LEADER = Server("controller", 9093)
EPOCH = 5


def versioned(records: Iterable[Any]) -> list[VersionedRecord]:
    return [VersionedRecord(each, type(each).MAX_VERSION) for each in records]


def topic(name: str) -> TopicRecord:
    return TopicRecord(name, name.encode().ljust(16, b"-"))


class ALeader:
    """Answers fetches from `batches`; implements what is used of `Controllers`."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, bytes]] = []
        self.end = 0
        self.committed = 0
        self.asked_offsets: list[int] = []
        self.active: Server | None = None
        self.is_away = False
        self.snapshot: tuple[CheckpointId, bytes] | None = None
        self.diverging: tuple[int, int] | None = None
        self.epoch = EPOCH

    def append(self, *records: Any, commit: bool = True) -> None:
        data = encode_metadata_batch(versioned(records), base_offset=self.end, leader_epoch=self.epoch, timestamp_ms=0)
        self.batches.append((self.end, data))
        self.end += len(records)
        if commit:
            self.committed = self.end

    def replace_by_snapshot(self, *records: Any) -> None:
        """The log begins at its end, and a snapshot holds these records."""
        found = CheckpointId(self.end, self.epoch)
        self.snapshot = found, encode_checkpoint(found, versioned(records), timestamp_ms=0, last_timestamp_ms=0)
        self.batches.clear()

    def note_active(self, server: Server | None) -> None:
        self.active = server

    def close(self) -> None:
        """See `Controllers`."""

    async def fetch(self, server: Server, request: Any, _kind: type, _timeout_ms: float) -> Any:
        await asyncio.sleep(0)
        if self.is_away:
            raise Disconnected("connection refused")
        if isinstance(request, fetch_snapshot.FetchSnapshotRequest):
            return self._snapshot_part(request)
        (part,) = request.topics[0].partitions
        self.asked_offsets.append(part.fetch_offset)
        answer = fetch.FetchResponsePartition(
            high_watermark=self.committed, current_leader=fetch.FetchResponseLeaderIdAndEpoch(1, self.epoch)
        )
        if self.diverging is not None:
            answer.diverging_epoch = fetch.FetchResponseEpochEndOffset(*self.diverging)
            self.diverging = None
        elif self.snapshot is not None and part.fetch_offset < self.snapshot[0].end_offset:
            found = self.snapshot[0]
            answer.snapshot_id = fetch.FetchResponseSnapshotId(found.end_offset, found.epoch)
        else:
            answer.records = b"".join(data for offset, data in self.batches if offset >= part.fetch_offset)
        return fetch.FetchResponse(
            responses=[fetch.FetchResponseTopic(partitions=[answer])],
            node_endpoints=[fetch.FetchResponseNodeEndpoint(1, LEADER.host, LEADER.port)],
        )

    def _snapshot_part(self, request: Any) -> Any:
        assert self.snapshot is not None
        found, data = self.snapshot
        (asked,) = request.topics[0].partitions
        part = fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(
            0,
            0,
            fetch_snapshot.FetchSnapshotResponseSnapshotId(found.end_offset, found.epoch),
            fetch_snapshot.FetchSnapshotResponseLeaderIdAndEpoch(1, self.epoch),
            len(data),
            asked.position,
            data[asked.position : asked.position + 100],
        )
        topics = [fetch_snapshot.FetchSnapshotResponseTopicSnapshot("__cluster_metadata", [part])]
        return fetch_snapshot.FetchSnapshotResponse(topics=topics)
