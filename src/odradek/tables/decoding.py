"""From Arrow tables of records, as a consumer returns them, to rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from odradek.connect.converters import ByteArrayConverter, StringConverter
from odradek.tables.planning import Decoded
from odradek.tables.registry_fields import RegistryFields
from odradek.tables.schema import COORDINATES, Row, timestamp_of

KEY: Final = "__key"
"""The column of a key that is no object."""
VALUE: Final = "value"
"""The column of a value that is no object."""


class Converter(Protocol):
    """From bytes of records to values."""

    def decode(self, data: bytes | None) -> Any:
        """The value. Raises ValueError."""
        ...


def has_fields(converter: Converter) -> bool:
    """Whether values may be objects, whose fields become columns."""
    return not isinstance(converter, StringConverter | ByteArrayConverter)


class Decoder(NamedTuple):
    """How keys and values become columns."""

    key: Converter
    value: Converter
    keys: tuple[str, ...]
    """The columns of the key: one for a value, or fields of an object."""
    reserved: frozenset[str] = frozenset()
    """Further names that fields cannot have."""

    def decode(self, table: Any) -> Iterator[Decoded]:
        """The records of a table with the columns of `Consumer.arrow`.

        Raises ConnectError if a schema cannot be fetched.
        """
        topics = table.column("topic").to_pylist()
        timestamps = table.column("timestamp").cast("int64").to_pylist()
        columns = [table.column(name).to_pylist() for name in ("partition", "offset", "key", "value")]
        for topic, at_ms, partition, offset, key, value in zip(topics, timestamps, *columns, strict=True):
            timestamp_ms = -1 if at_ms is None else at_ms
            try:
                row, kinds = self._row(key, value)
            except ValueError as error:
                yield Decoded(partition, offset, timestamp_ms, key, value, None, value is None, str(error))
                continue
            row.update(zip(COORDINATES, (topic, partition, offset, timestamp_of(timestamp_ms)), strict=True))
            yield Decoded(partition, offset, timestamp_ms, key, value, row, value is None, kinds=kinds)

    def _row(self, key: bytes | None, value: bytes | None) -> tuple[Row, Mapping[str, str]]:
        """The columns of a key and a value, and the types of the value's fields. Raises ValueError."""
        row, kinds = self._value(value)
        for name in row:
            if name in COORDINATES or name in self.reserved:
                raise ValueError(f"field {name} has the name of a column that the table fills itself")
        for name, part in zip(self.keys, self._key(key), strict=True):
            if name in row and row[name] != part:
                raise ValueError(f"field {name} differs between key and value")
            row[name] = part
        return row, kinds

    def _value(self, value: bytes | None) -> tuple[Row, Mapping[str, str]]:
        if value is None:
            return {}, {}
        kinds: Mapping[str, str] = {}
        if isinstance(self.value, RegistryFields):
            found, kinds = self.value.typed(value)
        else:
            found = self.value.decode(value)
        if not has_fields(self.value):
            return {VALUE: found}, kinds
        if not isinstance(found, dict):
            expected = self.value.expected if isinstance(self.value, RegistryFields) else "a JSON object"
            raise ValueError(f"{expected} expected, got {type(found).__name__}")  # noqa: TRY004 - data
        return found, kinds

    def _key(self, key: bytes | None) -> Sequence[Any]:
        found = self.key.decode(key)
        if isinstance(found, dict):
            return [found.get(name) for name in self.keys]
        if len(self.keys) > 1 and found is not None:
            raise ValueError(f"key: an object with {', '.join(self.keys)} expected")
        return [found] * len(self.keys)
