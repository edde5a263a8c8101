"""Filters of records: text here, expressions in a process that can be ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self

from odradek.console.messages.masks import RawRecord
from odradek.console.messages.workers import Worker, WorkerEnded

START_S: Final = 15.0
"""Limit for the start of the process, which loads its libraries."""
EVALUATION_S: Final = 5.0
"""Limit for one list of records."""


class FilterError(ValueError):
    """The expression cannot be read, or takes too long."""


class RecordFilter(Protocol):
    """Selects records."""

    failed: int
    why: str

    async def wait_until_ready(self) -> None:
        """Wait until `select` may be called. Raises FilterError."""
        ...

    async def select(self, records: Sequence[RawRecord]) -> list[RawRecord]:
        """Those that match. Raises FilterError."""
        ...


class TextFilter:
    """Records that contain a text in key, value or headers, without regard to the case of ASCII letters."""

    def __init__(self, text: str) -> None:
        self._text = text.encode().lower()
        self.failed = 0
        """Records that could not be evaluated."""
        self.why = ""
        """Why the first one could not."""

    async def wait_until_ready(self) -> None:
        """Texts need no preparation."""

    async def select(self, records: Sequence[RawRecord]) -> list[RawRecord]:
        """Those that match."""
        return [each for each in records if self._matches(each)]

    def _matches(self, record: RawRecord) -> bool:
        text = self._text
        if text in (record.value or b"").lower() or text in (record.key or b"").lower():
            return True
        return any(text in name.encode().lower() or text in (value or b"").lower() for name, value in record.headers)


class ExpressionFilter:
    """Records for which a JSON path finds something, or a CEL expression is true. Use it as a context."""

    def __init__(self, kind: str, expression: str) -> None:
        self._first = {"kind": kind, "expression": expression}
        self._starting: asyncio.Task[Any] | None = None
        self._worker = Worker("odradek.console.messages.filter_worker")
        self.failed = 0
        """Records that could not be evaluated."""
        self.why = ""
        """Why the first one could not."""

    async def __aenter__(self) -> Self:
        """Begin to start the process, which takes longest: `wait_until_ready` comes after other preparations."""
        await self._worker.start()
        self._starting = asyncio.get_running_loop().create_task(self._ask(self._first, START_S))
        return self

    async def wait_until_ready(self) -> None:
        """Wait until the process has read the expression. Raises FilterError if it cannot be read."""
        assert self._starting is not None
        answer = await self._starting
        if "error" in answer:
            raise FilterError(str(answer["error"]))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._worker.end()
        if self._starting is not None:
            # It ends with the process; an error of an expression that was not waited for has no reader.
            await asyncio.gather(self._starting, return_exceptions=True)

    async def select(self, records: Sequence[RawRecord]) -> list[RawRecord]:
        """Those that match. Raises FilterError."""
        if not records:
            return []
        answer = await self._ask([_document(each) for each in records], EVALUATION_S)
        self.failed += answer["failed"]
        self.why = self.why or answer["why"]
        return [records[at] for at in answer["found"]]

    async def _ask(self, document: Any, limit_s: float) -> Any:
        try:
            return json.loads(await self._worker.ask(json.dumps(document).encode(), limit_s))
        except WorkerEnded as error:
            raise FilterError(f"The expression {error}.") from None


def _document(record: RawRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _latin(record.key),
        "value": _latin(record.value),
        "headers": [(name, _latin(value)) for name, value in record.headers],
    }


def _latin(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).decode("latin-1")
