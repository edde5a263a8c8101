"""Messages in the JSON form of Apache's tools, by the schema tables that also make the codecs.

Source: the classes that Kafka's `JsonConverterGenerator` writes. A UUID is URL-safe base64 without padding, bytes are
base64, a tagged field is left out while it holds its default. For tools: the tables are read at the first use.
"""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from functools import cache
from typing import Any

from odradek.wire.definitions import SCHEMA_DIR, Field, Message, Struct, load_messages


def to_json(message: Any, version: int) -> dict[str, Any]:
    """The fields that `message`, an object of a generated class, has in `version`, in the order of the schema."""
    kind = type(message)
    definition = _definitions(kind.__module__.rpartition(".")[2])[kind.__name__]
    return _struct(definition, definition.root, message, version)


def as_json_text(document: object) -> str:
    """JSON without spaces, as Apache's tools print it."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


@cache
def _definitions(module: str) -> dict[str, Message]:
    return {message.name: message for message in load_messages(SCHEMA_DIR / f"{module}.toml")}


def _struct(definition: Message, shape: Struct, value: Any, version: int) -> dict[str, Any]:
    defaults = type(value)()
    shown = {}
    for field in shape.fields:
        if version not in field.versions:
            continue
        content = getattr(value, field.attribute)
        if version in field.tagged and content == getattr(defaults, field.attribute):
            continue
        shown[field.name[0].lower() + field.name[1:]] = _content(definition, field, content, version)
    return shown


def _content(definition: Message, field: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    if field.array:
        return [_element(definition, field, each, version) for each in value]
    return _element(definition, field, value, version)


def _element(definition: Message, field: Field, value: Any, version: int) -> Any:
    if field.is_struct:
        return _struct(definition, definition.struct(field.element), value, version)
    if field.element == "uuid":
        return urlsafe_b64encode(value).rstrip(b"=").decode()
    if field.element in ("bytes", "records"):
        return b64encode(bytes(value)).decode()
    return value
