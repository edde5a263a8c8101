"""The progress of streaming queries for monitoring: Prometheus' text and JSON over HTTP."""

from __future__ import annotations

import http.server
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from odradek.metrics.definition import Family, Metric, counter, gauge, label, several
from odradek.metrics.exposition import TextFormat, accepted_format, portions
from odradek.spark.progress import Progress

_QUERY: Final = ("query",)

BATCHES: Final = counter("odradek_pipeline_batches", "micro-batches with rows since the start", labels=_QUERY)
ROWS: Final = counter("odradek_pipeline_rows", "rows of these micro-batches", labels=_QUERY)
FAILURES: Final = counter("odradek_pipeline_failures", "failures of the query", labels=_QUERY)
BATCH_ID: Final = gauge("odradek_pipeline_batch_id", "number of the last micro-batch", labels=_QUERY)
RATE: Final = gauge("odradek_pipeline_input_rows_per_second", "rate at which rows came in", labels=_QUERY)
LAG: Final = gauge(
    "odradek_pipeline_lag_records",
    "records of a topic that were in no micro-batch when the last one was planned",
    labels=("query", "topic"),
)
DELAY: Final = gauge(
    "odradek_pipeline_delay_seconds", "age of the youngest record of the last micro-batch at its end", labels=_QUERY
)
DURATION: Final = gauge("odradek_pipeline_batch_duration_seconds", "duration of the last micro-batch", labels=_QUERY)
ENDED: Final = gauge(
    "odradek_pipeline_last_batch_timestamp_seconds", "time at which the last micro-batch was seen", labels=_QUERY
)
METRICS: Final = (BATCHES, ROWS, FAILURES, BATCH_ID, RATE, LAG, DELAY, DURATION, ENDED)


class _Query:
    __slots__ = ("batches", "failures", "last", "rows", "seen_at_s")

    def __init__(self) -> None:
        self.batches = self.rows = self.failures = 0
        self.last: Progress | None = None
        self.seen_at_s = 0.0


class PipelineMetrics:
    """What was reported of each query; written by one thread, read by those of the HTTP server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, _Query] = {}

    def add(self, progress: Progress) -> None:
        """Count a finished micro-batch."""
        with self._lock:
            query = self._queries.setdefault(progress.query, _Query())
            query.batches += 1
            query.rows += progress.rows
            query.last = progress
            query.seen_at_s = time.time()

    def fail(self, query: str) -> None:
        """Count a failure of a query."""
        with self._lock:
            self._queries.setdefault(query, _Query()).failures += 1

    def document(self) -> list[dict[str, Any]]:
        """The last micro-batch of each query as `--progress json` has it, with counts and failures."""
        with self._lock:
            return [
                {
                    "query": name,
                    "batches": each.batches,
                    "total_rows": each.rows,
                    "failures": each.failures,
                    "last": None if each.last is None else each.last._asdict(),
                }
                for name, each in sorted(self._queries.items())
            ]

    def text(self, text_format: TextFormat) -> str:
        """The metrics page."""
        with self._lock:
            return "".join(portions(list(self._families()), text_format))

    def _families(self) -> Iterator[Family]:
        queries = sorted(self._queries.items())
        for metric, name in ((BATCHES, "batches"), (ROWS, "rows"), (FAILURES, "failures")):
            yield several(metric, [(label("query", query), getattr(each, name)) for query, each in queries])
        last = [(query, each.last, each.seen_at_s) for query, each in queries if each.last is not None]
        yield _gauges(BATCH_ID, [(query, each.batch_id) for query, each, _ in last])
        yield _gauges(RATE, [(query, each.rows_per_second) for query, each, _ in last])
        yield several(
            LAG,
            [
                (f"{label('query', query)},{label('topic', topic)}", lag)
                for query, each, _ in last
                for topic, lag in sorted(each.topics.items())
            ],
        )
        yield _gauges(DELAY, [(query, each.delay_ms / 1000) for query, each, _ in last if each.delay_ms is not None])
        yield _gauges(DURATION, [(query, each.took_ms / 1000) for query, each, _ in last])
        yield _gauges(ENDED, [(query, seen_at_s) for query, _, seen_at_s in last])


def _gauges(metric: Metric, values: list[tuple[str, float]]) -> Family:
    return several(metric, [(label("query", query), value) for query, value in values])


class MetricsServer:
    """Serves `/metrics` and `/progress` (JSON) on threads of its own."""

    def __init__(self, metrics: PipelineMetrics, host: str, port: int) -> None:
        """Listen. Raises OSError."""

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = 30

            def do_GET(self) -> None:
                _answer(self, metrics)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
                """Scrapes are not logged."""

        kind = _Server6 if ":" in host else http.server.ThreadingHTTPServer
        self._server = kind((host, port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server6(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6


def _answer(request: http.server.BaseHTTPRequestHandler, metrics: PipelineMetrics) -> None:
    path = request.path.partition("?")[0]
    if path == "/metrics":
        text_format = accepted_format(request.headers.get("Accept", ""))
        kind, body = text_format.value, metrics.text(text_format)
    elif path == "/progress":
        kind, body = "application/json", json.dumps(metrics.document())
    else:
        request.send_error(404)
        return
    content = body.encode()
    request.send_response(200)
    request.send_header("Content-Type", kind)
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    request.wfile.write(content)
