"""Keys and values in Avro behind the ids of their schemas in a registry. Needs the extra `formats`.

The bytes are those of Confluent's serializers: a zero byte, the schema's id as four bytes, the record.

    registry = RegistrySchemas("http://localhost:8081")
    Producer(value_serializer=AvroSerializer(schema, registry))
    Consumer("orders", value_deserializer=AvroDeserializer(registry))
"""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import struct
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, overload

from odradek.client.consumer.avro_schema import SchemaText, parse_avro, value_reader
from odradek.client.errors import ConfigError, SerializationError
from odradek.client.framing import FramingError, Schemas, framed, unframed
from odradek.client.serializers import T_co, T_contra, describe
from odradek.client.subject_ids import SubjectIds
from odradek.ports.installation import install_hint

try:
    from fastavro import schemaless_writer
    from fastavro.read import SchemaResolutionError
    from fastavro.validation import ValidationError, validate
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(f"Avro needs fastavro: {install_hint('formats')}", name=missing.name) from missing

_CODEC_ERRORS: Final = (
    EOFError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, struct.error, SchemaResolutionError,
)  # fmt: skip
"""What fastavro raises for objects and bytes that do not fit the schema."""


class Subjects(Protocol):
    """Knows the ids of schemas: `RegistrySchemas`."""

    def schema_id(self, subject: str, schema: str, *, register: bool = True) -> int:
        """As `RegistrySchemas.schema_id`."""
        ...


class LoadedSchemas(Schemas, Protocol):
    """Knows the schemas of ids and of subjects: `RegistrySchemas`."""

    def load(self, subject: str) -> list[int]:
        """As `RegistrySchemas.load`."""
        ...


class AvroSerializer(Generic[T_contra]):
    """An object to the bytes of an Avro schema, behind the schema's id.

    The registry is asked for the id with the first object for a topic, which blocks the event loop for that time:
    `await serializer.prepare("orders")` asks it before, in a thread.

    Example:

        serializer = AvroSerializer(
            {"type": "record", "name": "Order", "fields": [{"name": "article", "type": "string"}]},
            RegistrySchemas("http://registry:8081"),
        )
        await serializer.prepare("orders")
        async with Producer(bootstrap_servers="127.0.0.1:9092", value_serializer=serializer) as producer:
            await producer.send_and_wait("orders", {"article": "tea"})
    """

    __slots__ = ("_ids", "_parsed", "_text", "_to_avro")

    @overload
    def __init__(
        self: AvroSerializer[Any],
        schema: SchemaText,
        registry: Subjects,
        *,
        to_avro: None = ...,
        subject: Callable[[str], str] | None = ...,
        is_key: bool = ...,
        register: bool = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        schema: SchemaText,
        registry: Subjects,
        *,
        to_avro: Callable[[T_contra], Any],
        subject: Callable[[str], str] | None = ...,
        is_key: bool = ...,
        register: bool = ...,
    ) -> None: ...
    def __init__(
        self,
        schema: SchemaText,
        registry: Subjects,
        *,
        to_avro: Callable[[T_contra], Any] | None = None,
        subject: Callable[[str], str] | None = None,
        is_key: bool = False,
        register: bool = True,
    ) -> None:
        """`schema` is JSON text, or what `json.loads` returns for it.

        `to_avro` makes dicts, lists and numbers of an object; without it dataclasses become dicts and others stay.
        `subject` names the subject of a topic, by default TOPIC-value, or TOPIC-key with `is_key`. Without `register`
        the registry must have the schema. Raises ConfigError for what is not an Avro schema.
        """
        try:
            self._parsed = parse_avro(schema)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        self._text = schema if isinstance(schema, str) else json.dumps(schema)
        self._to_avro = to_avro
        self._ids = SubjectIds(
            lambda name: registry.schema_id(name, self._text, register=register), subject, is_key=is_key
        )

    async def prepare(self, *topics: str) -> None:
        """Ask the registry for the ids of these topics. Raises as a call."""
        await self._ids.prepare(*topics)

    def __call__(self, topic: str, value: T_contra) -> bytes:
        """Encode.

        Raises SerializationError for an object that does not fit the schema, RegistryError, and LookupError for a
        schema that the registry lacks.
        """
        out = io.BytesIO()
        schema_id = self._ids.of(topic)
        content = self._content(value)
        try:
            # The writer would accept numbers that have more bits than the schema gives them.
            validate(content, self._parsed, raise_errors=True)
            schemaless_writer(out, self._parsed, content)
        except ValidationError as error:
            raise SerializationError(
                f"Avro cannot carry {describe(value)}: {'; '.join(map(str, error.errors))}"
            ) from error
        except _CODEC_ERRORS as error:
            raise SerializationError(f"Avro cannot carry {describe(value)}: {error!r}") from error
        return framed(schema_id, out.getvalue())

    def _content(self, value: T_contra) -> Any:
        if self._to_avro is not None:
            return self._to_avro(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.asdict(value)
        return value


class AvroDeserializer(Generic[T_co]):
    """Bytes behind the id of an Avro schema to an object.

    The registry is asked for each schema once, with its first record, which blocks the event loop for that time:
    `await deserializer.prepare("orders-value")` fetches the schemas of a subject before, in a thread.

    Example:

        consumer = Consumer(
            "orders-in-avro",
            bootstrap_servers="127.0.0.1:9092",
            auto_offset_reset="earliest",
            value_deserializer=AvroDeserializer(RegistrySchemas("http://registry:8081")),
        )
        async with consumer:
            for record in await consumer.poll(timeout_ms=1000):
                print(record.value["article"])
    """

    __slots__ = ("_from_avro", "_reader", "_readers", "_schemas")

    @overload
    def __init__(
        self: AvroDeserializer[Any], schemas: LoadedSchemas, schema: SchemaText | None = ..., *, from_avro: None = ...
    ) -> None: ...
    @overload
    def __init__(
        self, schemas: LoadedSchemas, schema: SchemaText | None = ..., *, from_avro: Callable[[Any], T_co]
    ) -> None: ...
    def __init__(
        self,
        schemas: LoadedSchemas,
        schema: SchemaText | None = None,
        *,
        from_avro: Callable[[Any], T_co] | None = None,
    ) -> None:
        """With `schema`, records of other schemas are resolved to it by Avro's rules; without it they stay as written.

        `from_avro` makes an object of dicts, lists and numbers. Raises ConfigError for what is not an Avro schema.
        """
        try:
            self._reader = None if schema is None else parse_avro(schema)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        self._schemas = schemas
        self._from_avro = from_avro
        self._readers: dict[int, Callable[[Any], Any]] = {}

    async def prepare(self, *subjects: str) -> None:
        """Fetch the schemas of all versions of these subjects. Raises RegistryError; LookupError for an unknown one."""
        for subject in subjects:
            for schema_id in await asyncio.to_thread(self._schemas.load, subject):
                self._reader_of(schema_id)

    def __call__(self, data: bytes) -> T_co:
        """Decode.

        Raises SerializationError for bytes without an id, of an id that the registry lacks, and for others that do not
        fit the schema; RegistryError while the registry is away: the next poll tries again.
        """
        try:
            schema_id, _, payload = unframed(data)
        except FramingError as error:
            raise SerializationError(str(error)) from error
        read = self._reader_of(schema_id)
        stream = io.BytesIO(payload)
        try:
            content: Any = read(stream)
        except _CODEC_ERRORS as error:
            raise SerializationError(f"does not fit schema {schema_id}: {error!r}") from error
        if stream.tell() != len(payload):
            raise SerializationError(f"{len(payload) - stream.tell()} bytes follow a record of schema {schema_id}")
        if self._from_avro is None:
            return content  # type: ignore[no-any-return]  # see the first overload
        return self._from_avro(content)

    def _reader_of(self, schema_id: int) -> Callable[[Any], Any]:
        found = self._readers.get(schema_id)
        if found is None:
            try:
                writer = parse_avro(self._schemas.schema(schema_id))
                found = self._readers[schema_id] = value_reader(writer, self._reader)
            except (LookupError, ValueError) as error:
                raise SerializationError(f"schema {schema_id}: {error}") from error
        return found
