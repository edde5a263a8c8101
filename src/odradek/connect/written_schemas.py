"""Schemas of the objects that sources write: made of their fields, or extended by those that a schema lacks.

Every field is optional, so that each schema reads what an earlier one wrote. Objects and arrays within an object are
JSON text in Avro and Protobuf.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from odradek.connect.columns import kind_of

_AVRO: Final = {"boolean": "boolean", "bigint": "long", "double": "double", "string": "string"}
_JSON: Final = {"boolean": "boolean", "bigint": "integer", "double": "number", "string": "string"}
_PROTOBUF: Final = {"boolean": 8, "bigint": 3, "double": 1, "string": 9}
"""Numbers of FieldDescriptorProto's types."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def extended_avro(before: str | None, name: str, value: Any) -> str | None:
    """A schema of Avro that has all fields of the value; None if `before` has them. Raises ValueError."""
    known = None if before is None else json.loads(before)
    if not isinstance(value, Mapping):
        return None if known is not None else json.dumps({"type": _AVRO[_simple_kind(value)]})
    if known is None:
        known = {"type": "record", "name": re.sub(r"\W", "_", f"_{name}", flags=re.ASCII), "fields": []}
    elif not isinstance(known, dict) or known.get("type") != "record":
        return None
    added = _missing(value, {each["name"] for each in known["fields"]})
    if before is not None and not added:
        return None
    fields = [{"name": each, "type": ["null", _AVRO[kind]], "default": None} for each, kind in added.items()]
    return json.dumps({**known, "fields": [*known["fields"], *fields]})


def extended_json(before: str | None, name: str, value: Any) -> str | None:
    """As `extended_avro`, a JSON Schema. It is closed: registries accept further fields as compatible only then."""
    known = None if before is None else json.loads(before)
    if not isinstance(value, Mapping):
        return None if known is not None else json.dumps({"type": _json_type(value)})
    if known is None:
        known = {"type": "object", "title": name, "additionalProperties": False, "properties": {}}
    elif not isinstance(known, dict) or not isinstance(known.get("properties"), dict):
        return None
    added = [each for each, content in value.items() if content is not None and each not in known["properties"]]
    if before is not None and not added:
        return None
    fields = {each: {"oneOf": [{"type": "null"}, {"type": _json_type(value[each])}]} for each in added}
    return json.dumps({**known, "properties": {**known["properties"], **fields}})


def extended_protobuf(before: str | None, name: str, value: Any) -> str | None:
    """As `extended_avro`: a file with one message, as a descriptor in base64. Needs the extra `formats`."""
    from google.protobuf import descriptor_pb2

    if not isinstance(value, Mapping):
        raise ValueError(f"Protobuf has messages only, got {type(value).__name__}")  # noqa: TRY004 - the record is bad
    file = descriptor_pb2.FileDescriptorProto()
    if before is None:
        file.name, file.syntax = f"{name}.proto", "proto3"
        file.message_type.add(name=re.sub(r"\W", "_", f"M_{name}", flags=re.ASCII))
    else:
        file.ParseFromString(base64.b64decode(before))
    message = file.message_type[0]
    added = _missing(value, {each.name for each in message.field})
    if before is not None and not added:
        return None
    used = {each.number for each in message.field}
    used.update(number for each in message.reserved_range for number in range(each.start, each.end))
    number = max(used, default=0)
    for each, kind in added.items():
        number = 20_000 if number == 18_999 else number + 1  # Protobuf keeps 19,000 to 19,999 for itself
        # proto3 has optional fields as members of a oneof of their own
        message.oneof_decl.add(name=f"_{each}")
        message.field.add(
            name=each, number=number, type=_PROTOBUF[kind], label=1, oneof_index=len(message.oneof_decl) - 1,
            proto3_optional=True,
        )  # fmt: skip
    return base64.b64encode(file.SerializeToString()).decode()


def nested_as_text(value: Any, is_text: bool) -> Any:
    """A field's value; objects and arrays as JSON text if the schema has a text for them."""
    if is_text and isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return value


def _missing(value: Mapping[str, Any], known: set[str]) -> dict[str, str]:
    """The kinds of the fields that have a value and are not known. Raises ValueError for other names."""
    found = {}
    for name, content in value.items():
        if content is None or name in known:
            continue
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"field {name!r}: letters, digits and _ expected in a name of Avro and Protobuf")
        found[name] = _simple_kind(content)
    return found


def _simple_kind(value: Any) -> str:
    kind = kind_of(value)
    return kind if kind in _AVRO else "string"


def _json_type(value: Any) -> str:
    if isinstance(value, Mapping):
        return "object"
    return "array" if isinstance(value, list) else _JSON[_simple_kind(value)]
