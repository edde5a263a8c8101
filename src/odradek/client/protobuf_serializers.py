"""Protobuf behind the ids of schemas in a registry. Needs the extra `formats`.

The bytes are those of Confluent's serializers: a zero byte, the schema's id as four bytes, the path to the message in
its file, the message.

    registry = RegistrySchemas("http://localhost:8081", schema_type="PROTOBUF")
    Producer(value_serializer=ProtobufSerializer(Order, registry))
    Consumer("orders", value_deserializer=ProtobufDeserializer(registry))
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, overload

from google.protobuf import descriptor_pb2
from google.protobuf.message import EncodeError, Message

from odradek.client.errors import ConfigError, SerializationError
from odradek.client.framing import ReferencedSchemas, framed, unframed
from odradek.client.protobuf_messages import ProtobufMessages, is_well_known, message_fields, parse_message
from odradek.client.registry import SchemaReference
from odradek.client.serializers import T_co, T_contra, describe
from odradek.client.subject_ids import SubjectIds


class ProtobufSubjects(Protocol):
    """Knows the ids and versions of Protobuf schemas: `RegistrySchemas` with the type PROTOBUF."""

    @property
    def schema_type(self) -> str:
        """As `RegistrySchemas.schema_type`."""
        ...

    def schema_id(
        self, subject: str, schema: str, *, register: bool = True, references: Sequence[SchemaReference] = ()
    ) -> int:
        """As `RegistrySchemas.schema_id`."""
        ...

    def version(self, subject: str, schema: str, *, references: Sequence[SchemaReference] = ()) -> int:
        """As `RegistrySchemas.version`."""
        ...


class LoadedProtobuf(ReferencedSchemas, Protocol):
    """Knows the Protobuf schemas of ids and of subjects: `RegistrySchemas` with the type PROTOBUF."""

    @property
    def schema_type(self) -> str:
        """As `RegistrySchemas.schema_type`."""
        ...

    def load(self, subject: str) -> list[int]:
        """As `RegistrySchemas.load`."""
        ...


class ProtobufSerializer(Generic[T_contra]):
    """A message of a generated class to bytes, behind the id of its file's schema and its place in the file.

    The file is registered with the files that it imports, each under its path as the subject. The registry is asked
    with the first message for a topic, which blocks the event loop for that time: `await serializer.prepare("orders")`
    asks it before, in a thread.

    Example:

        from google.protobuf.wrappers_pb2 import StringValue  # or a class that protoc has generated

        registry = RegistrySchemas("http://registry:8081", schema_type="PROTOBUF")
        serializer = ProtobufSerializer(StringValue, registry)
        await serializer.prepare("articles")
        async with Producer(bootstrap_servers="127.0.0.1:9092", value_serializer=serializer) as producer:
            await producer.send_and_wait("articles", StringValue(value="tea"))
    """

    __slots__ = ("_ids", "_indexes", "_message")

    def __init__(
        self,
        message: type[T_contra],
        registry: ProtobufSubjects,
        *,
        subject: Callable[[str], str] | None = None,
        is_key: bool = False,
        register: bool = True,
    ) -> None:
        """`subject` names the subject of a topic, by default TOPIC-value, or TOPIC-key with `is_key`.

        Without `register` the registry must have the schema and those that it imports. Raises ConfigError for a class
        that is not one of messages, and for a registry of other schemas.
        """
        self._message = _checked(message, registry.schema_type)
        self._indexes = _place(self._message.DESCRIPTOR)
        file = self._message.DESCRIPTOR.file
        self._ids = SubjectIds(lambda name: _id_of(file, name, registry, register=register), subject, is_key=is_key)

    async def prepare(self, *topics: str) -> None:
        """Ask the registry for the ids of these topics. Raises as a call."""
        await self._ids.prepare(*topics)

    def __call__(self, topic: str, value: T_contra) -> bytes:
        """Encode.

        Raises SerializationError for an object of another class and for a message without a required field,
        RegistryError, and LookupError for a schema that the registry lacks.
        """
        if not isinstance(value, self._message):
            raise SerializationError(f"expected {self._message.DESCRIPTOR.full_name}, got {describe(value)}")
        schema_id = self._ids.of(topic)
        try:
            payload = value.SerializeToString()
        except EncodeError as error:
            raise SerializationError(str(error)) from error
        return framed(schema_id, payload, self._indexes)


class ProtobufDeserializer(Generic[T_co]):
    """Bytes behind the id of a Protobuf schema to the message's fields, or to a message of a generated class.

    The registry is asked for each schema once, with its first record, which blocks the event loop for that time:
    `await deserializer.prepare("orders-value")` fetches the schemas of a subject before, in a thread.

    Example:

        registry = RegistrySchemas("http://registry:8081", schema_type="PROTOBUF")
        consumer = Consumer(
            "orders-in-protobuf",
            bootstrap_servers="127.0.0.1:9092",
            auto_offset_reset="earliest",
            value_deserializer=ProtobufDeserializer(registry),
        )
        async with consumer:
            for record in await consumer.poll(timeout_ms=1000):
                print(record.value["article"])
    """

    __slots__ = ("_message", "_messages", "_schemas")

    @overload
    def __init__(self: ProtobufDeserializer[dict[str, Any]], schemas: LoadedProtobuf, message: None = ...) -> None: ...
    @overload
    def __init__(self, schemas: LoadedProtobuf | None, message: type[T_co]) -> None: ...
    def __init__(self, schemas: LoadedProtobuf | None, message: type[T_co] | None = None) -> None:
        """Without `message` records become dicts, as `message_fields` makes them.

        With a generated class `message` they become its messages, and a record of another message is an error; with
        None for `schemas` as well, the id is not looked up and the name of the message not checked. Raises ConfigError
        for a class that is not one of messages, for a registry of other schemas, and if both are None.
        """
        self._message: Any = None
        if message is not None:
            self._message = _checked(message, "PROTOBUF" if schemas is None else schemas.schema_type)
        elif schemas is None:
            raise ConfigError("a registry, a class of messages, or both expected")
        elif schemas.schema_type != "PROTOBUF":
            raise ConfigError(_wrong_type(schemas.schema_type))
        self._schemas = schemas
        self._messages = None if schemas is None else ProtobufMessages(schemas)

    async def prepare(self, *subjects: str) -> None:
        """Fetch the schemas of all versions of these subjects. Raises RegistryError; LookupError for an unknown one."""
        if self._schemas is not None and self._messages is not None:
            for subject in subjects:
                for schema_id in await asyncio.to_thread(self._schemas.load, subject):
                    self._messages.kind(schema_id)

    def __call__(self, data: bytes) -> T_co:
        """Decode.

        Raises SerializationError for bytes without an id, of an id that the registry lacks, of another message, and for
        others that do not fit the schema; RegistryError while the registry is away: the next poll tries again.
        """
        try:
            if self._message is None:
                assert self._messages is not None
                return message_fields(self._messages.read(data))  # type: ignore[return-value]  # see the first overload
            schema_id, indexes, payload = unframed(data, indexes=True)
            if self._messages is not None:
                written = self._messages.kind(schema_id, indexes).DESCRIPTOR.full_name
                if written != self._message.DESCRIPTOR.full_name:
                    raise SerializationError(f"expected {self._message.DESCRIPTOR.full_name}, got {written}")
            return parse_message(self._message, payload)  # type: ignore[no-any-return]
        except (LookupError, ValueError) as error:
            if isinstance(error, SerializationError):
                raise
            raise SerializationError(str(error)) from error


def _checked(message: Any, schema_type: str) -> Any:
    if not isinstance(message, type) or not issubclass(message, Message):
        raise ConfigError(f"expected a generated class of messages, got {describe(message)}")
    if schema_type != "PROTOBUF":
        raise ConfigError(_wrong_type(schema_type))
    return message


def _wrong_type(schema_type: str) -> str:
    return f'the registry is for schemas of {schema_type}: RegistrySchemas(..., schema_type="PROTOBUF") expected'


def _place(descriptor: Any) -> tuple[int, ...]:
    """The path to a message in its file: its index there, or in the message around it."""
    described = descriptor_pb2.DescriptorProto()
    path: list[int] = []
    while (outer := descriptor.containing_type) is not None:
        outer.CopyToProto(described)
        path.insert(0, [each.name for each in described.nested_type].index(descriptor.name))
        descriptor = outer
    file = descriptor_pb2.FileDescriptorProto()
    descriptor.file.CopyToProto(file)
    return ([each.name for each in file.message_type].index(descriptor.name), *path)


def _id_of(file: Any, subject: str, registry: ProtobufSubjects, *, register: bool) -> int:
    references = _references(file, registry, register=register, known={})
    return registry.schema_id(subject, _text(file), register=register, references=references)


def _references(
    file: Any, registry: ProtobufSubjects, *, register: bool, known: dict[str, SchemaReference]
) -> list[SchemaReference]:
    found = []
    for imported in file.dependencies:
        if is_well_known(imported.name):
            continue
        if imported.name not in known:
            inner = _references(imported, registry, register=register, known=known)
            if register:
                registry.schema_id(imported.name, _text(imported), references=inner)
            version = registry.version(imported.name, _text(imported), references=inner)
            known[imported.name] = SchemaReference(imported.name, imported.name, version)
        found.append(known[imported.name])
    return found


def _text(file: Any) -> str:
    described = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(described)
    return base64.b64encode(described.SerializeToString()).decode()
