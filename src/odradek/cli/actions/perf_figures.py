"""The figures of performance tests, and the lines in which Apache's tools print them. Pure: times are arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from odradek.client.model import RecordMetadata

MEGABYTE: Final = 1024 * 1024
PERCENTILES: Final = (0.5, 0.95, 0.99, 0.999)


class Latencies:
    """Latencies in whole units (ms or µs), counted: memory does not grow with the number of records."""

    __slots__ = ("counts", "maximum", "number", "total")

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.number = 0
        self.total = 0.0
        self.maximum = 0

    def add(self, latency: int) -> None:
        """Count one record."""
        self.counts[latency] += 1
        self.number += 1
        self.total += latency
        if latency > self.maximum:
            self.maximum = latency

    @property
    def average(self) -> float:
        """The mean, 0 without a record."""
        return self.total / self.number if self.number else 0.0

    def percentile(self, part: float) -> int:
        """The latency that this part of the records does not exceed."""
        wanted, seen = part * self.number, 0
        for latency_ms, count in sorted(self.counts.items()):
            seen += count
            if seen >= wanted:
                return latency_ms
        return 0


class ProducerFigures:
    """What a producer test measures; given to the producer as an interceptor, so that no task runs per record."""

    __slots__ = ("_now_ms", "_window", "failures", "latencies", "record_bytes", "started_ms", "window_started_ms")

    def __init__(self, record_bytes: int, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.record_bytes = record_bytes
        self.failures: list[Exception] = []
        self.restart()

    def restart(self) -> None:
        """Begin again, after the records of a warm-up; failures stay."""
        self.started_ms = self.window_started_ms = self._now_ms()
        self.latencies = Latencies()
        self._window = Latencies()

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """Count one record; its timestamp is the time when it was sent."""
        if metadata is None:
            if error is not None:
                self.failures.append(error)
            return
        latency_ms = max(0, self._now_ms() - metadata.timestamp)
        self.latencies.add(latency_ms)
        self._window.add(latency_ms)

    def window_line(self) -> str:
        """The figures since the last such line."""
        window, now_ms = self._window, self._now_ms()
        per_second, megabytes = self._rates(window, self.window_started_ms, now_ms)
        self._window, self.window_started_ms = Latencies(), now_ms
        return (
            f"{window.number} records sent, {per_second:.1f} records/sec ({megabytes:.2f} MB/sec), "
            f"{window.average:.1f} ms avg latency, {window.maximum:.1f} ms max latency."
        )

    def total_line(self) -> str:
        """The figures of the whole test."""
        found = self.document()
        half, *others = (found[name] for name in ("p50_ms", "p95_ms", "p99_ms", "p999_ms"))
        return (
            f"{found['records']} records sent, {found['records_per_second']:f} records/sec "
            f"({found['megabytes_per_second']:.2f} MB/sec), {found['average_latency_ms']:.2f} ms avg latency, "
            f"{found['maximum_latency_ms']:.2f} ms max latency, {half} ms 50th, {others[0]} ms 95th, "
            f"{others[1]} ms 99th, {others[2]} ms 99.9th."
        )

    def document(self) -> dict[str, Any]:
        """The figures of the whole test, for programs. A megabyte is 1,048,576 bytes, as in Apache's tool."""
        now_ms = self._now_ms()
        per_second, megabytes = self._rates(self.latencies, self.started_ms, now_ms)
        names = ("p50_ms", "p95_ms", "p99_ms", "p999_ms")
        return {
            "records": self.latencies.number,
            "failed": len(self.failures),
            "seconds": (now_ms - self.started_ms) / 1000,
            "records_per_second": per_second,
            "megabytes_per_second": megabytes,
            "average_latency_ms": self.latencies.average,
            "maximum_latency_ms": self.latencies.maximum,
            **{name: self.latencies.percentile(part) for name, part in zip(names, PERCENTILES, strict=True)},
        }

    def _rates(self, latencies: Latencies, from_ms: int, to_ms: int) -> tuple[float, float]:
        seconds = max(1, to_ms - from_ms) / 1000
        return latencies.number / seconds, latencies.number * self.record_bytes / seconds / MEGABYTE


class ConsumerFigures:
    """What a consumer test measures. Joining the group counts as rebalance time, the rest as fetch time."""

    __slots__ = ("ended_ms", "joined_ms", "received_bytes", "records", "started_ms")

    HEADER: Final = (
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
        "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
    )

    def __init__(self, started_ms: int) -> None:
        self.started_ms = self.ended_ms = started_ms
        self.joined_ms: int | None = None
        self.records = 0
        self.received_bytes = 0

    def add(self, records: int, received_bytes: int, now_ms: int) -> None:
        """Count the records of a poll."""
        self.records += records
        self.received_bytes += received_bytes
        self.ended_ms = now_ms

    def document(self) -> dict[str, Any]:
        """The figures, for programs, in Apache's order."""
        rebalance_ms = max(0, (self.joined_ms or self.started_ms) - self.started_ms)
        seconds = max(1, self.ended_ms - self.started_ms) / 1000
        fetch_ms = max(1, self.ended_ms - self.started_ms - rebalance_ms)
        megabytes = self.received_bytes / MEGABYTE
        return {
            "start_time_ms": self.started_ms,
            "end_time_ms": self.ended_ms,
            "megabytes": megabytes,
            "megabytes_per_second": megabytes / seconds,
            "records": self.records,
            "records_per_second": self.records / seconds,
            "rebalance_ms": rebalance_ms,
            "fetch_ms": fetch_ms,
            "fetch_megabytes_per_second": megabytes / (fetch_ms / 1000),
            "fetch_records_per_second": self.records / (fetch_ms / 1000),
        }

    def line(self) -> str:
        """The figures below HEADER."""
        found = self.document()
        start, end = moment(found["start_time_ms"]), moment(found["end_time_ms"])
        return (
            f"{start}, {end}, {found['megabytes']:.4f}, {found['megabytes_per_second']:.4f}, {found['records']}, "
            f"{found['records_per_second']:.4f}, {found['rebalance_ms']}, {found['fetch_ms']}, "
            f"{found['fetch_megabytes_per_second']:.4f}, {found['fetch_records_per_second']:.4f}"
        )


def moment(time_ms: int) -> str:
    """A time of day as Apache's tool prints it, in the local time zone."""
    local = datetime.fromtimestamp(time_ms / 1000, UTC).astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S}:{time_ms % 1000:03d}"
