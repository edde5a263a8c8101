"""The requests and answers between the replicas of a quorum, without their bytes.

Each request has the id of the cluster and an epoch. Each answer has an error, and the epoch and the leader that its
sender knows (-1 without a leader). Sources: KIP-595, KIP-630, KIP-853, KIP-996; Kafka's `RaftUtil`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from odradek.kraft.checkpoints import CheckpointId
from odradek.kraft.metadata_observer import LogEnd
from odradek.kraft.raft.voters import ReplicaKey, Voter
from odradek.wire.errors import ErrorCode
from odradek.wire.primitives import ZERO_UUID

NO_NODE: Final = -1
"""The id of no replica: no leader, no vote."""


class Batch(NamedTuple):
    """Records of one epoch. The state machine does not read `payload`."""

    base_offset: int
    epoch: int
    record_count: int
    payload: Any
    controls: tuple[Any, ...] = ()
    """All records of a control batch; None in the place of one of an unknown type."""


class VoteRequest(NamedTuple):
    """Vote (52). A pre-vote has the current epoch of the sender, a vote the epoch for which it stands."""

    cluster_id: str
    voter_id: int
    epoch: int
    candidate_id: int
    log_end: LogEnd
    is_pre_vote: bool
    voter_directory_id: bytes = ZERO_UUID
    candidate_directory_id: bytes = ZERO_UUID

    @property
    def voter(self) -> ReplicaKey:
        """The replica that is asked."""
        return ReplicaKey(self.voter_id, self.voter_directory_id)

    @property
    def candidate(self) -> ReplicaKey:
        """The replica that asks."""
        return ReplicaKey(self.candidate_id, self.candidate_directory_id)


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
    voter_directory_id: bytes = ZERO_UUID

    @property
    def voter(self) -> ReplicaKey:
        """The replica to which the leader announces itself."""
        return ReplicaKey(self.voter_id, self.voter_directory_id)


class EndEpochRequest(NamedTuple):
    """EndQuorumEpoch (54): a leader resigns; `successors` are the voters with the longest logs first."""

    cluster_id: str
    epoch: int
    leader_id: int
    successors: tuple[ReplicaKey, ...]


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
    directory_id: bytes = ZERO_UUID
    connection: int | None = None
    """The one on which the receiver got it; not sent. A sender has one fetch without an answer on a connection."""

    @property
    def replica(self) -> ReplicaKey:
        """The sender."""
        return ReplicaKey(self.replica_id, self.directory_id)


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
    directory_id: bytes = ZERO_UUID
    connection: int | None = None
    """See `FetchRequest`."""

    @property
    def replica(self) -> ReplicaKey:
        """The sender."""
        return ReplicaKey(self.replica_id, self.directory_id)


class SnapshotAnswer(NamedTuple):
    """The answer to FetchSnapshot. A leader's state machine names the position, and the driver reads the data."""

    error: ErrorCode
    leader_id: int
    epoch: int
    snapshot: CheckpointId | None = None
    size: int = 0
    position: int = 0
    data: bytes = b""


class AddVoterRequest(NamedTuple):
    """AddRaftVoter (80): let a replica vote that has caught up. The leader serves it, in any epoch."""

    cluster_id: str
    epoch: int
    """Of the sender that is a replica; not sent."""
    voter: Voter
    ack_when_committed: bool = True
    """False: the answer leaves once the record is appended (KIP-1186)."""


class RemoveVoterRequest(NamedTuple):
    """RemoveRaftVoter (81). The leader serves it, in any epoch."""

    cluster_id: str
    epoch: int
    """Of the sender that is a replica; not sent."""
    voter: ReplicaKey


class UpdateVoterRequest(NamedTuple):
    """UpdateRaftVoter (82): a voter reports its listeners and kraft.versions to the leader of `epoch`."""

    cluster_id: str
    epoch: int
    voter: Voter


class UpgradeVersionRequest(NamedTuple):
    """A new kraft.version of the controller that leads `epoch`. 1 moves static voters into the log (KIP-853)."""

    cluster_id: str
    epoch: int
    level: int
    validate_only: bool = False


class VoterChangeAnswer(NamedTuple):
    """The answer to a change of the voters or of kraft.version. `message` explains an error."""

    error: ErrorCode
    message: str | None
    leader_id: int
    epoch: int


VoterChangeRequest = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest
Request = VoteRequest | BeginEpochRequest | EndEpochRequest | FetchRequest | SnapshotRequest | VoterChangeRequest
Answer = VoteAnswer | EpochAnswer | FetchAnswer | SnapshotAnswer | VoterChangeAnswer
