"""Records as requests to an HTTP service: at least once, each with a key by which the service can drop repeats.

Settings have the names of Aiven's HTTP sink. `Idempotency-Key` is TOPIC-PARTITION-OFFSET of the first record.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from odradek.connect.errors import ConnectError, RecordRejected, TargetAway
from odradek.connect.model import Batch, SinkRecord
from odradek.connect.settings import REQUIRED, Importance, Setting, Type
from odradek.connect.sinks.files import plain
from odradek.connect.worker_thread import WorkerThread
from odradek.records.topic_partition import TopicPartition

SETTINGS: Final = (
    Setting("http.url", Type.STRING, REQUIRED, "where to send records", Importance.HIGH, group="HTTP"),
    Setting("http.method", Type.STRING, "POST", "method of requests", choices=("POST", "PUT"), group="HTTP"),
    Setting("http.headers.authorization", Type.PASSWORD, "", "value of the header Authorization", group="HTTP"),
    Setting("http.headers.content.type", Type.STRING, "application/json", "value of the header Content-Type",
            group="HTTP"),
    Setting("http.timeout.ms", Type.LONG, 30_000, "longest wait for an answer", minimum=1, group="HTTP"),
    Setting("batching.enabled", Type.BOOLEAN, False, "whether a request has an array of values", group="HTTP"),
    Setting("batch.max.size", Type.INT, 500, "most records of a request", minimum=1, group="HTTP"),
)  # fmt: skip
_TOO_MANY: Final = 429
_TIMED_OUT: Final = 408
_OF_SERVICE: Final = (401, 403, 404, 405, 407)
"""Statuses for every record: the login or the URL is wrong. They are no reason to skip records."""
_WRITE_S: Final = 60.0
"""How long a write may take: the group waits for max.poll.interval.ms, and then gives the partitions to another."""


class HttpSink:
    """One task's connection. See `Sink`."""

    def __init__(self, values: Mapping[str, Any], connector: str) -> None:
        """`values` are those of a checked configuration."""
        parts = urlsplit(values["http.url"])
        self._host = parts.hostname or ""
        self._port = parts.port
        self._is_secure = parts.scheme == "https"
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._method: str = values["http.method"]
        self._timeout_s = values["http.timeout.ms"] / 1000
        self._headers = {"Content-Type": values["http.headers.content.type"]}
        if values["http.headers.authorization"]:
            self._headers["Authorization"] = values["http.headers.authorization"]
        self._size: int = values["batch.max.size"] if values["batching.enabled"] else 1
        self._is_array: bool = values["batching.enabled"]
        self._connection: http.client.HTTPConnection | None = None
        self._thread = WorkerThread(f"connect-{connector}")
        self._sent: dict[TopicPartition, int] = {}
        self._most: int = values["batch.max.size"]
        self.batch_records = self._most
        """Records of one write: as many as a slow service takes within a minute."""
        self.batch_wait_s = 0.0
        """Records are sent as they come."""

    async def open(self) -> None:
        """See `Sink`."""

    async def positions(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """None: the group keeps them."""
        for each in partitions:
            self._sent.pop(each, None)
        return {}

    async def write(self, batch: Batch) -> None:
        """See `Sink`. After a failure, records that were answered in this batch are not sent again."""
        began = time.monotonic()
        # An attempt that was given up half-way continues behind what was answered.
        waiting = [
            (index, each) for index, each in enumerate(batch.records) if each.offset >= self._sent.get(each.origin, 0)
        ]
        parts = deque(waiting[start : start + self._size] for start in range(0, len(waiting), self._size))
        while parts:
            part = parts.popleft()
            try:
                await self._thread.run(self._request, part)
            except RecordRejected:
                if len(part) == 1:
                    raise
                # The service does not say which of the records it rejects.
                middle = len(part) // 2
                parts.extendleft((part[middle:], part[:middle]))
                continue
            for _, each in part:
                self._sent[each.origin] = each.offset + 1
        # A topic that is created again begins with smaller offsets.
        self._sent.clear()
        if waiting:
            record_s = (time.monotonic() - began) / len(waiting)
            self.batch_records = max(1, min(self._most, int(_WRITE_S / max(record_s, 0.001))))

    async def close(self) -> None:
        """See `Sink`."""
        await self._thread.run(self._disconnect)
        await self._thread.close()

    # --- in the thread ---

    def _request(self, records: list[tuple[int, SinkRecord]]) -> None:
        index, first = records[0]
        values = [plain(record)["value"] for _, record in records]
        try:
            body = self._body(values if self._is_array else values[0])
        except ValueError as error:
            raise RecordRejected(index, str(error)) from error
        key = f"{first.origin}-{first.offset}"
        try:
            connection = self._connect()
            connection.request(self._method, self._path, body, {**self._headers, "Idempotency-Key": key})
            answer = connection.getresponse()
            text = answer.read(2_000)
            if answer.will_close or not answer.isclosed():
                self._disconnect()
        except (OSError, http.client.HTTPException) as error:
            self._disconnect()
            raise TargetAway(f"{self._host}: {type(error).__name__}: {error}") from error
        if answer.status in (_TOO_MANY, _TIMED_OUT) or answer.status >= 500:
            raise TargetAway(f"{self._host} answers {answer.status} {answer.reason}")
        if not 200 <= answer.status < 300:
            said = text[:200].decode(errors="replace").strip()
            failure = f"{self._host} answers {answer.status} {answer.reason}: {said}"
            if answer.status < 400 or answer.status in _OF_SERVICE:
                raise ConnectError(failure)
            raise RecordRejected(index, failure)

    def _body(self, value: Any) -> bytes:
        if isinstance(value, str) and not self._is_array:
            return value.encode()
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    def _connect(self) -> http.client.HTTPConnection:
        if self._connection is None:
            if self._is_secure:
                context = ssl.create_default_context()
                self._connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=self._timeout_s, context=context
                )
            else:
                self._connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
