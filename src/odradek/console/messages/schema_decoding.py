"""Replaces the bytes of keys and values by JSON, by way of a process that may be ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

from odradek.console.messages.masks import RawRecord
from odradek.console.messages.schema_worker import Decoded, pack_parts, unpack_answers
from odradek.console.messages.workers import Worker, WorkerEnded

MAX_VALUE: Final = 1024 * 1024
"""Bytes of a key or value that is decoded; larger ones stay as they are."""
START_S: Final = 15.0
"""Limit for the start of the process, which loads its libraries."""
LIST_S: Final = 3.0
"""Limit for a list of records."""
RECORD_S: Final = 1.0
"""Limit for one record, once its list has ended a process."""
MAX_ENDED: Final = 5
"""Processes that the records of one reading may end; afterwards its records stay as they are."""
_TOO_LARGE: Final = Decoded("", None, f"it has more than {MAX_VALUE} bytes".encode())

RecordPlace = tuple[int, int]
"""Partition and offset."""


class Origin(NamedTuple):
    """What the key and the value of a record were decoded from; None for those without a schema."""

    key: Decoded | None
    value: Decoded | None


class Decoders:
    """Decodes the records of one reading. Use it as a context."""

    __slots__ = ("_ended", "_is_running", "_schemas", "_worker")

    def __init__(self, schemas: bytes) -> None:
        self._schemas = schemas
        self._worker = Worker("odradek.console.messages.schema_worker")
        self._is_running = False
        self._ended = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._worker.end()

    async def decode(self, records: Sequence[RawRecord]) -> tuple[list[RawRecord], dict[RecordPlace, Origin]]:
        """The records with JSON in place of what could be decoded, and what it was decoded from."""
        try:
            return _joined(records, await self._ask(records, LIST_S))
        except WorkerEnded:
            pass
        found: list[RawRecord] = []
        origins: dict[RecordPlace, Origin] = {}
        for each in records:
            try:
                answers = await self._ask([each], RECORD_S)
            except WorkerEnded as error:
                answers = [Decoded("", None, f"decoding it {error}".encode()) for _ in _parts([each])]
            replaced, known = _joined([each], answers)
            found += replaced
            origins |= known
        return found, origins

    async def _ask(self, records: Sequence[RawRecord], limit_s: float) -> list[Decoded | None]:
        """Answers for keys and values. Raises WorkerEnded."""
        parts = list(_parts(records))
        if not parts:
            return []
        if self._ended >= MAX_ENDED:
            why = f"{MAX_ENDED} processes ended while they decoded other records of this reading".encode()
            return [Decoded("", None, why) for _ in parts]
        try:
            if not self._is_running:
                await self._worker.start()
                await self._worker.ask(self._schemas, START_S)
                self._is_running = True
            small = [each for each in parts if len(each[1]) <= MAX_VALUE]
            answers = iter(unpack_answers(await self._worker.ask(pack_parts(small), limit_s)))
        except WorkerEnded:
            self._is_running = False
            self._ended += 1
            raise
        return [next(answers) if len(data) <= MAX_VALUE else _TOO_LARGE for _, data in parts]


def _parts(records: Sequence[RawRecord]) -> Iterator[tuple[str, bytes]]:
    """Keys and values in order, without nulls and empty ones."""
    for each in records:
        if each.key:
            yield "key", each.key
        if each.value:
            yield "value", each.value


def _joined(
    records: Sequence[RawRecord], answers: Sequence[Decoded | None]
) -> tuple[list[RawRecord], dict[RecordPlace, Origin]]:
    left = iter(answers)
    found: list[RawRecord] = []
    origins: dict[RecordPlace, Origin] = {}
    for each in records:
        record = each
        key = next(left) if each.key else None
        value = next(left) if each.value else None
        if key is not None and key.format:
            record = record._replace(key=key.text)
        if value is not None and value.format:
            record = record._replace(value=value.text)
        if key is not None or value is not None:
            origins[each.partition, each.offset] = Origin(key, value)
        found.append(record)
    return found, origins
