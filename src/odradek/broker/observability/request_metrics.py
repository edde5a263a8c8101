"""Metrics of requests by API: numbers, errors and times (Kafka's `RequestMetrics`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from odradek.metrics.definition import Family, Kind, Metric, Sample, counter, label, several
from odradek.metrics.histogram import QUANTILES, RecentCounts, histogram_samples, quantile
from odradek.metrics.requests import BOUNDS, RequestCounters, RequestCounterTable
from odradek.wire.errors import ErrorCode

_API: Final = ("request",)
_KAFKA: Final = "kafka.network:type=RequestMetrics,name="


def _times(name: str, what: str, counterpart: str) -> Metric:
    meaning = f"Milliseconds {what}; quantiles of the last minute or more"
    return Metric(f"kafka_network_requestmetrics_{name}", Kind.SUMMARY, (*_API, "quantile"), meaning, counterpart)


REQUESTS: Final = counter("kafka_network_requestmetrics_requests", "Requests answered", f"{_KAFKA}RequestsPerSec", _API)
ERRORS: Final = counter(
    "kafka_network_requestmetrics_errors",
    "Errors answered, of Produce and Fetch for each partition; NONE is not counted",
    f"{_KAFKA}ErrorsPerSec",
    (*_API, "error"),
)
REQUEST_BYTES: Final = counter(
    "odradek_request_bytes", "Bytes of requests without their length field", f"{_KAFKA}RequestBytes", _API
)
THROTTLED: Final = counter("odradek_throttled_requests", "Requests after which a quota made the client pause", "", _API)
THROTTLED_SECONDS: Final = counter(
    "odradek_throttled_seconds", "The sum of the pauses that quotas made clients take", "", _API
)
TOTAL_TIME: Final = _times("totaltimems", "from the start of a request to its answer", f"{_KAFKA}TotalTimeMs")
LOCAL_TIME: Final = _times("localtimems", "on the event loop before any wait", f"{_KAFKA}LocalTimeMs")
REMOTE_TIME: Final = _times(
    "remotetimems", "between the handler's return and the answer: followers, disks, long polls", f"{_KAFKA}RemoteTimeMs"
)
THROTTLE_TIME: Final = _times("throttletimems", "that a quota made the client pause", f"{_KAFKA}ThrottleTimeMs")
DURATION: Final = Metric(
    "odradek_request_duration_seconds",
    Kind.HISTOGRAM,
    (*_API, "le"),
    "Time from the start of a request to its answer",
    f"{_KAFKA}TotalTimeMs",
)
LOCAL_DURATION: Final = Metric(
    "odradek_request_local_duration_seconds",
    Kind.HISTOGRAM,
    (*_API, "le"),
    "Time of a request on the event loop before any wait",
    f"{_KAFKA}LocalTimeMs",
)

Counts = Callable[[RequestCounters], list[int]]


class RequestMetrics:
    """Reads the counters of a dispatcher."""

    __slots__ = ("_now", "_recent", "_table")

    metrics = (
        REQUESTS,
        ERRORS,
        REQUEST_BYTES,
        THROTTLED,
        THROTTLED_SECONDS,
        TOTAL_TIME,
        LOCAL_TIME,
        REMOTE_TIME,
        THROTTLE_TIME,
        DURATION,
        LOCAL_DURATION,
    )
    """See `Collector`."""

    def __init__(self, table: RequestCounterTable, now: Callable[[], float]) -> None:
        """`now` is a monotonic clock in seconds."""
        self._table = table
        self._now = now
        self._recent: dict[tuple[str, str], RecentCounts] = {}

    def collect(self) -> Iterator[Family | None]:
        """See `Collector`."""
        rows = [(label("request", each.api), each) for each in self._table.values()]
        yield several(REQUESTS, ((labels, each.requests) for labels, each in rows))
        yield several(
            ERRORS,
            (
                (f"{labels},{label('error', _error_name(code))}", number)
                for labels, each in rows
                for code, number in list(each.errors.items())
            ),
        )
        yield several(REQUEST_BYTES, ((labels, each.bytes_in) for labels, each in rows))
        yield several(THROTTLED, ((labels, each.throttled) for labels, each in rows))
        yield several(THROTTLED_SECONDS, ((labels, each.throttled_ms / 1000) for labels, each in rows))
        now = self._now()
        for metric, counts, seconds in (
            (TOTAL_TIME, _total, lambda each: each.total_s),
            (LOCAL_TIME, _local, lambda each: each.local_s),
            (REMOTE_TIME, _remote, lambda each: each.waited_s),
            (THROTTLE_TIME, _throttle, lambda each: each.throttled_ms / 1000),
        ):
            yield Family(metric, self._summary(metric, rows, counts, seconds, now))
        yield Family(DURATION, _histogram(rows, _total, lambda each: each.total_s))
        yield Family(LOCAL_DURATION, _histogram(rows, _local, lambda each: each.local_s))

    def _summary(
        self,
        metric: Metric,
        rows: list[tuple[str, RequestCounters]],
        counts_of: Counts,
        seconds: Callable[[RequestCounters], float],
        now: float,
    ) -> Iterator[Sample]:
        for labels, each in rows:
            counts = counts_of(each)
            recent = self._recent.setdefault((metric.name, each.api), RecentCounts()).since(counts, now)
            for wanted in QUANTILES:
                yield "", f'{labels},quantile="{wanted}"', 1000 * quantile(BOUNDS, recent, wanted)
            yield "_count", labels, sum(counts)
            yield "_sum", labels, 1000 * seconds(each)


def _histogram(
    rows: list[tuple[str, RequestCounters]], counts_of: Counts, seconds: Callable[[RequestCounters], float]
) -> Iterator[Sample]:
    for labels, each in rows:
        yield from histogram_samples(labels, BOUNDS, counts_of(each), seconds(each))


def _total(each: RequestCounters) -> list[int]:
    return each.total_counts


def _local(each: RequestCounters) -> list[int]:
    return each.local_counts


def _remote(each: RequestCounters) -> list[int]:
    return each.remote_counts


def _throttle(each: RequestCounters) -> list[int]:
    return each.throttle_counts


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
