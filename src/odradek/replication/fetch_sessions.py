"""Incremental fetch sessions (KIP-227): the broker keeps what a client reads, and each fetch names changes only.

A session holds the partitions of a client, in the order in which they are served next; an incremental answer names only
those that changed. Pure: time comes in as an argument. Source: Kafka's FetchSession, FetchManager.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from odradek.ports.randomness import Random
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.fetch import FetchPartition
from odradek.wire.produce import RequestedPartition

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 0x7FFFFFFF


class FetchSession:
    """The remembered partitions of one client."""

    __slots__ = ("epoch", "identifier", "last_used_ms", "sent", "uses_topic_ids", "wanted")

    def __init__(self, identifier: int, uses_topic_ids: bool, now_ms: int) -> None:
        self.identifier = identifier
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.last_used_ms = now_ms
        self.wanted: OrderedDict[RequestedPartition, FetchPartition] = OrderedDict()
        self.sent: dict[RequestedPartition, tuple[int, int]] = {}
        """(high watermark, log start offset) as last sent to the client."""

    def update(
        self, wanted: Iterable[tuple[RequestedPartition, FetchPartition]], forgotten: Iterable[RequestedPartition]
    ) -> None:
        """Drop the forgotten partitions, then add or replace the wanted ones."""
        for place in forgotten:
            self.wanted.pop(place, None)
            self.sent.pop(place, None)
        for place, asked in wanted:
            self.wanted[place] = asked

    def must_include(
        self, place: RequestedPartition, size: int, failed: bool, high_watermark: int, log_start_offset: int
    ) -> bool:
        """Whether an incremental answer has to name the partition; remembers the offsets that it then has."""
        news = (high_watermark, log_start_offset)
        if failed:
            # The next answer repeats it until the client does something about it.
            self.sent.pop(place, None)
            return True
        if size or self.sent.get(place) != news:
            self.sent[place] = news
            return True
        return False

    def serve_last(self, place: RequestedPartition) -> None:
        """A partition that was given data goes to the end, so that all get their turn within `fetch.max.bytes`."""
        if place in self.wanted:
            self.wanted.move_to_end(place)


class FetchSessions:
    """All sessions of a broker, at most `slots` of them.

    A new one takes the place of the one longest unused, if that is at least `min_eviction_ms`; otherwise the client
    goes without a session, which costs bytes and nothing else.
    """

    __slots__ = ("_by_id", "_min_eviction_ms", "_random", "_slots")

    def __init__(self, slots: int, random: Random, min_eviction_ms: int = 120_000) -> None:
        self._slots = slots
        self._random = random
        self._min_eviction_ms = min_eviction_ms
        self._by_id: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, session_id: int, epoch: int, uses_topic_ids: bool, now_ms: int) -> FetchSession:
        """The session that an incremental request (epoch > 0) continues; its epoch advances.

        Raises KafkaError FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session = self._by_id.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if epoch != session.epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if uses_topic_ids != session.uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        session.last_used_ms = now_ms
        self._by_id.move_to_end(session_id)
        return session

    def end(self, session_id: int) -> None:
        """Remove the session, if it exists."""
        self._by_id.pop(session_id, None)

    def begin(
        self, wanted: Iterable[tuple[RequestedPartition, FetchPartition]], uses_topic_ids: bool, now_ms: int
    ) -> FetchSession | None:
        """A new session with these partitions; None when no slot is free."""
        if len(self._by_id) >= self._slots and not self._evict(now_ms):
            return None
        identifier = NO_SESSION
        while identifier == NO_SESSION or identifier in self._by_id:
            identifier = self._random.randrange(MAX_EPOCH)
        session = FetchSession(identifier, uses_topic_ids, now_ms)
        session.update(wanted, ())
        if not session.wanted:
            return None
        self._by_id[identifier] = session
        return session

    def _evict(self, now_ms: int) -> bool:
        if not self._by_id:
            return False
        oldest = next(iter(self._by_id.values()))
        if now_ms - oldest.last_used_ms < self._min_eviction_ms:
            return False
        del self._by_id[oldest.identifier]
        return True
