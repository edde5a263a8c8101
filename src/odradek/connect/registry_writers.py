"""What sources write behind the ids of schemas in a registry: Avro, Protobuf and JSON Schema.

The settings have the names of Confluent's. The schema is a given one, the newest of the topic's subject, or made of the
fields of values: see `written_schemas`.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from odradek.client.errors import SerializationError
from odradek.client.framing import framed
from odradek.client.registry import RegistryError, RegistrySchemas
from odradek.connect.errors import ConnectError, TargetAway
from odradek.connect.registry_converters import SchemaMissing
from odradek.connect.written_schemas import extended_avro, extended_json, extended_protobuf, nested_as_text

Write = Callable[[Any], bytes]
"""Makes the bytes of an object, with the id. Raises ValueError."""


class SchemaChoice(NamedTuple):
    """Which schema a converter writes with."""

    text: str = ""
    """The schema for all topics; empty: see `uses_latest`."""
    uses_latest: bool = False
    """The newest one of the subject; otherwise one is made of the values."""
    registers: bool = True
    """Whether a schema that the subject lacks is registered."""
    is_key: bool = False


class _Known(NamedTuple):
    """What a topic is written with."""

    text: str
    write: Write


class RegistryWriter:
    """Encodes the objects of one format."""

    def __init__(self, schema_type: str, registry: RegistrySchemas, choice: SchemaChoice) -> None:
        """Raises ValueError for a combination that has no effect."""
        if choice.text and choice.uses_latest:
            raise ValueError("schema and use.latest.version: only one of them is possible")
        if choice.text and schema_type == "PROTOBUF":
            raise ValueError("schema: Protobuf takes the newest schema of the subject, or one made of values")
        self._format = _FORMATS[schema_type]
        self._registry = registry
        self._choice = choice
        self._known: dict[str, _Known] = {}

    def encode(self, topic: str, value: Any) -> bytes | None:
        """The bytes of an object. Raises ValueError, and SchemaMissing while its schema is not registered."""
        if value is None:
            return None
        known = self._known.get(topic)
        if known is None or (self._is_inferred and self._format.extend(known.text, topic, value) is not None):
            raise SchemaMissing(partial(self._fetch, topic, value))
        try:
            return known.write(value)
        except SerializationError as error:
            raise ValueError(str(error)) from error

    @property
    def _is_inferred(self) -> bool:
        return not self._choice.text and not self._choice.uses_latest

    def _fetch(self, topic: str, value: Any) -> None:
        """Let the registry have the schema. Blocks. Raises ValueError, TargetAway, ConnectError."""
        subject = f"{topic}-{'key' if self._choice.is_key else 'value'}"
        try:
            schema_id, text = self._find(subject, topic, value)
            self._known[topic] = _Known(text, self._format.writer(schema_id, text, self._registry))
        except LookupError as error:
            raise ConnectError(str(error)) from error
        except RegistryError as error:
            raise (TargetAway if error.is_transient else ConnectError)(str(error)) from error

    def _find(self, subject: str, topic: str, value: Any) -> tuple[int, str]:
        choice, registry = self._choice, self._registry
        if choice.text:
            return registry.schema_id(subject, choice.text, register=choice.registers), choice.text
        try:
            newest = registry.load(subject)[-1]
        except LookupError:
            if choice.uses_latest:
                raise
            newest = None
        before = None if newest is None else registry.schema(newest)
        if choice.uses_latest and newest is not None and before is not None:
            return newest, before
        text = self._format.extend(before, topic, value)
        if text is None and newest is not None and before is not None:
            return newest, before
        assert text is not None  # without a schema before, one is made
        return registry.schema_id(subject, text, register=choice.registers), text


# --- Avro ---


class _FixedId:
    """Stands for a registry that has been asked."""

    def __init__(self, schema_id: int) -> None:
        self._id = schema_id

    def schema_id(self, _subject: str, _schema: str, *, register: bool = True) -> int:
        del register
        return self._id


def _avro_writer(schema_id: int, text: str, _registry: RegistrySchemas) -> Write:
    from odradek.client.avro_serializers import AvroSerializer
    from odradek.client.consumer.avro_schema import parse_avro

    # With complete names: a type may be named with its namespace or without it.
    schema = parse_avro(text)
    named: dict[str, Any] = {}
    _collect(schema, named)
    serializer: Any = AvroSerializer(schema, _FixedId(schema_id), to_avro=lambda value: _fit(schema, value, named))
    return lambda value: bytes(serializer("", value))


def _collect(schema: Any, named: dict[str, Any]) -> None:
    """Types by their complete names."""
    if isinstance(schema, list):
        for each in schema:
            _collect(each, named)
    elif isinstance(schema, dict):
        if "name" in schema:
            named[schema["name"]] = schema
        for each in (*schema.get("fields", ()), schema):
            for part in ("type", "items", "values"):
                if not isinstance(each.get(part), str):
                    _collect(each.get(part), named)


def _fit(schema: Any, value: Any, named: Mapping[str, Any]) -> Any:
    """A value of JSON as Avro's types have it: texts of times, decimals and bytes. Raises ValueError."""
    if isinstance(schema, str):
        found = named.get(schema)
        if found is not None:
            return _fit(found, value, named)
        if schema == "bytes" and isinstance(value, str):
            return base64.b64decode(value, validate=True)
        return nested_as_text(value, schema == "string")
    if isinstance(schema, list):
        branches = [each for each in schema if each != "null"]
        return value if value is None or len(branches) != 1 else _fit(branches[0], value, named)
    kind = schema["type"]
    if "logicalType" in schema and isinstance(value, str):
        return _logical(schema["logicalType"], value)
    if kind == "record" and isinstance(value, dict):
        return _fit_record(schema, value, named)
    if kind == "array" and isinstance(value, list):
        return [_fit(schema["items"], each, named) for each in value]
    if kind == "map" and isinstance(value, dict):
        return {name: _fit(schema["values"], each, named) for name, each in value.items()}
    if kind == "fixed" and isinstance(value, str):
        return base64.b64decode(value, validate=True)
    return value if kind in ("record", "array", "map", "enum", "fixed") else _fit(kind, value, named)


def _fit_record(schema: Any, value: dict[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    fields = {each["name"]: each["type"] for each in schema["fields"]}
    unknown = [name for name, each in value.items() if each is not None and name not in fields]
    if unknown:
        raise ValueError(f"field {unknown[0]} is not in the schema")
    return {name: _fit(fields[name], each, named) for name, each in value.items() if name in fields}


def _logical(kind: str, text: str) -> Any:
    """The object of a text. Raises ValueError."""
    if kind.startswith(("timestamp-", "local-timestamp-")):
        at = dt.datetime.fromisoformat(text)
        return at if at.tzinfo or kind.startswith("local") else at.replace(tzinfo=dt.UTC)
    if kind == "date":
        return dt.date.fromisoformat(text)
    if kind.startswith("time-"):
        return dt.time.fromisoformat(text)
    if kind == "decimal":
        try:
            return decimal.Decimal(text)
        except decimal.InvalidOperation as error:
            raise ValueError(f"{text!r} is no decimal") from error
    return text


# --- JSON Schema and Protobuf ---


def _json_writer(schema_id: int, _text: str, _registry: RegistrySchemas) -> Write:
    def write(value: Any) -> bytes:
        try:
            return framed(schema_id, json.dumps(value, separators=(",", ":"), allow_nan=False).encode())
        except TypeError as error:
            raise ValueError(f"no JSON for it: {error}") from error

    return write


def _protobuf_writer(schema_id: int, _text: str, registry: RegistrySchemas) -> Write:
    from google.protobuf.json_format import ParseDict, ParseError

    from odradek.client.protobuf_messages import ProtobufMessages

    kind = ProtobufMessages(registry).kind(schema_id)
    texts = {each.name for each in kind.DESCRIPTOR.fields if each.type == each.TYPE_STRING and not each.is_repeated}

    def write(value: Any) -> bytes:
        if not isinstance(value, dict):
            raise ValueError(f"Protobuf has messages only, got {type(value).__name__}")  # noqa: TRY004 - the record is bad
        content = {name: nested_as_text(each, name in texts) for name, each in value.items() if each is not None}
        try:
            payload: bytes = ParseDict(content, kind()).SerializeToString()
        except ParseError as error:
            raise ValueError(f"no message {kind.DESCRIPTOR.full_name}: {error}") from error
        return framed(schema_id, payload, (0,))

    return write


class _Format(NamedTuple):
    """How a format writes."""

    extend: Callable[[str | None, str, Any], str | None]
    writer: Callable[[int, str, RegistrySchemas], Write]


_FORMATS: Final = {
    "AVRO": _Format(extended_avro, _avro_writer),
    "JSON": _Format(extended_json, _json_writer),
    "PROTOBUF": _Format(extended_protobuf, _protobuf_writer),
}
