"""The requests that are under way, one per peer and kind, with their timeouts and the pauses after failures."""

from __future__ import annotations

from typing import NamedTuple

from odradek.kraft.raft.messages import Request
from odradek.kraft.raft.settings import QuorumSettings


class Pending(NamedTuple):
    """A request without an answer yet."""

    to: int
    request: Request
    deadline_ms: float


class RequestTable:
    """Source: Kafka's `RequestManager`; there, all kinds of requests to a peer share one place."""

    def __init__(self, settings: QuorumSettings) -> None:
        self._settings = settings
        self._next_id = 0
        self._pending: dict[int, Pending] = {}
        self._not_before: dict[tuple[int, type], float] = {}

    def add(self, to: int, request: Request, now_ms: float) -> int:
        """Count a request as under way; returns its id."""
        self._next_id += 1
        self._pending[self._next_id] = Pending(to, request, now_ms + self._settings.request_timeout_ms)
        return self._next_id

    def complete(self, request_id: int) -> Pending | None:
        """Remove a request; None if it timed out before."""
        return self._pending.pop(request_id, None)

    def pause(self, found: Pending, now_ms: float) -> None:
        """Delay the next request of this kind to this peer by the retry backoff."""
        self._not_before[found.to, type(found.request)] = now_ms + self._settings.retry_backoff_ms

    def expire(self, now_ms: float) -> None:
        """Fail requests that have had no answer for too long."""
        for request_id, each in list(self._pending.items()):
            if each.deadline_ms <= now_ms:
                del self._pending[request_id]
                self.pause(each, now_ms)

    def is_ready(self, to: int, kind: type, now_ms: float) -> bool:
        """Whether a request of this kind may be sent now."""
        is_pending = any(each.to == to and type(each.request) is kind for each in self._pending.values())
        return not is_pending and self._not_before.get((to, kind), now_ms) <= now_ms

    def forget_old_epochs(self, epoch: int) -> None:
        """Let the requests of old epochs not delay those of this one."""
        for request_id, each in list(self._pending.items()):
            if each.request.epoch < epoch:
                del self._pending[request_id]

    def next_deadline(self, now_ms: float) -> float:
        """When a request times out or a pause ends; infinite without either."""
        self._not_before = {key: value for key, value in self._not_before.items() if value > now_ms}
        times = [each.deadline_ms for each in self._pending.values()]
        return min([*times, *self._not_before.values()], default=float("inf"))
