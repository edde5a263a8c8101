"""Avro schemas as trees of columns: the Arrow type of each part, and how its bytes are laid out."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

SchemaText = str | dict[str, Any] | list[Any]
"""A schema as JSON text, or as the objects that `json.loads` returns."""

_SIMPLE: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


class Node(NamedTuple):
    """A part of a schema."""

    kind: str
    """Avro's name of the type: `int`, `record`, …"""
    type: Any
    """The Arrow type."""
    fields: tuple[tuple[str, Node], ...] = ()
    """Of a record: the names and nodes of its fields."""
    null_branch: int | None = None
    """Of a union with null: the index of null."""
    symbols: tuple[str, ...] = ()
    """Of an enum."""
    is_flat: bool = True
    """Whether all records can be decoded at once, as it has no arrays, maps and decimals."""


def parse_avro(schema: SchemaText) -> Any:
    """The schema with complete names, as fastavro has it. Raises ValueError for what is not a schema of Avro."""
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException

    try:
        return parse_schema(json.loads(schema) if isinstance(schema, str) else schema)
    except (SchemaParseException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an Avro schema: {str(error) or type(error).__name__}") from error


def without_logical_types(schema: Any, kept: Collection[str] = ("decimal",)) -> Any:
    """A parsed schema with numbers, text and bytes in place of logical types other than those that are kept."""
    from fastavro import parse_schema

    return parse_schema(_bare(schema, kept))


def _bare(schema: Any, logical_types: Collection[str]) -> Any:
    if isinstance(schema, list):
        return [_bare(each, logical_types) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: value for name, value in schema.items() if name != "logicalType" and not name.startswith("__")}
    if schema.get("logicalType") in logical_types:
        kept["logicalType"] = schema["logicalType"]
    for name in ("type", "items", "values"):
        if name in kept:
            kept[name] = _bare(kept[name], logical_types)
    if "fields" in kept:
        kept["fields"] = [{**each, "type": _bare(each["type"], logical_types)} for each in kept["fields"]]
    return kept


def value_reader(writer: Any, reader: Any = None) -> Callable[[Any], Any]:
    """What reads a value of a parsed schema from a stream, resolved to the schema of `reader` by Avro's rules.

    The reader that fastavro compiles has no limit of depth: a few thousand bytes of a type that contains itself end the
    process. Such a type is read in Python, which raises ValueError for a value that is too deep.
    """
    if not contains_itself(writer):
        from fastavro import schemaless_reader

        return lambda stream: schemaless_reader(stream, writer, reader)
    from fastavro._read_py import schemaless_reader as read_in_python

    def read(stream: Any) -> Any:
        try:
            return read_in_python(stream, writer, reader)
        except RecursionError as error:
            raise ValueError("it is too deep") from error

    return read


def contains_itself(schema: Any, inside: tuple[str, ...] = ()) -> bool:
    """Whether a parsed schema has a record with fields of its own type; `inside` are the records around it."""
    if isinstance(schema, list):
        return any(contains_itself(each, inside) for each in schema)
    if not isinstance(schema, dict):
        return schema in inside
    if "fields" in schema:
        inside = (*inside, schema["name"])
        return any(contains_itself(each["type"], inside) for each in schema["fields"])
    return any(contains_itself(schema[part], inside) for part in ("type", "items", "values") if part in schema)


def node_of(schema: Any) -> Node:
    """The tree of a parsed schema. Raises ValueError for a part that no Arrow type fits."""
    return _node(schema, {}, ())


def _node(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> Node:
    import pyarrow as pa

    if isinstance(schema, list):
        return _union(schema, named, inside)
    if isinstance(schema, str):
        if schema in _SIMPLE:
            return Node(schema, _simple(schema))
        if schema in inside:
            raise ValueError(f"{schema} contains itself: no column can have it")
        return _node(named[schema], named, inside)
    kind = schema["type"]
    if kind in ("record", "error"):
        name = schema["name"]
        named[name] = schema
        fields = tuple((each["name"], _node(each["type"], named, (*inside, name))) for each in schema["fields"])
        arrow = pa.struct([pa.field(each, node.type) for each, node in fields])
        return Node("record", arrow, fields, is_flat=bool(fields) and all(node.is_flat for _, node in fields))
    if kind == "enum":
        named[schema["name"]] = schema
        return Node(kind, pa.string(), symbols=tuple(schema["symbols"]))
    if kind == "fixed":
        named[schema["name"]] = schema
        decimal = _decimal(schema)
        return Node(kind, decimal or pa.binary(schema["size"]), is_flat=decimal is None)
    if kind == "array":
        return Node(kind, pa.list_(_node(schema["items"], named, inside).type), is_flat=False)
    if kind == "map":
        return Node(kind, pa.map_(pa.string(), _node(schema["values"], named, inside).type), is_flat=False)
    if kind in _SIMPLE:
        decimal = _decimal(schema) if kind == "bytes" else None
        return Node(kind, decimal or _logical(kind, schema.get("logicalType")), is_flat=decimal is None)
    return _node(kind, named, inside)


def _union(branches: list[Any], named: dict[str, Any], inside: tuple[str, ...]) -> Node:
    rest = [each for each in branches if each != "null"]
    if len(rest) != 1:
        raise ValueError(f"a union of {len(rest)} types besides null has no one column type")
    node = _node(rest[0], named, inside)
    return node._replace(null_branch=branches.index("null")) if len(branches) == 2 else _only(node)


def _only(node: Node) -> Node:
    """The one type of a union: its index is written, so that it is not laid out as the type alone."""
    return node._replace(is_flat=False)


def _simple(kind: str) -> pa.DataType:
    import pyarrow as pa

    return {
        "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
        "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(),
    }[kind]  # fmt: skip


def _logical(kind: str, logical: str | None) -> pa.DataType:
    """The Arrow type of a logical type; that of its plain type if Avro does not know it, as Avro wants it."""
    import pyarrow as pa

    return {
        ("int", "date"): pa.date32(),
        ("int", "time-millis"): pa.time32("ms"),
        ("long", "time-micros"): pa.time64("us"),
        ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
        ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
        ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
        ("long", "local-timestamp-millis"): pa.timestamp("ms"),
        ("long", "local-timestamp-micros"): pa.timestamp("us"),
        ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
    }.get((kind, logical or ""), _simple(kind))


def _decimal(schema: Mapping[str, Any]) -> pa.DataType | None:
    import pyarrow as pa

    if schema.get("logicalType") != "decimal":
        return None
    precision, scale = schema["precision"], schema.get("scale", 0)
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
