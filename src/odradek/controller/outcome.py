"""What a decision of the controller answers: the store's next operations, the image after them, and the replies."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from odradek.metadata.configs.definitions import Value
from odradek.metadata.image import ClusterImage
from odradek.ports.store import Operation
from odradek.wire.errors import ErrorCode

T = TypeVar("T")


class Failure(NamedTuple):
    """Why one topic or resource of a request was refused. Without a message the code says it all, as in Kafka."""

    code: ErrorCode
    message: str | None = None


class Decision(NamedTuple, Generic[T]):
    """`replies` are in the request's order. Without operations the store stays as it is.

    The operations are one transaction, unless it is too large: then it may end before each index in `cuts`, since what
    is in the store up to there is something that the next controller finishes.
    """

    operations: Sequence[Operation]
    image: ClusterImage
    replies: Sequence[T]
    cuts: Sequence[int] = ()


Steps: TypeAlias = Generator[None, None, T]
"""A long decision: the event loop may serve others where it yields, and the image stays as it is meanwhile."""
Decided: TypeAlias = Decision[T] | Steps[Decision[T]]
"""A decision, or the steps to a long one."""
STEP_PARTITIONS: Final = 64
"""Partitions that a long decision handles in one step."""


def drained(steps: Steps[T]) -> T:
    """Return what the steps return, all of them taken at once."""
    while True:
        try:
            next(steps)
        except StopIteration as over:
            result: T = over.value
            return result


class Settings(Protocol):
    """The controller's own configuration, by Kafka's names."""

    def value(self, name: str) -> Value:
        """The value of a configuration in its own type."""
        ...

    def number(self, name: str) -> int:
        """The value of a numeric configuration."""
        ...

    def flag(self, name: str) -> bool:
        """The value of a boolean configuration."""
        ...
