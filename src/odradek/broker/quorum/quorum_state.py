"""This controller's part in its quorum, as metrics and health show it."""

from __future__ import annotations

from typing import Final

from odradek.broker.observability.quorum_metrics import QuorumFigures
from odradek.broker.quorum.committed_metadata import CommittedMetadata
from odradek.broker.quorum.raft_replica import RaftReplica
from odradek.broker.quorum.raft_requests import RaftRequests
from odradek.kraft.raft.wire_requests import TOPIC
from odradek.metadata.image import ClusterImage
from odradek.ports.clock import Clock
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)

_DESCRIBE: Final = DescribeQuorumRequest([DescribeQuorumRequestTopic(TOPIC, [DescribeQuorumRequestPartition(0)])])


class QuorumState:
    """`note_leader` at each change; `figures` at a scrape."""

    __slots__ = (
        "_absent_ms",
        "_clock",
        "_elections",
        "_longest_ms",
        "_lost_at",
        "_metadata",
        "_raft",
        "_replica",
        "_total_ms",
    )

    def __init__(
        self, replica: RaftReplica, raft: RaftRequests, metadata: CommittedMetadata, clock: Clock, absent_ms: float
    ) -> None:
        """A voter that has not fetched for `absent_ms` is absent."""
        self._replica = replica
        self._raft = raft
        self._metadata = metadata
        self._clock = clock
        self._absent_ms = absent_ms
        self._lost_at: float | None = clock.monotonic()
        self._elections = 0
        self._total_ms = 0.0
        self._longest_ms = 0.0

    def note_leader(self, leader_id: int) -> None:
        """The leader or the epoch is another; -1: no leader is known."""
        now = self._clock.monotonic()
        if leader_id < 0:
            self._lost_at = now if self._lost_at is None else self._lost_at
            return
        took_ms = 0.0 if self._lost_at is None else (now - self._lost_at) * 1000
        self._lost_at = None
        self._elections += 1
        self._total_ms += took_ms
        self._longest_ms = max(self._longest_ms, took_ms)

    def figures(self) -> QuorumFigures:
        """The replica now; voters and observers only where it leads."""
        quorum, leader = self._replica.machine.quorum, self._replica.leader
        part = self._raft.describe(_DESCRIBE, ClusterImage(), 0).topics[0].partitions[0]
        oldest_ms = self._clock.now_ms() - self._absent_ms
        high_watermark = self._replica.known_high_watermark
        return QuorumFigures(
            type(quorum.role).__name__.lower(),
            leader.leader_id,
            quorum.voted.node_id,
            quorum.epoch,
            -1 if high_watermark is None else high_watermark,
            quorum.log.end_offset,
            quorum.log.end.epoch,
            self._metadata.end_offset,
            len(part.current_voters),
            len(part.observers),
            tuple(each.replica_id for each in part.current_voters if each.last_fetch_timestamp < oldest_ms),
            self._elections,
            self._total_ms / self._elections if self._elections else 0.0,
            self._longest_ms,
        )
