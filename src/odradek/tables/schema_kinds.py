"""The types of the columns that schemas of Avro, Protobuf and JSON Schema have fields for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_AVRO: Final = {
    "boolean": "boolean", "int": "bigint", "long": "bigint", "float": "double", "double": "double", "bytes": "binary",
    "string": "string", "enum": "string", "fixed": "binary", "record": "string", "array": "string", "map": "string",
}  # fmt: skip
_LOGICAL: Final = {
    "decimal": "string", "uuid": "string", "date": "date", "time-millis": "string", "time-micros": "string",
    "timestamp-millis": "timestamp", "timestamp-micros": "timestamp", "local-timestamp-millis": "timestamp",
    "local-timestamp-micros": "timestamp",
}  # fmt: skip
_PROTOBUF: Final = {
    **dict.fromkeys((3, 4, 5, 6, 7, 13, 15, 16, 17, 18), "bigint"), 1: "double", 2: "double", 8: "boolean",
    9: "string", 12: "binary", 14: "string",
}  # fmt: skip
"""By the number of the type in FieldDescriptorProto."""
_MESSAGES: Final = {
    "google.protobuf.Timestamp": "timestamp",
    **{f"google.protobuf.{each}Value": "bigint" for each in ("Int64", "UInt64", "Int32", "UInt32")},
    **{f"google.protobuf.{each}Value": "double" for each in ("Double", "Float")},
    "google.protobuf.BoolValue": "boolean",
    "google.protobuf.BytesValue": "binary",
}
_JSON: Final = {
    "boolean": "boolean", "integer": "bigint", "number": "double", "string": "string", "object": "string",
    "array": "string",
}  # fmt: skip
_FORMATS: Final = {"date-time": "timestamp", "date": "date"}
_DEEPEST: Final = 16
"""How many references of a JSON Schema are followed."""


def avro_kinds(parsed: Any) -> dict[str, str]:
    """Types by field of a parsed schema, of the fields that have one type."""
    branches = parsed if isinstance(parsed, list) else [parsed]
    records = [each for each in branches if isinstance(each, dict) and each.get("type") == "record"]
    fields = records[0]["fields"] if len(records) == 1 else []
    kinds = {each["name"]: _avro_kind(each["type"]) for each in fields}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _avro_kind(schema: Any) -> str | None:
    """The type of a field's column; None for null, and for a union of several types."""
    if isinstance(schema, list):
        rest = [each for each in schema if each != "null"]
        return _avro_kind(rest[0]) if len(rest) == 1 else None
    if isinstance(schema, str):
        # a name that is not a simple type is that of a record, an enum or a fixed
        return _AVRO.get(schema)
    logical = _LOGICAL.get(schema.get("logicalType"))
    return logical if logical is not None else _avro_kind(schema["type"])


def protobuf_kinds(descriptor: Any) -> dict[str, str]:
    """Types by field of a message, of the fields that have one type."""
    kinds = {each.name: _protobuf_kind(each) for each in descriptor.fields}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _protobuf_kind(field: Any) -> str | None:
    if field.is_repeated:
        return "string"
    if field.message_type is None:
        return _PROTOBUF.get(field.type)
    name = field.message_type.full_name
    return None if name == "google.protobuf.Value" else _MESSAGES.get(name, "string")


def json_kinds(schema: Any) -> dict[str, str]:
    """Types by property of a JSON Schema's object, of the properties that have one type."""
    found = _target(schema, schema)
    properties = found.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    kinds = {str(name): _json_kind(each, schema) for name, each in properties.items()}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _json_kind(given: Any, root: Any) -> str | None:
    schema = _target(given, root)
    for word in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(word), list):
            rest = [each for each in schema[word] if _target(each, root).get("type") != "null"]
            return _json_kind(rest[0], root) if len(rest) == 1 and "type" not in schema else None
    kind = schema.get("type")
    if isinstance(kind, list):
        rest = [each for each in kind if each != "null"]
        kind = rest[0] if len(rest) == 1 else None
    if kind == "string" and schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]]
    return _JSON.get(kind) if isinstance(kind, str) else None


def _target(schema: Any, root: Any) -> Mapping[str, Any]:
    """The schema that references within the document lead to; an empty one for references to other documents."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, Mapping):
            return {}
        path = schema.get("$ref")
        if not isinstance(path, str):
            return schema
        if not path.startswith("#"):
            return {}
        schema = root
        for name in filter(None, path.removeprefix("#").split("/")):
            schema = schema.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(schema, Mapping) else None
    return {}
