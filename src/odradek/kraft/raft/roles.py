"""The roles of a replica in its epoch, with the state that ends with the role. Times are absolute milliseconds.

A replica outside the voters is an observer: unattached, or a follower, that never starts an election.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from odradek.kraft.checkpoints import CheckpointId
from odradek.kraft.raft.messages import FetchRequest
from odradek.kraft.raft.voters import ReplicaKey, Voter


@dataclass(slots=True)
class Unattached:
    """The replica knows no leader of its epoch; it may have voted. At `deadline_ms` a voter becomes prospective."""

    deadline_ms: float


@dataclass(slots=True)
class Follower:
    """The replica fetches from the leader of the epoch."""

    deadline_ms: float
    has_fetched: bool = False
    """Whether the leader answered: then pre-votes are rejected."""
    report_ms: float = 0.0
    """When the replica may next ask the leader to change its entry among the voters."""
    has_reported: bool = False
    """Whether the leader knows this static voter's directory and listeners, which no log has."""
    snapshot: CheckpointId | None = None
    """The snapshot that it fetches, and how many bytes of it are written."""
    snapshot_bytes: int = 0


@dataclass(slots=True)
class Ballot:
    """The election of a prospective (pre-vote) or of a candidate."""

    is_pre_vote: bool
    deadline_ms: float
    granted: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)
    ask_again_ms: dict[int, float] = field(default_factory=dict)
    """When a voter that rejected the pre-vote is asked again: it may have missed its leader by then."""


@dataclass(slots=True)
class Progress:
    """How far a replica has fetched from the leader."""

    end_offset: int = -1
    fetched_ms: float = -1.0
    caught_up_ms: float = float("-inf")
    """When it last had all records that the leader had."""
    answered: tuple[int, float] | None = None
    """The connection of the fetch that was answered last, and when."""
    followed_ms: float = float("-inf")
    """It was in this epoch then, or later: on the connection on which it was answered then, it has fetched again."""

    def note_fetch(self, connection: int | None, now_ms: float) -> None:
        """The replica has fetched in the leader's epoch, with the next request that came on this connection.

        A fetch alone does not say when it was sent: it may have waited unread while the leader stood still.
        """
        self.fetched_ms = now_ms
        if self.answered is not None and self.answered[0] == connection:
            self.followed_ms = max(self.followed_ms, self.answered[1])

    def note_answer(self, connection: int | None, now_ms: float) -> None:
        """A fetch that `note_fetch` has taken is answered."""
        if connection is not None:
            self.answered = connection, now_ms


@dataclass(slots=True)
class ParkedFetch:
    """A Fetch that waits for records or for a high watermark."""

    token: Any
    request: FetchRequest
    deadline_ms: float


@dataclass(slots=True)
class VoterChange:
    """A request whose VotersRecord is at `offset`."""

    token: Any
    offset: int
    deadline_ms: float


@dataclass(slots=True)
class Leader:
    """The replica leads its epoch. `epoch_start` is the offset of its LeaderChangeMessage."""

    epoch_start: int
    began_ms: float
    progress: dict[ReplicaKey, Progress] = field(default_factory=dict)
    parked: list[ParkedFetch] = field(default_factory=list)
    pending: list[tuple[int, Any]] = field(default_factory=list)
    """Counts and payloads of records that are to be appended at `linger_ms`."""
    linger_ms: float = 0.0
    announced_ms: dict[int, float] = field(default_factory=dict)
    """When each voter was last sent BeginQuorumEpoch."""
    has_committed: bool = False
    """Whether a record of this epoch is committed: only then the high watermark is known."""
    change: VoterChange | None = None
    """The change of the voters that waits for its record to be committed."""
    reported: dict[int, Voter] = field(default_factory=dict)
    """What static voters have reported of themselves in this epoch."""

    def progress_of(self, replica: ReplicaKey) -> Progress:
        """How far this replica has fetched."""
        return self.progress.get(replica) or Progress()


@dataclass(slots=True)
class Resigned:
    """The replica led this epoch and does so no longer; at `deadline_ms` it may vote in the next epoch."""

    deadline_ms: float
    successors: tuple[ReplicaKey, ...] = ()
    unnotified: set[int] = field(default_factory=set)


Role = Unattached | Follower | Ballot | Leader | Resigned
