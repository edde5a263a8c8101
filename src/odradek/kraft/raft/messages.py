"""The requests and answers between the replicas of a quorum, without their bytes.

Each request has the id of the cluster and an epoch. Each answer has an error, and the epoch and the leader that its
sender knows (-1 without a leader). Sources: KIP-595, KIP-630, KIP-996; Kafka's `RaftUtil`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from odradek.kraft.checkpoints import CheckpointId
from odradek.kraft.metadata_observer import LogEnd
from odradek.wire.errors import ErrorCode

NO_NODE: Final = -1
"""The id of no replica: no leader, no vote."""


class Batch(NamedTuple):
    """Records of one epoch. The state machine does not read `payload`."""

    base_offset: int
    epoch: int
    record_count: int
    payload: Any


class VoteRequest(NamedTuple):
    """Vote (52). A pre-vote has the current epoch of the sender, a vote the epoch for which it stands."""

    cluster_id: str
    voter_id: int
    epoch: int
    candidate_id: int
    log_end: LogEnd
    is_pre_vote: bool


class VoteAnswer(NamedTuple):
    """The answer to Vote."""

    error: ErrorCode
    leader_id: int
    epoch: int
    is_granted: bool


class BeginEpochRequest(NamedTuple):
    """BeginQuorumEpoch (53): a leader announces itself."""

    cluster_id: str
    voter_id: int
    epoch: int
    leader_id: int


class EndEpochRequest(NamedTuple):
    """EndQuorumEpoch (54): a leader resigns; `successors` are the voters with the longest logs first."""

    cluster_id: str
    epoch: int
    leader_id: int
    successors: tuple[int, ...]


class EpochAnswer(NamedTuple):
    """The answer to BeginQuorumEpoch and EndQuorumEpoch."""

    error: ErrorCode
    leader_id: int
    epoch: int


class FetchRequest(NamedTuple):
    """Fetch (1) of the metadata log. Everything below the end of the sender's log is synced to its disk."""

    cluster_id: str
    replica_id: int
    epoch: int
    log_end: LogEnd
    high_watermark: int
    max_wait_ms: float


class FetchAnswer(NamedTuple):
    """The answer to Fetch: where the log diverges, a snapshot, or records.

    A leader's state machine sets `read_from`, and the driver reads the batches from there. -1 means: read no records.
    """

    error: ErrorCode
    leader_id: int
    epoch: int
    high_watermark: int = -1
    diverging: LogEnd | None = None
    snapshot: CheckpointId | None = None
    read_from: int = -1
    batches: tuple[Batch, ...] = ()


class SnapshotRequest(NamedTuple):
    """FetchSnapshot (59): the bytes of a snapshot from a position on."""

    cluster_id: str
    replica_id: int
    epoch: int
    snapshot: CheckpointId
    position: int


class SnapshotAnswer(NamedTuple):
    """The answer to FetchSnapshot. A leader's state machine names the position, and the driver reads the data."""

    error: ErrorCode
    leader_id: int
    epoch: int
    snapshot: CheckpointId | None = None
    size: int = 0
    position: int = 0
    data: bytes = b""


Request = VoteRequest | BeginEpochRequest | EndEpochRequest | FetchRequest | SnapshotRequest
Answer = VoteAnswer | EpochAnswer | FetchAnswer | SnapshotAnswer
