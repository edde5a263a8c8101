"""What the dispatcher counts of requests: plain slots that it writes itself, one object per API.

A request that is answered at once costs a bisection and an addition of each kind; one that waits has a second
bisection when its answer is ready. Everything else (totals, quantiles) is derived at a scrape.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter

from odradek.metrics.histogram import DURATION_BOUNDS

BOUNDS = DURATION_BOUNDS
"""Bounds of all histograms of requests, in seconds."""
FIRST_BOUND = BOUNDS[0]
"""The bound of the first bucket."""
SECOND_BOUND = BOUNDS[1]
"""That of the second. Most times on the event loop are in these two buckets: comparisons spare the bisection."""
CEILINGS = (*BOUNDS, math.inf)
"""The bound of each bucket; the last bucket has none."""


class RequestCounters:
    """Requests of one API (Kafka's `RequestMetrics`). Times are in seconds."""

    __slots__ = (
        "api",
        "bytes_in",
        "errors",
        "immediate",
        "immediate_s",
        "throttled",
        "throttled_ms",
        "throttles",
        "waited",
        "waited_local",
        "waited_local_s",
        "waited_s",
        "waited_total",
        "waits_by_design",
    )

    def __init__(self, api: str, *, waits_by_design: bool = False) -> None:
        buckets = len(BOUNDS) + 1
        self.api = api
        """The API's name as Kafka's metrics have it: Produce, FetchConsumer."""
        self.waits_by_design = waits_by_design
        """Whether the wait for its answer is what the client asked for: such a wait is not slow."""
        self.bytes_in = 0
        """Bytes of requests, without their length."""
        self.throttled = 0
        """Requests after which the client had to pause."""
        self.throttled_ms = 0
        """The sum of these pauses, in milliseconds."""
        self.throttles = [0] * buckets
        """The same requests by their pause."""
        self.errors: Counter[int] = Counter()
        """Errors answered, by code; for Produce and Fetch per partition."""
        self.immediate = [0] * buckets
        """Requests answered before the dispatcher returned, by the time that it took."""
        self.immediate_s = 0.0
        """The sum of these times."""
        self.waited = [0] * buckets
        """Requests whose answers came later, by the time between the handler's return and the answer."""
        self.waited_s = 0.0
        self.waited_local = [0] * buckets
        """The same requests by the time on the event loop before the wait."""
        self.waited_local_s = 0.0
        self.waited_total = [0] * buckets
        """The same requests by the time from the start to the answer."""

    def note_throttle(self, milliseconds: int) -> None:
        """Count a request after which the client has to pause for this long."""
        self.throttled += 1
        self.throttled_ms += milliseconds
        self.throttles[bisect_left(BOUNDS, milliseconds / 1000)] += 1

    @property
    def requests(self) -> int:
        """The number of requests that were answered."""
        return sum(self.immediate) + sum(self.waited)

    @property
    def total_counts(self) -> list[int]:
        """All requests by their time from the start to the answer."""
        return [a + b for a, b in zip(self.immediate, self.waited_total, strict=True)]

    @property
    def local_counts(self) -> list[int]:
        """All requests by their time on the event loop before any wait."""
        return [a + b for a, b in zip(self.immediate, self.waited_local, strict=True)]

    @property
    def remote_counts(self) -> list[int]:
        """All requests by the time they waited; those that did not are in the first bucket."""
        counts = list(self.waited)
        counts[0] += sum(self.immediate)
        return counts

    @property
    def throttle_counts(self) -> list[int]:
        """All requests by the pause after them; those without one are in the first bucket."""
        counts = list(self.throttles)
        counts[0] += max(0, self.requests - self.throttled)
        return counts

    @property
    def total_s(self) -> float:
        """The sum of the times from start to answer."""
        return self.immediate_s + self.waited_local_s + self.waited_s

    @property
    def local_s(self) -> float:
        """The sum of the times on the event loop before any wait."""
        return self.immediate_s + self.waited_local_s


_WAITING = frozenset(("Fetch", "JoinGroup", "SyncGroup", "ConsumerGroupHeartbeat"))

FOLLOWER_FETCH = -1
"""The key under which the fetches of followers are counted."""


class RequestCounterTable(dict[int, RequestCounters]):
    """Counters by API key, made at the first request; names come from the table of APIs."""

    __slots__ = ("_names",)

    def __init__(self, names: dict[int, str]) -> None:
        """`names` are those of the APIs by key."""
        self._names = names

    def __missing__(self, key: int) -> RequestCounters:
        name = self._names.get(key, "Fetch")
        shown = "FetchFollower" if key == FOLLOWER_FETCH else "FetchConsumer" if name == "Fetch" else name
        counters = self[key] = RequestCounters(shown, waits_by_design=name in _WAITING)
        return counters
