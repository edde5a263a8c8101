"""Answers of an HTTP service as records: a JSON document is asked for again and again, with a cursor or an ETag."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, Final

from odradek.connect.errors import ConnectError, TargetAway
from odradek.connect.http_settings import check_http
from odradek.connect.model import SourceRecord
from odradek.connect.settings import REQUIRED, Importance, Setting, Type
from odradek.connect.sources.source import StoredOffsets
from odradek.connect.worker_thread import WorkerThread

SETTINGS: Final = (
    Setting("http.url", Type.STRING, REQUIRED, "what to ask for", Importance.HIGH, group="HTTP"),
    Setting("http.headers.authorization", Type.PASSWORD, "", "value of the header Authorization", group="HTTP"),
    Setting("http.timeout.ms", Type.LONG, 30_000, "longest wait for an answer", minimum=1, group="HTTP"),
    Setting("http.max.bytes", Type.INT, 16_777_216, "largest answer", minimum=1, group="HTTP"),
    Setting("topic", Type.STRING, REQUIRED, "topic to write to", Importance.HIGH),
    Setting("records.pointer", Type.STRING, "", "JSON pointer to the array of records; empty: the complete answer",
            group="HTTP"),
    Setting("key.pointer", Type.STRING, "", "JSON pointer to the key within a record", group="HTTP"),
    Setting("cursor.pointer", Type.STRING, "", "JSON pointer to what the next request begins with", group="HTTP"),
    Setting("cursor.parameter", Type.STRING, "", "parameter of the URL for the cursor", group="HTTP"),
)  # fmt: skip

_NOT_MODIFIED: Final = 304
_TOO_MANY: Final = 429
_TIMED_OUT: Final = 408


def check(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """What is wrong with settings that are right one by one."""
    errors = check_http(values)
    for name in ("records.pointer", "key.pointer", "cursor.pointer"):
        if values[name] and not values[name].startswith("/"):
            errors[name] = [f"{name}: a pointer begins with /"]
    if bool(values["cursor.pointer"]) != bool(values["cursor.parameter"]):
        errors["cursor.parameter"] = ["cursor.parameter and cursor.pointer need each other"]
    return errors


def resolve(document: Any, pointer: str) -> Any:
    """What a JSON pointer (RFC 6901) finds. Raises LookupError."""
    for raw in pointer.split("/")[1:]:
        part = raw.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list) and part.isascii() and part.isdecimal():
            document = document[int(part)]
        elif isinstance(document, dict) and part in document:
            document = document[part]
        else:
            raise LookupError(f"{pointer} finds nothing")
    return document


class HttpSource:
    """One task's service. See `Source`."""

    def __init__(self, values: Mapping[str, Any], connector: str) -> None:
        """`values` are those of a checked configuration."""
        self._values = values
        self._url: str = values["http.url"]
        self._partition = {"url": self._url.partition("?")[0]}
        self._offset: Mapping[str, Any] = {}
        self._thread = WorkerThread(f"connect-{connector}")

    async def open(self, offsets: StoredOffsets) -> None:
        """See `Source`."""
        self._offset = offsets.of(self._partition) or {}

    async def poll(self) -> Sequence[SourceRecord]:
        """See `Source`."""
        answer = await self._thread.run(self._fetch)
        if answer is None:
            return []
        document, offset = answer
        seen = self._offset.get("seen", 0)
        try:
            records = _array(resolve(document, self._values["records.pointer"]))
            pointer = self._values["key.pointer"]
            keys = [resolve(each, pointer) if pointer else None for each in records[seen:]]
        except LookupError as error:
            raise ConnectError(f"{self._url}: {error}") from error
        if self._values["cursor.pointer"] and offset.get("cursor") == self._offset.get("cursor"):
            # A page without a successor is asked for again: what was read of it is skipped then.
            offset = {**offset, "seen": len(records)}
        self._offset = offset
        return [
            SourceRecord(self._partition, offset, self._values["topic"], key, each)
            for key, each in zip(keys, records[seen:], strict=True)
        ]

    async def close(self) -> None:
        """See `Source`."""
        await self._thread.close()

    # --- in the thread ---

    def _fetch(self) -> tuple[Any, Mapping[str, Any]] | None:
        """(document, offset after it); None if it has not changed. Raises TargetAway, ConnectError."""
        url = self._url
        if "cursor" in self._offset:
            parameter = urllib.parse.urlencode({self._values["cursor.parameter"]: self._offset["cursor"]})
            url += ("&" if "?" in url else "?") + parameter
        headers = {"Accept": "application/json"}
        if "etag" in self._offset:
            headers["If-None-Match"] = self._offset["etag"]
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - `check` allows http and https only
        if self._values["http.headers.authorization"]:
            # A redirect may lead to another host, which is not to see it.
            request.add_unredirected_header("Authorization", self._values["http.headers.authorization"])
        limit = self._values["http.max.bytes"]
        try:
            with urllib.request.urlopen(request, timeout=self._values["http.timeout.ms"] / 1000) as answer:  # noqa: S310
                text = answer.read(limit + 1)
                etag = answer.headers.get("ETag")
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == _NOT_MODIFIED:
                return None
            kind = TargetAway if error.code >= 500 or error.code in (_TOO_MANY, _TIMED_OUT) else ConnectError
            raise kind(f"{self._partition['url']} answers {error.code} {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:
            raise TargetAway(f"{self._partition['url']}: {error}") from error
        if len(text) > limit:
            raise ConnectError(f"{self._partition['url']}: the answer has more than {limit} bytes")
        try:
            document = json.loads(text)
        except ValueError as error:
            raise ConnectError(f"{self._partition['url']}: the answer is not JSON: {error}") from error
        return document, self._next(document, etag)

    def _next(self, document: Any, etag: str | None) -> Mapping[str, Any]:
        pointer = self._values["cursor.pointer"]
        if pointer:
            try:
                cursor = resolve(document, pointer)
            except LookupError:
                cursor = None
            if cursor is None and "cursor" in self._offset:
                cursor = self._offset["cursor"]
            return {} if cursor is None else {"cursor": cursor}
        return {"etag": etag} if etag else {}


def _array(records: Any) -> list[Any]:
    return records if isinstance(records, list) else [records]
