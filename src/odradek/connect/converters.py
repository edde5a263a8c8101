"""Converters between the bytes of keys and values and the objects that sources and sinks exchange.

They have the names and the bytes of Kafka Connect's. `JsonConverter` reads the envelope of `schemas.enable=true`
(`{"schema": …, "payload": …}`) and returns its payload; it writes JSON without schemas only. For those of a schema
registry see `registry_converters`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from odradek.client.registry import RegistrySchemas
from odradek.connect.registry_converters import FORMATS, RegistryConverter
from odradek.connect.registry_writers import RegistryWriter, SchemaChoice
from odradek.connect.settings import REQUIRED, Importance, Setting, Type, check


class Converter(Protocol):
    """Both directions raise ValueError for what they cannot convert; None is null in both.

    Those of a schema registry raise SchemaMissing, too.
    """

    def decode(self, data: bytes | None) -> Any:
        """The object of a record's key or value."""
        ...

    def encode(self, topic: str, value: Any) -> bytes | None:
        """The bytes of an object for a topic."""
        ...


class JsonConverter:
    """JSON documents."""

    def __init__(self, schemas_enable: bool = False) -> None:
        """With `schemas_enable`, `decode` expects envelopes."""
        self._schemas_enable = schemas_enable

    def decode(self, data: bytes | None) -> Any:
        """The document. Raises ValueError."""
        if data is None:
            return None
        try:
            found = json.loads(data)
        except (UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"not JSON: {error}") from error
        except json.JSONDecodeError as error:
            raise ValueError(f"not JSON: {error.msg} at character {error.pos}") from error
        if not self._schemas_enable:
            return found
        if not isinstance(found, dict) or found.keys() != {"schema", "payload"}:
            raise ValueError('an object of "schema" and "payload" expected, because schemas.enable is true')
        return found["payload"]

    def encode(self, _topic: str, value: Any) -> bytes | None:
        """JSON in UTF-8. Raises ValueError."""
        if value is None:
            return None
        try:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, UnicodeEncodeError) as error:
            raise ValueError(f"no JSON for it: {error}") from error


class StringConverter:
    """Text in UTF-8. What is no text is written as JSON."""

    def decode(self, data: bytes | None) -> str | None:
        """The text. Raises ValueError."""
        if data is None:
            return None
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from error

    def encode(self, topic: str, value: Any) -> bytes | None:
        """The bytes of the text. Raises ValueError."""
        if isinstance(value, str):
            return value.encode()
        return JsonConverter().encode(topic, value)


class ByteArrayConverter:
    """Bytes as they are."""

    def decode(self, data: bytes | None) -> bytes | None:
        """The same bytes."""
        return data

    def encode(self, _topic: str, value: Any) -> bytes | None:
        """The same bytes, and the UTF-8 of text. Raises ValueError."""
        if isinstance(value, str):
            return value.encode()
        if value is None or isinstance(value, bytes):
            return value
        raise ValueError(f"bytes expected, got {type(value).__name__}")


PREFIX: Final = "org.apache.kafka.connect."
NAMES: Final = {
    "json": f"{PREFIX}json.JsonConverter",
    "string": f"{PREFIX}storage.StringConverter",
    "bytes": f"{PREFIX}converters.ByteArrayConverter",
    "avro": "io.confluent.connect.avro.AvroConverter",
    "protobuf": "io.confluent.connect.protobuf.ProtobufConverter",
    "json-schema": "io.confluent.connect.json.JsonSchemaConverter",
}
"""Short names, and Kafka's."""


def class_of(name: str) -> str:
    """Kafka's name of a converter, of its short, simple or full name. Raises ValueError."""
    for short, full in NAMES.items():
        if name in (short, full, full.rpartition(".")[2]):
            return full
    raise ValueError(f"one of {', '.join(NAMES)} expected, or {', '.join(NAMES.values())}")


_JSON: Final = (Setting("schemas.enable", Type.BOOLEAN, False, "whether JSON is read from envelopes with a schema"),)
_PLAIN: Final = (
    Setting("schemas.enable", Type.BOOLEAN, False, "accepted for configurations of Kafka Connect: there is no schema"),
)
REGISTRY_SETTINGS: Final = (
    Setting("schema.registry.url", Type.LIST, REQUIRED, "addresses of one schema registry", Importance.HIGH),
    Setting("basic.auth.credentials.source", Type.STRING, "USER_INFO", "where the login is", choices=("USER_INFO",)),
    Setting("basic.auth.user.info", Type.PASSWORD, "", "login as USER:PASSWORD"),
    Setting("schema.registry.ssl.truststore.location", Type.STRING, "", "PEM file of trusted certificates"),
)
"""Where a schema registry is."""
_WRITING: Final = (
    Setting("schema", Type.STRING, "", "sources: the schema to write with, of Avro or JSON; default: made of the "
            "fields of values, each of them optional"),
    Setting("use.latest.version", Type.BOOLEAN, False, "sources: write with the newest schema of the subject, which "
            "is TOPIC-value or TOPIC-key"),
    Setting("auto.register.schemas", Type.BOOLEAN, True, "sources: register a schema that the subject lacks"),
)  # fmt: skip
SETTINGS: Final[Mapping[str, Sequence[Setting]]] = {
    NAMES["json"]: _JSON,
    NAMES["string"]: _PLAIN,
    NAMES["bytes"]: _PLAIN,
    **dict.fromkeys(FORMATS, (*REGISTRY_SETTINGS, *_WRITING)),
}
"""The settings of converters, behind `key.converter.` and `value.converter.`, by their names."""


def settings_of(name: str) -> Sequence[Setting] | None:
    """The settings of a converter of that name; None if there is none."""
    return SETTINGS.get(name)


def converter_of(name: str, options: Mapping[str, str], *, is_key: bool = False) -> Converter:
    """The converter of that name; `options` are its settings without their prefix. Raises ValueError."""
    full = class_of(name)
    values = _checked(full, options)
    if full in FORMATS:
        registry = registry_of(full, options)
        choice = SchemaChoice(
            values["schema"], values["use.latest.version"], values["auto.register.schemas"], is_key=is_key
        )
        try:
            return RegistryConverter(
                FORMATS[full], registry, RegistryWriter(FORMATS[full].schema_type, registry, choice)
            )
        except ModuleNotFoundError as error:
            raise ValueError(str(error)) from error
    if full == NAMES["json"]:
        return JsonConverter(values["schemas.enable"])
    return StringConverter() if full == NAMES["string"] else ByteArrayConverter()


def _checked(full: str, options: Mapping[str, str]) -> Mapping[str, Any]:
    checked = check(SETTINGS[full], options, of=full)
    if checked.errors:
        raise ValueError(next(iter(checked.errors.values()))[0])
    return checked.values


def registry_of(full: str, options: Mapping[str, str]) -> RegistrySchemas:
    """The schema registry of a converter by its settings, without their prefix. Raises ValueError."""
    values = _checked(full, options)
    user, colon, password = values["basic.auth.user.info"].partition(":")
    if user and not colon:
        raise ValueError("basic.auth.user.info: USER:PASSWORD expected")
    return RegistrySchemas(
        values["schema.registry.url"],
        username=user or None,
        password=password if colon else None,
        authority=values["schema.registry.ssl.truststore.location"] or None,
        schema_type=FORMATS[full].schema_type,
    )
