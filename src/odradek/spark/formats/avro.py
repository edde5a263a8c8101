"""Avro values by fastavro, in place of Spark's `from_avro`, which needs a JVM package.

rows = stream.select(from_avro("value", schema).alias("event")).select("event.*")
rows.select(to_avro(struct("user", "amount"), schema).alias("value")).writeStream.format("odradek")...
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from typing import Any, Final

from odradek.client.consumer.avro_schema import parse_avro, value_reader, without_logical_types
from odradek.spark.columns import array_of, arrow_type, column_function
from odradek.spark.formats.framing import Schemas, framed, unframed

PERMISSIVE: Final = "PERMISSIVE"
FAILFAST: Final = "FAILFAST"

_PRIMITIVES: Final = {
    "boolean": "boolean", "int": "int", "long": "bigint", "float": "float", "double": "double", "bytes": "binary",
    "string": "string",
}  # fmt: skip
_LOGICAL: Final = {
    ("int", "date"): "date", ("long", "timestamp-millis"): "timestamp", ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz", ("long", "local-timestamp-micros"): "timestamp_ntz",
}  # fmt: skip
"""Spark's types of logical types; those of others are the types of their numbers, text and bytes."""
_KEPT: Final = ("decimal", *(logical for _, logical in _LOGICAL))


class SchemaError(ValueError):
    """The schema has something that has no counterpart among Spark's types."""


def spark_type(schema: str) -> str:
    """Spark's type for an Avro schema, as DDL. Raises SchemaError."""
    return _type_of(parse_avro(schema), {})


def from_avro(column: Any, schema: str, *, schemas: Schemas | None = None, mode: str = FAILFAST) -> Any:
    """A column of binary Avro as a column of `schema`'s type; null stays null.

    With `schemas`, values are in Confluent's wire format: each is read with the schema of its id, and resolved to
    `schema` by Avro's rules. A value that cannot be read fails the query, or with mode PERMISSIVE is null.
    """
    returns = spark_type(schema)
    decoder = _Decoder(schema, schemas, arrow_type(returns), permissive=is_permissive(mode))
    return column_function(decoder, returns)(column)


def to_avro(column: Any, schema: str, *, schema_id: int | None = None) -> Any:
    """A column as binary Avro; with `schema_id`, in Confluent's wire format. Null stays null."""
    return column_function(_Encoder(schema, schema_id), "binary")(column)


def is_permissive(mode: str) -> bool:
    """Whether malformed values become null (PERMISSIVE) instead of errors (FAILFAST). Raises ValueError."""
    if mode not in (FAILFAST, PERMISSIVE):
        raise ValueError(f"{mode!r} is neither {FAILFAST} nor {PERMISSIVE}")
    return mode == PERMISSIVE


def _type_of(schema: Any, named: dict[str, str]) -> str:
    if isinstance(schema, list):
        rest = [each for each in schema if each != "null"]
        if len(rest) != 1:
            raise SchemaError(f"a union of {schema} has no one type")
        return _type_of(rest[0], named)
    if isinstance(schema, str):
        found = _PRIMITIVES.get(schema) or named.get(schema)
        if found is None:
            raise SchemaError(f"{schema!r} is not a type, or one that contains itself")
        return found
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal":
        return f"decimal({schema['precision']},{schema.get('scale', 0)})"
    if (kind, logical) in _LOGICAL:
        return _LOGICAL[kind, logical]
    if kind == "record":
        fields = ", ".join(f"`{each['name']}`: {_type_of(each['type'], named)}" for each in schema["fields"])
        result = f"struct<{fields}>"
    elif kind == "array":
        result = f"array<{_type_of(schema['items'], named)}>"
    elif kind == "map":
        result = f"map<string, {_type_of(schema['values'], named)}>"
    elif kind == "enum":
        result = "string"
    elif kind == "fixed":
        result = "binary"
    else:
        return _type_of(kind, named)
    if "name" in schema:
        named[schema["name"]] = result
    return result


class _Decoder:
    """Runs on executors; compiled schemas are kept as long as the worker keeps this object."""

    def __init__(self, schema: str, schemas: Schemas | None, kind: Any, *, permissive: bool) -> None:
        self._schema = schema
        self._schemas = schemas
        self._kind = kind
        self._permissive = permissive
        self._readers: dict[int | None, Callable[[Any], Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readers": {}}

    def __call__(self, values: Any) -> Any:
        found = [None if value is None else self._decode(value) for value in values.to_pylist()]
        return array_of(found, self._kind, permissive=self._permissive)

    def _decode(self, value: bytes) -> Any:
        from fastavro.read import SchemaResolutionError

        try:
            schema_id, payload = None, value
            if self._schemas is not None:
                schema_id, _, payload = unframed(value)
            read = self._reader_of(schema_id)
            stream = io.BytesIO(payload)
            found = read(stream)
            if stream.tell() != len(payload):
                raise ValueError(f"{len(payload) - stream.tell()} bytes follow the value")
            return found
        except (
            EOFError,
            ValueError,
            LookupError,
            TypeError,
            ArithmeticError,
            struct.error,
            SchemaResolutionError,
        ) as error:
            if self._permissive:
                return None
            raise ValueError(f"a value of {len(value)} bytes is not Avro of this schema: {error!r}") from error

    def _reader_of(self, schema_id: int | None) -> Callable[[Any], Any]:
        found = self._readers.get(schema_id)
        if found is None:
            own = _parsed(self._schema)
            if schema_id is None or self._schemas is None:
                found = value_reader(own)
            else:
                found = value_reader(_parsed(self._schemas.schema(schema_id)), own)
            self._readers[schema_id] = found
        return found


def _parsed(schema: str) -> Any:
    """The schema as values are read with it. Raises ValueError."""
    return without_logical_types(parse_avro(schema), _KEPT)


class _Encoder:
    def __init__(self, schema: str, schema_id: int | None) -> None:
        self._schema = schema
        self._schema_id = schema_id

    def __call__(self, values: Any) -> Any:
        import pyarrow as pa
        from fastavro import parse_schema, schemaless_writer

        schema = parse_schema(json.loads(self._schema))

        def encode(value: Any) -> bytes:
            out = io.BytesIO()
            schemaless_writer(out, schema, value)
            return out.getvalue() if self._schema_id is None else framed(self._schema_id, out.getvalue())

        content = with_dicts(values.type) or _same
        return pa.array(
            [None if value is None else encode(content(value)) for value in values.to_pylist()], pa.binary()
        )


def with_dicts(kind: Any) -> Callable[[Any], Any] | None:
    """What makes dicts of the pairs that Arrow has in the place of maps, in values of a type; None without maps."""
    import pyarrow as pa

    if pa.types.is_map(kind):
        item = with_dicts(kind.item_type) or _same
        return lambda value: None if value is None else {name: item(each) for name, each in value}
    if pa.types.is_struct(kind):
        fields = {each.name: found for each in kind if (found := with_dicts(each.type)) is not None}
        if fields:
            return lambda value: (
                None if value is None else {**value, **{name: make(value[name]) for name, make in fields.items()}}
            )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = with_dicts(kind.value_type)
        if element is not None:
            return lambda value: None if value is None else [element(each) for each in value]
    return None


def _same(value: Any) -> Any:
    return value
