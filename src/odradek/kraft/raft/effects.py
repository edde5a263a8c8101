"""What the state machine of a quorum takes and returns.

The driver carries out the effects of a step in this order: it writes `state` durably, changes the log, and sends
messages. It reports `Synced` after it synced the log, which it may do in parallel with the messages.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from odradek.kraft.checkpoints import CheckpointId
from odradek.kraft.metadata_observer import LogEnd
from odradek.kraft.raft.messages import Answer, Batch, Request, UpgradeVersionRequest
from odradek.wire.messages.quorum_state import QuorumStateData


class Tick(NamedTuple):
    """The deadline of the last step has passed; a tick at another time does no harm."""


class Received(NamedTuple):
    """A request of another replica, or of this one's controller. `token` names it in the reply."""

    request: Request | UpgradeVersionRequest
    token: Any


class Answered(NamedTuple):
    """The answer to the request with this id; None if the request has failed."""

    request_id: int
    answer: Answer | None
    is_refused: bool = False
    """The request has failed since no process listens at the address: a leader there has ended."""


class Propose(NamedTuple):
    """Append records in the epoch of the leader. A replica that is not the leader of `epoch` drops them."""

    epoch: int
    record_count: int
    payload: Any


class Synced(NamedTuple):
    """The log up to this end is on the disk. The machine ignores an end that it has truncated meanwhile."""

    end: LogEnd


class SnapshotWritten(NamedTuple):
    """A snapshot of committed records is durable: the log begins at its end from now on."""

    snapshot: CheckpointId
    size: int


class SnapshotInstalled(NamedTuple):
    """The control records of the snapshot that `InstallSnapshot` named: the first event after that step."""

    snapshot: CheckpointId
    controls: tuple[Any, ...]


class Resign(NamedTuple):
    """The process shuts down: a leader resigns and names its successors."""


Event = Tick | Received | Answered | Propose | Synced | SnapshotWritten | SnapshotInstalled | Resign


class TruncateTo(NamedTuple):
    """Remove the records from this offset on."""

    offset: int


class WriteSnapshot(NamedTuple):
    """Write bytes of a snapshot at this position; position 0 begins it."""

    snapshot: CheckpointId
    position: int
    data: bytes


class InstallSnapshot(NamedTuple):
    """The snapshot is complete: sync it, and replace the log by it, before messages leave."""

    snapshot: CheckpointId


LogStep = Batch | TruncateTo | WriteSnapshot | InstallSnapshot
"""A change of the log; a `Batch` is to be appended."""


class Send(NamedTuple):
    """A request to another replica."""

    request_id: int
    to: int
    request: Request


class Reply(NamedTuple):
    """The answer to a received request."""

    token: Any
    answer: Answer


class LeaderAndEpoch(NamedTuple):
    """The leader of an epoch; -1 if it is not known."""

    leader_id: int
    epoch: int


class Effects(NamedTuple):
    """The effects of one step. None means: no change."""

    state: QuorumStateData | None
    log: tuple[LogStep, ...]
    sends: tuple[Send, ...]
    replies: tuple[Reply, ...]
    high_watermark: int | None
    leader: LeaderAndEpoch | None
    deadline_ms: float
    """The time of the next `Tick`."""
