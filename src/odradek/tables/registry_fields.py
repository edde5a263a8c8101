"""Values whose schemas are in a schema registry (Confluent's wire format), as fields and their columns' types.

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
from typing import Any, Final, Protocol

from odradek.client.framing import unframed
from odradek.client.registry import RegistrySchemas
from odradek.connect.columns import plain_value
from odradek.connect.registry_converters import fetch_schema, json_document
from odradek.tables.schema_kinds import avro_kinds, json_kinds, protobuf_kinds

UNKNOWN_S: Final = 10.0
"""How long an id counts as unknown before the registry is asked again."""


class _Schema(Protocol):
    """A schema of the registry."""

    def read(self, payload: bytes, indexes: tuple[int, ...]) -> tuple[Any, Mapping[str, str]]:
        """A value, and the types of its fields' columns. Raises ValueError."""
        ...


class _AvroSchema:
    """See `_Schema`."""

    def __init__(self, registry: RegistrySchemas, schema_id: int) -> None:
        from odradek.client.consumer.avro_schema import parse_avro, value_reader

        parsed = parse_avro(registry.schema(schema_id))
        self._read = value_reader(parsed)
        self._kinds = avro_kinds(parsed)

    def read(self, payload: bytes, _indexes: tuple[int, ...]) -> tuple[Any, Mapping[str, str]]:
        """See `_Schema`."""
        stream = io.BytesIO(payload)
        try:
            found = self._read(stream)
        except (EOFError, ValueError, LookupError, TypeError, ArithmeticError, struct.error) as error:
            raise ValueError(str(error) or type(error).__name__) from error
        if stream.tell() != len(payload):
            raise ValueError(f"it takes {stream.tell()} bytes of {len(payload)}")
        return found, self._kinds if isinstance(found, dict) else {}


class _ProtobufSchema:
    """See `_Schema`. A schema may have several messages: the indexes select one."""

    def __init__(self, registry: RegistrySchemas, schema_id: int) -> None:
        from odradek.client.protobuf_messages import ProtobufMessages

        self._id = schema_id
        self._messages = ProtobufMessages(registry)
        self._messages.kind(schema_id)
        self._kinds: dict[tuple[int, ...], Mapping[str, str]] = {}

    def read(self, payload: bytes, indexes: tuple[int, ...]) -> tuple[Any, Mapping[str, str]]:
        """See `_Schema`."""
        from odradek.client.protobuf_messages import message_fields, parse_message

        kind = self._messages.kind(self._id, indexes)
        if indexes not in self._kinds:
            self._kinds[indexes] = protobuf_kinds(kind.DESCRIPTOR)
        return message_fields(parse_message(kind, payload)), self._kinds[indexes]


class _JsonSchema:
    """See `_Schema`."""

    def __init__(self, registry: RegistrySchemas, schema_id: int) -> None:
        self._kinds = json_kinds(json_document(registry.schema(schema_id).encode()))

    def read(self, payload: bytes, _indexes: tuple[int, ...]) -> tuple[Any, Mapping[str, str]]:
        """See `_Schema`."""
        found = json_document(payload)
        return found, self._kinds if isinstance(found, dict) else {}


_Read = Callable[[RegistrySchemas, int], _Schema]
_TYPES: Final[Mapping[str, tuple[str, str, _Read]]] = {
    "AVRO": ("Avro", "an Avro record", _AvroSchema),
    "PROTOBUF": ("Protobuf", "a Protobuf message", _ProtobufSchema),
    "JSON": ("JSON", "a JSON object", _JsonSchema),
}
"""By the type of the registry's schemas: title, what has fields, how schemas are read."""


class RegistryFields:
    """Decodes keys or values, with the types of their fields. Blocks while a schema is fetched, once for each id.

    Unlike the converter of connectors it keeps times and bytes, which columns have types for.
    """

    def __init__(self, schemas: RegistrySchemas, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._registry = schemas
        self._clock = clock
        self._title, self.expected, self._parse = _TYPES[schemas.schema_type]
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
        if data is None:
            return None, {}
        schema_id, indexes, payload = unframed(data, indexes=self._registry.schema_type == "PROTOBUF")
        schema = self._schema(schema_id)
        try:
            found, kinds = schema.read(payload, indexes or (0,))
        except ValueError as error:
            raise ValueError(f"not {self._title} of schema {schema_id}: {error}") from error
        if isinstance(found, dict):
            return {name: _plain(value) for name, value in found.items()}, kinds
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
            fetch_schema(self._registry, schema_id)
        except ValueError as error:
            reason = str(error)
        else:
            try:
                found = self._schemas[schema_id] = self._parse(self._registry, schema_id)
            except ValueError as error:
                reason = f"schema {schema_id}: {error}"
            else:
                return found
        self._unknown[schema_id] = (self._clock() + UNKNOWN_S, reason)
        raise ValueError(reason)


def _plain(value: Any) -> Any:
    """A value of a column: arrays and objects are JSON text."""
    if value is None or isinstance(value, bool | int | float | str | bytes | date):
        return value
    if isinstance(value, dict | list | tuple):
        return json.dumps(plain_value(value), separators=(",", ":"), ensure_ascii=False)
    # times of a day, decimals and UUIDs
    return str(value)
