"""Incremental fetch sessions (KIP-227): which partitions a Fetch request must name. Pure.

The broker remembers a session's partitions; after the first full request only changes are sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.records.topic_partition import TopicPartition
from odradek.wire.primitives import ZERO_UUID

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
"""Epochs with a meaning: begin a session, and fetch without one (or end it)."""


class FetchTarget(NamedTuple):
    """From where a partition is fetched, how much at most in bytes."""

    offset: int
    max_bytes: int
    leader_epoch: int
    topic_id: bytes = ZERO_UUID


class FetchPlan(NamedTuple):
    """What a request must say; `forgotten` partitions (with their topics' ids) leave the session."""

    session_id: int
    session_epoch: int
    targets: Mapping[TopicPartition, FetchTarget]
    forgotten: list[tuple[TopicPartition, bytes]]


class FetchSession:
    """One broker's session."""

    __slots__ = ("_epoch", "_partitions", "_session_id", "_with_ids")

    def __init__(self) -> None:
        self._session_id = 0
        self._epoch = INITIAL_EPOCH
        self._partitions: dict[TopicPartition, FetchTarget] = {}
        self._with_ids = False

    def plan(self, targets: Mapping[TopicPartition, FetchTarget], *, with_ids: bool) -> FetchPlan:
        """The next request, for exactly these partitions. A session uses topic ids or names, never both."""
        if with_ids != self._with_ids:
            self._epoch = INITIAL_EPOCH
            self._with_ids = with_ids
        if self._epoch == INITIAL_EPOCH:
            self._partitions = dict(targets)
            return FetchPlan(self._session_id, INITIAL_EPOCH, targets, [])
        known = self._partitions
        changed = {key: target for key, target in targets.items() if known.get(key) != target}
        forgotten = [
            (key, before.topic_id)
            for key, before in known.items()
            if key not in targets or targets[key].topic_id != before.topic_id
        ]
        self._partitions = dict(targets)
        return FetchPlan(self._session_id, self._epoch, changed, forgotten)

    def answered(self, session_id: int) -> None:
        """A request succeeded; session id 0 means that the broker keeps no session."""
        if session_id == 0:
            self._session_id = 0
            self._epoch = INITIAL_EPOCH
        elif self._epoch == INITIAL_EPOCH or session_id != self._session_id:
            self._session_id = session_id
            self._epoch = 1
        else:
            self._epoch = self._epoch + 1 if self._epoch < 0x7FFFFFFF else 1

    def failed(self, *, unknown_session: bool) -> None:
        """The broker rejected the session, or the answer was lost: the next request replaces the session."""
        if unknown_session:
            self._session_id = 0
        self._epoch = INITIAL_EPOCH
