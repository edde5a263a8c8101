"""What a coordinator supplies to the runtime: a codec of its records, and a shard for each partition that it leads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from odradek.wire.errors import ErrorCode

Record = TypeVar("Record")
Record_co = TypeVar("Record_co", covariant=True)
Record_contra = TypeVar("Record_contra", contravariant=True)


class CoordinatorState(Enum):
    """The life of one partition of a coordinator (Kafka: CoordinatorRuntime.CoordinatorState)."""

    LOADING = "loading"
    """Its log is being replayed; requests are answered COORDINATOR_LOAD_IN_PROGRESS."""
    ACTIVE = "active"
    """It serves requests."""
    FAILED = "failed"
    """Its log could not be read; requests are answered NOT_COORDINATOR."""
    CLOSED = "closed"
    """This broker has lost the partition, or stops; requests are answered NOT_COORDINATOR."""


@dataclass(frozen=True, slots=True)
class RecordCodec(Generic[Record]):
    """Turns records into bytes of the log and back."""

    encode: Callable[[Record], tuple[bytes, bytes | None]]
    """(key, value) as they are in the log. Raises EncodeError when a string or number is out of range."""
    decode: Callable[[memoryview | bytes, memoryview | bytes | None], Record | None]
    """The record, or None for a type that this version does not know. Raises DecodeError."""


class Decision(Protocol[Record_co]):
    """What a request decided on; the runtime looks at the records only."""

    @property
    def records(self) -> Sequence[Record_co]:
        """They become one batch."""
        ...


class Operation(NamedTuple):
    """A decision on its way to the log, with its encoded records and their size in bytes."""

    decision: Any
    encoded: list[tuple[bytes, bytes | None]]
    size: int


class CoordinatorShard(Protocol[Record_contra]):
    """The requests and the state of one partition. The runtime calls these methods; `complete` ends every operation."""

    def replay(self, record: Record_contra, record_offset: int, producer_id: int) -> None:
        """Change the state by a record that is in the log; `producer_id` is that of its transaction or -1."""
        ...

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """A transaction that wrote to the partition has ended."""
        ...

    def on_loading(self) -> None:
        """The runtime has begun to replay the log."""
        ...

    def on_loaded(self) -> None:
        """The log is replayed, and the state is ACTIVE."""
        ...

    def on_closed(self) -> None:
        """The state is CLOSED: every client that waits is answered."""
        ...

    def on_leadership_lost(self) -> None:
        """This broker may not act as the leader for now, and another one may: clients that wait are answered."""
        ...

    def expire(self) -> None:
        """The timer has fired: act on deadlines that have passed."""
        ...

    def next_deadline_ms(self) -> int | None:
        """When `expire` has something to do."""
        ...

    def halves(self, decision: Any) -> tuple[Any, Any] | None:
        """A decision too large for one batch as two, or None if its records must be in one batch."""
        ...

    def complete(self, operations: Sequence[Operation], error: ErrorCode | None, delay: float | None) -> None:
        """The operations' records are committed, or not written because of `error`.

        With `delay` None, answer now; with 0, in the next turn of the event loop, since the caller is in the midst of
        something; otherwise after that many seconds.
        """
        ...


Shard = TypeVar("Shard", bound=CoordinatorShard[Any])
