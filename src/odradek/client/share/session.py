"""A share session with one broker, without I/O: its epoch, and the partitions that the broker knows (KIP-932)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from odradek.records.topic_partition import TopicIdPartition

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 0x7FFFFFFF


class SharePlan(NamedTuple):
    """What a fetch says about the session: its epoch, the partitions that join it, and those that leave it."""

    epoch: int
    added: list[TopicIdPartition]
    forgotten: list[TopicIdPartition]


class ShareSession:
    """One request at a time: `plan` or `epoch` before it, `answered` or `reset` after it."""

    __slots__ = ("_partitions", "_planned", "epoch")

    def __init__(self) -> None:
        self.epoch = INITIAL_EPOCH
        """That of the next request."""
        self._partitions: frozenset[TopicIdPartition] = frozenset()
        self._planned: frozenset[TopicIdPartition] = frozenset()

    @property
    def is_new(self) -> bool:
        """Whether the broker has no session, so that nothing can be acknowledged."""
        return self.epoch == INITIAL_EPOCH

    def plan(self, wanted: Collection[TopicIdPartition]) -> SharePlan:
        """The next fetch, of exactly these partitions."""
        self._planned = frozenset(wanted)
        return SharePlan(self.epoch, sorted(self._planned - self._partitions), sorted(self._partitions - self._planned))

    def fetched(self) -> None:
        """The broker has answered the planned fetch without an error."""
        self._partitions = self._planned
        self.acknowledged()

    def acknowledged(self) -> None:
        """The broker has answered a request of the session without an error."""
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def reset(self) -> None:
        """The session is lost: the next fetch begins another."""
        self.epoch = INITIAL_EPOCH
        self._partitions = frozenset()
