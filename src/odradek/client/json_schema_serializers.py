"""JSON documents behind the ids of their JSON Schemas in a registry.

The bytes are those of Confluent's serializers: a zero byte, the schema's id as four bytes, the document.

    registry = RegistrySchemas("http://localhost:8081", schema_type="JSON")
    Producer(value_serializer=JsonSchemaSerializer(Order.model_json_schema(), registry, PydanticSerializer(Order)))
    Consumer("orders", value_deserializer=JsonSchemaDeserializer(PydanticDeserializer(Order)))
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, overload

from odradek.client.errors import ConfigError, SerializationError
from odradek.client.framing import FramingError, ReferencedSchemas, framed, unframed
from odradek.client.registry import SchemaReference
from odradek.client.serializers import JsonDeserializer, JsonSerializer, T_co, T_contra
from odradek.client.subject_ids import SubjectIds

Validator = Callable[[Any, Mapping[str, Any]], Callable[[Any], Any]]
"""(schema, the schemas that it refers to by name) -> a function that raises for a document that does not fit.

`lambda schema, others: fastjsonschema.compile(schema)` is one, and with references
`lambda schema, others: Draft202012Validator(schema, registry=Registry().with_contents(others.items())).validate`.
"""


class JsonSubjects(ReferencedSchemas, Protocol):
    """Knows the ids and the schemas of subjects: `RegistrySchemas` with the type JSON."""

    @property
    def schema_type(self) -> str:
        """As `RegistrySchemas.schema_type`."""
        ...

    def schema_id(
        self, subject: str, schema: str, *, register: bool = True, references: Sequence[SchemaReference] = ()
    ) -> int:
        """As `RegistrySchemas.schema_id`."""
        ...

    def load(self, subject: str) -> list[int]:
        """As `RegistrySchemas.load`."""
        ...


class JsonSchemaSerializer(Generic[T_contra]):
    """An object to a JSON document, behind the id of a JSON Schema.

    Another serializer makes the document. The registry is asked for the id with the first object for a topic, which
    blocks the event loop for that time: `await serializer.prepare("orders")` asks it before, in a thread.

    Example:

        serializer = JsonSchemaSerializer(
            {"type": "object", "properties": {"article": {"type": "string"}}},
            RegistrySchemas("http://registry:8081", schema_type="JSON"),
        )
        await serializer.prepare("orders")
        async with Producer(bootstrap_servers="127.0.0.1:9092", value_serializer=serializer) as producer:
            await producer.send_and_wait("orders", {"article": "tea"})
    """

    __slots__ = ("_check", "_ids", "_serializer", "_text")

    @overload
    def __init__(
        self: JsonSchemaSerializer[Any],
        schema: str | Mapping[str, Any],
        registry: JsonSubjects,
        serializer: None = ...,
        *,
        validator: Validator | None = ...,
        references: Sequence[SchemaReference] = ...,
        subject: Callable[[str], str] | None = ...,
        register: bool = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        schema: str | Mapping[str, Any],
        registry: JsonSubjects,
        serializer: Callable[[T_contra], bytes],
        *,
        validator: Validator | None = ...,
        references: Sequence[SchemaReference] = ...,
        subject: Callable[[str], str] | None = ...,
        register: bool = ...,
    ) -> None: ...
    def __init__(
        self,
        schema: str | Mapping[str, Any],
        registry: JsonSubjects,
        serializer: Callable[[T_contra], bytes] | None = None,
        *,
        validator: Validator | None = None,
        references: Sequence[SchemaReference] = (),
        subject: Callable[[str], str] | None = None,
        register: bool = True,
    ) -> None:
        """`serializer` makes JSON, by default `JsonSerializer()`; `schema` is JSON text, or what `json.loads` returns.

        `validator` checks each document; without it only readers may. `references` are the schemas that `schema` refers
        to. `subject` names the subject of a topic, by default TOPIC-value; keys need their own. Without `register` the
        registry must have the schema. Raises ConfigError for text that is not JSON, and for a registry of other
        schemas.
        """
        _expect_json(registry.schema_type)
        self._text = schema if isinstance(schema, str) else json.dumps(schema)
        try:
            json.loads(self._text)
        except ValueError as error:
            raise ConfigError(f"not a JSON Schema: {error}") from error
        self._serializer: Callable[[T_contra], bytes] = JsonSerializer() if serializer is None else serializer
        self._check = None if validator is None else _Checks(registry, validator)
        self._ids = SubjectIds(
            lambda name: registry.schema_id(name, self._text, register=register, references=references),
            subject,
            is_key=False,
        )

    async def prepare(self, *topics: str) -> None:
        """Ask the registry for the ids of these topics. Raises as a call."""
        await self._ids.prepare(*topics)

    def __call__(self, topic: str, value: T_contra) -> bytes:
        """Encode.

        Raises what `serializer` and the validator raise, RegistryError, and LookupError for a schema that the registry
        lacks.
        """
        document = self._serializer(value)
        schema_id = self._ids.of(topic)
        if self._check is not None:
            self._check(schema_id, document)
        return framed(schema_id, document)


class JsonSchemaDeserializer(Generic[T_co]):
    """A JSON document behind the id of a JSON Schema to an object, by another deserializer.

    Without a validator the id is read over and no registry is asked. With one the registry is asked for each schema
    once, with its first record, which blocks the event loop for that time: `await deserializer.prepare("orders-value")`
    fetches the schemas of a subject before, in a thread.

    Example:

        consumer = Consumer(
            "orders-by-json-schema",
            bootstrap_servers="127.0.0.1:9092",
            auto_offset_reset="earliest",
            value_deserializer=JsonSchemaDeserializer(),
        )
        async with consumer:
            for record in await consumer.poll(timeout_ms=1000):
                print(record.value["article"])
    """

    __slots__ = ("_check", "_deserializer", "_schemas")

    @overload
    def __init__(
        self: JsonSchemaDeserializer[Any],
        deserializer: None = ...,
        *,
        schemas: JsonSubjects | None = ...,
        validator: Validator | None = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        deserializer: Callable[[bytes], T_co],
        *,
        schemas: JsonSubjects | None = ...,
        validator: Validator | None = ...,
    ) -> None: ...
    def __init__(
        self,
        deserializer: Callable[[bytes], T_co] | None = None,
        *,
        schemas: JsonSubjects | None = None,
        validator: Validator | None = None,
    ) -> None:
        """`deserializer` reads JSON, by default `JsonDeserializer()`; `validator` checks against `schemas`.

        Raises ConfigError for only one of `schemas` and `validator`, and for a registry of other schemas.
        """
        if (schemas is None) != (validator is None):
            raise ConfigError("schemas and validator belong together")
        self._deserializer: Callable[[bytes], T_co] = JsonDeserializer() if deserializer is None else deserializer
        self._schemas = schemas
        self._check = None
        if schemas is not None and validator is not None:
            _expect_json(schemas.schema_type)
            self._check = _Checks(schemas, validator)

    async def prepare(self, *subjects: str) -> None:
        """Fetch the schemas of all versions of these subjects. Raises RegistryError; LookupError for an unknown one."""
        if self._schemas is not None:
            for subject in subjects:
                await asyncio.to_thread(self._schemas.load, subject)

    def __call__(self, data: bytes) -> T_co:
        """Decode.

        Raises SerializationError for bytes without an id, of an id that the registry lacks, and for others that are not
        JSON; what the validator raises; RegistryError while the registry is away: the next poll tries again.
        """
        try:
            schema_id, _, document = unframed(data)
        except FramingError as error:
            raise SerializationError(str(error)) from error
        if self._check is not None:
            self._check(schema_id, document)
        return self._deserializer(document)


class _Checks:
    """The validators of schemas by their ids."""

    def __init__(self, schemas: JsonSubjects, validator: Validator) -> None:
        self._schemas = schemas
        self._validator = validator
        self._known: dict[int, Callable[[Any], Any]] = {}

    def __call__(self, schema_id: int, document: bytes) -> None:
        check = self._known.get(schema_id)
        if check is None:
            try:
                schema = json.loads(self._schemas.schema(schema_id))
                others = {name: json.loads(each) for name, each in self._schemas.referenced(schema_id).items()}
            except (LookupError, ValueError) as error:
                raise SerializationError(f"schema {schema_id}: {error}") from error
            check = self._known[schema_id] = self._validator(schema, others)
        check(JsonDeserializer()(document))


def _expect_json(schema_type: str) -> None:
    if schema_type != "JSON":
        raise ConfigError(
            f'the registry is for schemas of {schema_type}: RegistrySchemas(..., schema_type="JSON") expected'
        )
