"""Converters of records behind the ids of their schemas in a registry: Avro, Protobuf and JSON Schema.

They have the names and the settings of Confluent's. For what sources write see `registry_writers`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from odradek.client.errors import SerializationError
from odradek.client.framing import unframed
from odradek.client.registry import RegistryError, RegistrySchemas
from odradek.connect.columns import plain_value
from odradek.connect.errors import ConnectError, TargetAway


class SchemaMissing(Exception):
    """A record has a schema that has to be fetched or registered first."""

    def __init__(self, fetch: Callable[[], None]) -> None:
        """`fetch` blocks. It raises ValueError for a schema that does not exist, TargetAway, ConnectError."""
        super().__init__("a schema has to be fetched")
        self.fetch = fetch


class RegistryFormat(NamedTuple):
    """A format of records whose schemas are in a registry."""

    title: str
    """How it is named in messages."""
    schema_type: str
    """The registry's name of it."""
    reader: Callable[[RegistrySchemas], Callable[[bytes], Any]]
    """Makes what reads a record with its id; it raises ModuleNotFoundError without the format's package."""


def json_document(payload: bytes) -> Any:
    """A document behind an id. Raises ValueError."""
    try:
        return json.loads(payload)
    except RecursionError as error:
        raise ValueError("too deep") from error


def _avro(registry: RegistrySchemas) -> Callable[[bytes], Any]:
    from odradek.client.avro_serializers import AvroDeserializer

    made: AvroDeserializer[Any] = AvroDeserializer(registry)
    return made


def _protobuf(registry: RegistrySchemas) -> Callable[[bytes], Any]:
    from odradek.client.protobuf_messages import ProtobufMessages, message_fields

    messages = ProtobufMessages(registry)
    return lambda data: message_fields(messages.read(data))


def _json(_registry: RegistrySchemas) -> Callable[[bytes], Any]:
    return lambda data: json_document(unframed(data)[2])


FORMATS: Final[Mapping[str, RegistryFormat]] = {
    "io.confluent.connect.avro.AvroConverter": RegistryFormat("Avro", "AVRO", _avro),
    "io.confluent.connect.protobuf.ProtobufConverter": RegistryFormat("Protobuf", "PROTOBUF", _protobuf),
    "io.confluent.connect.json.JsonSchemaConverter": RegistryFormat("JSON", "JSON", _json),
}
"""Formats by the names of their converters."""


class Writer(Protocol):
    """Makes the bytes of objects: see `registry_writers`."""

    def encode(self, topic: str, value: Any) -> bytes | None:
        """The bytes of an object for a topic. Raises ValueError, SchemaMissing."""
        ...


class RegistryConverter:
    """Records of one format. Times, decimals and bytes become text: see `plain_value`."""

    def __init__(self, made_as: RegistryFormat, registry: RegistrySchemas, writer: Writer) -> None:
        """Raises ModuleNotFoundError without the format's package."""
        self._writer = writer
        self._format = made_as
        self._registry = registry
        self._known: set[int] = set()
        self._read = made_as.reader(registry)

    def decode(self, data: bytes | None) -> Any:
        """The object. Raises ValueError, and SchemaMissing for a schema that was not fetched yet."""
        if data is None:
            return None
        schema_id, _, _ = unframed(data)
        if schema_id not in self._known:
            raise SchemaMissing(partial(self._fetch, schema_id))
        try:
            return plain_value(self._read(data))
        except (SerializationError, ValueError) as error:
            raise ValueError(f"not {self._format.title}: {error}") from error

    def encode(self, topic: str, value: Any) -> bytes | None:
        """The bytes of an object. Raises ValueError, and SchemaMissing for a schema that is not registered yet."""
        return self._writer.encode(topic, value)

    def _fetch(self, schema_id: int) -> None:
        fetch_schema(self._registry, schema_id)
        self._known.add(schema_id)


def fetch_schema(registry: RegistrySchemas, schema_id: int) -> str:
    """The text of a schema; the registry then has it, and those that it refers to, at hand. Blocks.

    Raises ValueError for a schema that does not exist, TargetAway, ConnectError.
    """
    try:
        text = registry.schema(schema_id)
        if registry.schema_type == "PROTOBUF":
            registry.referenced(schema_id)
    except LookupError as error:
        raise ValueError(str(error)) from error
    except RegistryError as error:
        raise (TargetAway if error.is_transient else ConnectError)(str(error)) from error
    return text
