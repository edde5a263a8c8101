"""Requests and responses of every client, in the order of the simulated time: the input of the checkers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.records.topic_partition import PartitionKey, TopicIdPartition
from odradek.sim.checkers.access_history import AccessHistory
from odradek.sim.checkers.audit_history import AuditHistory

OPEN = "open"
OK = "ok"
UNKNOWN = "unknown"
COMMITTED = "committed"
ABORTED = "aborted"

READ_UNCOMMITTED = "read_uncommitted"
READ_COMMITTED = "read_committed"


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction of one producer. Its state is as the producer knows it: `unknown` may be either."""

    producer: str
    number: int
    began_at: float
    state: str = OPEN
    commit_asked_at: float | None = None
    ended_at: float | None = None
    sends: list[Send] = field(default_factory=list)
    read: list[Seen] = field(default_factory=list)
    """What its application read for it, as read_committed."""

    def __str__(self) -> str:
        return f"transaction {self.producer}#{self.number} ({self.state})"


@dataclass(slots=True, eq=False)
class Send:
    """One record; its value is unique in the world."""

    value: bytes
    producer: str
    partition: PartitionKey
    number: int
    sent_at: float
    transaction: Transaction | None = None
    state: str = OPEN
    offset: int = -1
    acked_at: float | None = None
    outcome_at: float | None = None
    """When the producer knew: acknowledged or given up."""
    error: str = ""
    source: bytes | None = None
    """The input record that it stands for, in read-process-write."""
    key: bytes | None = None

    def outcome_or_never(self) -> float:
        """The time of the outcome, or infinity before it."""
        return float("inf") if self.outcome_at is None else self.outcome_at

    def __str__(self) -> str:
        where = f"{self.partition[0]}-{self.partition[1]}"
        at = f"@{self.offset}" if self.offset >= 0 else ""
        inside = f" in {self.transaction}" if self.transaction else ""
        acked = f", acked {self.acked_at:.3f}" if self.acked_at is not None else ""
        name = self.value.decode().rpartition(":")[0]
        return f"{name} ({where}{at} {self.state}, sent {self.sent_at:.3f}{acked}{inside})"


class Seen(NamedTuple):
    """A record as a consumer got it."""

    partition: PartitionKey
    offset: int
    value: bytes

    def __str__(self) -> str:
        return f"{self.value.decode('utf-8', 'replace')[:40]} at {self.partition[0]}-{self.partition[1]} {self.offset}"


@dataclass(slots=True, eq=False)
class Reader:
    """One uninterrupted run of a consumer: positions only move forward in it, but for what `jumps` says."""

    name: str
    isolation: str
    seen: list[tuple[float, Seen]] = field(default_factory=list)
    starts: dict[PartitionKey, int] = field(default_factory=dict)
    jumped: list[int] = field(default_factory=list)
    """Indexes into `seen` from which on positions may be anywhere: assignment changes, seeks, resets."""


class Committed(NamedTuple):
    """A commit that was acknowledged (or whose outcome is open)."""

    asked_at: float
    done_at: float
    group: str
    partition: PartitionKey
    offset: int
    member: str
    generation: int
    state: str


class Looked(NamedTuple):
    """The response to one request for a partition's offsets."""

    asked_at: float
    done_at: float
    what: str
    partition: PartitionKey
    offset: int
    epoch: int = -1
    """Of the leader that responded; -1 if it is not known."""


@dataclass(slots=True, eq=False)
class Deletion:
    """A client wants the records below the offset to be deleted."""

    partition: PartitionKey
    offset: int
    asked_at: float
    kept_since: float | None = None
    """When it was acknowledged, so that no later leader has them; None if that is not certain."""
    epoch: int = -1
    """Of the latest leader when it was acknowledged."""


class Owned(NamedTuple):
    """A member's assignment in a generation."""

    at: float
    group: str
    generation: int
    member: str
    partitions: frozenset[PartitionKey]


@dataclass(slots=True, eq=False)
class Held:
    """A partition as a member of a KIP-848 group held it: until it gave it up, or its session could have ended."""

    group: str
    partition: TopicIdPartition
    member: str
    epoch: int
    since: float
    until: float


class PowerLoss(NamedTuple):
    """A loss of power: its time and the number of files that lost data."""

    at: float
    files: int


@dataclass(slots=True)
class FinalLog:
    """A partition at the end, read by a consumer that began at its start."""

    start: int
    end: int
    everything: list[Seen]
    committed: list[Seen]
    last_stable: int = -1
    read_at: float = 0.0
    sealed_end: int = 0
    """The offset where the active segment of every replica begins or has not begun yet; 0 if it is not known."""


class Violation(Exception):
    """An invariant does not hold; the story says why."""

    def __init__(self, invariant: str, story: str) -> None:
        self.invariant = invariant
        self.story = story
        super().__init__(f"{invariant}: {story}")


class History:
    """Filled by the workloads, read by the checkers."""

    __slots__ = (
        "access", "audit", "broker_ends", "clock_error_s", "commits", "deletions", "final", "group_offsets", "held",
        "looks", "owned", "power_losses", "readers", "sends", "transactions",
    )  # fmt: skip

    def __init__(self) -> None:
        self.sends: dict[bytes, Send] = {}
        self.transactions: list[Transaction] = []
        self.readers: list[Reader] = []
        self.commits: list[Committed] = []
        self.deletions: list[Deletion] = []
        self.looks: list[Looked] = []
        self.owned: list[Owned] = []
        self.held: list[Held] = []
        self.clock_error_s = 1.0
        """By how much clocks may differ, and for how long retention may be late or early."""
        self.power_losses: list[PowerLoss] = []
        self.broker_ends: list[float] = []
        """When processes of brokers ended, in whatever way."""
        self.final: dict[PartitionKey, FinalLog] = {}
        self.group_offsets: dict[tuple[str, PartitionKey], int] = {}
        self.access = AccessHistory()
        self.audit = AuditHistory()

    def send(self, send: Send) -> Send:
        """Record a send and return it."""
        self.sends[send.value] = send
        if send.transaction is not None:
            send.transaction.sends.append(send)
        return send

    def acked(self, sends: Iterable[Send] | None = None) -> list[Send]:
        """The acknowledged sends, of all or of the given ones."""
        return [send for send in (self.sends.values() if sends is None else sends) if send.state == OK]
