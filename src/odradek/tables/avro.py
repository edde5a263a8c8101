"""Values in Avro whose schemas are in a schema registry (Confluent's wire format), as fields and their columns' types.

A value is read with the schema that it was written with; it need not be resolved to another one, because columns are
added as schemas get fields, and a column without a value is null.
"""

from __future__ import annotations

import io
import json
import struct
import time
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, Final, NamedTuple

from odradek.client.framing import unframed
from odradek.client.registry import RegistryError, RegistrySchemas
from odradek.connect.columns import plain_value
from odradek.connect.errors import ConnectError, TargetAway

UNKNOWN_S: Final = 10.0
"""How long an id counts as unknown before the registry is asked again."""
_PRIMITIVES: Final = {
    "boolean": "boolean", "int": "bigint", "long": "bigint", "float": "double", "double": "double", "bytes": "binary",
    "string": "string", "enum": "string", "fixed": "binary", "record": "string", "array": "string", "map": "string",
}  # fmt: skip
_LOGICAL: Final = {
    "decimal": "string", "uuid": "string", "date": "date", "time-millis": "string", "time-micros": "string",
    "timestamp-millis": "timestamp", "timestamp-micros": "timestamp", "local-timestamp-millis": "timestamp",
    "local-timestamp-micros": "timestamp",
}  # fmt: skip


class _Schema(NamedTuple):
    """A schema of the registry."""

    parsed: Any
    kinds: Mapping[str, str]
    """The types of the columns of its fields, as far as each field has one type."""


class AvroFields:
    """Decodes keys or values, with the types of their fields. Blocks while a schema is fetched, once for each id.

    Unlike the converter of connectors it keeps times and bytes, which columns have types for.
    """

    def __init__(self, schemas: RegistrySchemas, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._registry = schemas
        self._clock = clock
        self._schemas: dict[int, _Schema] = {}
        self._unknown: dict[int, tuple[float, str]] = {}

    def decode(self, data: bytes | None) -> Any:
        """The fields of a record, or another value; see `typed`."""
        return self.typed(data)[0]

    def typed(self, data: bytes | None) -> tuple[Any, Mapping[str, str]]:
        """A value, and the types of the columns that its schema has fields for.

        Dates and times are objects, all else is as of JSON. Raises ValueError for bytes that are not a value of a
        schema of the registry, TargetAway or ConnectError for a registry that does not answer as it should.
        """
        from fastavro import schemaless_reader

        if data is None:
            return None, {}
        schema_id, _, payload = unframed(data)
        schema = self._schema(schema_id)
        stream = io.BytesIO(payload)
        try:
            found = schemaless_reader(stream, schema.parsed, None)
        except (EOFError, ValueError, LookupError, TypeError, ArithmeticError, struct.error) as error:
            raise ValueError(f"not Avro of schema {schema_id}: {str(error) or type(error).__name__}") from error
        if stream.tell() != len(payload):
            raise ValueError(f"not Avro of schema {schema_id}: it takes {stream.tell()} bytes of {len(payload)}")
        if isinstance(found, dict):
            return {name: _plain(value) for name, value in found.items()}, schema.kinds
        return _plain(found), {}

    def _schema(self, schema_id: int) -> _Schema:
        """The schema with that id. Raises ValueError for one that is unknown, or no schema."""
        found = self._schemas.get(schema_id)
        if found is not None:
            return found
        until, reason = self._unknown.get(schema_id, (0.0, ""))
        if reason and self._clock() < until:
            raise ValueError(reason)
        try:
            found = self._schemas[schema_id] = _schema_of(self._registry.schema(schema_id))
        except LookupError as error:
            reason = str(error)
        except ValueError as error:
            reason = f"schema {schema_id}: {error}"
        except RegistryError as error:
            raise (TargetAway if error.is_transient else ConnectError)(str(error)) from error
        else:
            return found
        self._unknown[schema_id] = (self._clock() + UNKNOWN_S, reason)
        raise ValueError(reason)


def _schema_of(text: str) -> _Schema:
    """Raises ValueError for what is not a schema."""
    from odradek.client.consumer.avro_schema import parse_avro

    parsed = parse_avro(text)
    branches = parsed if isinstance(parsed, list) else [parsed]
    records = [each for each in branches if isinstance(each, dict) and each.get("type") == "record"]
    fields = records[0]["fields"] if len(records) == 1 else []
    kinds = {each["name"]: _kind(each["type"]) for each in fields}
    return _Schema(parsed, {name: kind for name, kind in kinds.items() if kind is not None})


def _kind(schema: Any) -> str | None:
    """The type of a field's column; None for null, and for a union of several types."""
    if isinstance(schema, list):
        rest = [each for each in schema if each != "null"]
        return _kind(rest[0]) if len(rest) == 1 else None
    if isinstance(schema, str):
        # a name that is not a simple type is that of a record, an enum or a fixed
        return _PRIMITIVES.get(schema)
    logical = _LOGICAL.get(schema.get("logicalType"))
    return logical if logical is not None else _kind(schema["type"])


def _plain(value: Any) -> Any:
    """A value of a column: arrays and objects are JSON text."""
    if value is None or isinstance(value, bool | int | float | str | bytes | date):
        return value
    if isinstance(value, dict | list | tuple):
        return json.dumps(plain_value(value), separators=(",", ":"), ensure_ascii=False)
    # times of a day, decimals and UUIDs
    return str(value)
