"""JSON Schema behind the ids of a registry, which a server in this process plays: it stores schemas by subject."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from odradek.client import (
    ConfigError,
    DataclassDeserializer,
    DataclassSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    RegistrySchemas,
    SchemaReference,
    SerializationError,
    registry,
)
from tests.unit.client.test_avro_serializers import Registry, serve

SCHEMA = {"type": "object", "required": ["article"], "properties": {"article": {"$ref": "article.json"}}}
ARTICLE = SchemaReference("article.json", "article", 1)
TEA = {"article": "tea"}


@dataclass
class Order:
    article: str


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setattr(registry, "PAUSES_S", ())
    with serve(Registry("JSON")) as made:
        yield made


def required(schema: Any, others: Mapping[str, Any]) -> Callable[[Any], None]:
    """A validator that knows little."""
    known = set(others)

    def check(document: Any) -> None:
        for name in schema["required"]:
            if name not in document:
                raise ValueError(f"{name} is missing; {sorted(known)} known")

    return check


def test_bytes_are_those_of_the_wire_format(server: Registry) -> None:
    data = JsonSchemaSerializer(SCHEMA, server.client)("orders", TEA)
    (schema_id,) = server.schemas
    assert data == b"\x00" + schema_id.to_bytes(4, "big") + b'{"article":"tea"}'
    assert json.loads(server.schemas[schema_id]) == SCHEMA
    assert JsonSchemaDeserializer()(data) == TEA
    assert server.asked == ["POST /subjects/orders-value/versions"]


def test_other_serializers_make_and_read_the_document(server: Registry) -> None:
    serializer = JsonSchemaSerializer(
        SCHEMA, server.client, DataclassSerializer(Order), subject=lambda topic: f"{topic}-key"
    )
    data = serializer("orders", Order("tea"))
    assert JsonSchemaDeserializer(DataclassDeserializer(Order))(data) == Order("tea")
    assert list(server.subjects) == ["orders-key"]


def test_validator_gets_the_schema_and_its_references(server: Registry) -> None:
    server.client.schema_id("article", '{"type": "string"}')
    serializer = JsonSchemaSerializer(SCHEMA, server.client, references=[ARTICLE], validator=required)
    data = serializer("orders", TEA)
    deserializer = JsonSchemaDeserializer(schemas=server.client, validator=required)
    assert deserializer(data) == TEA
    with pytest.raises(ValueError, match=r"article is missing; \['article.json'\] known"):
        serializer("orders", {})
    with pytest.raises(ValueError, match="article is missing"):
        deserializer(data[:5] + b"{}")


def test_prepared_ones_do_not_ask_with_records(server: Registry) -> None:
    async def main() -> None:
        server.client.schema_id("article", '{"type": "string"}')
        serializer = JsonSchemaSerializer(SCHEMA, server.client, references=[ARTICLE])
        deserializer = JsonSchemaDeserializer(schemas=server.client, validator=required)
        await serializer.prepare("orders")
        await deserializer.prepare("orders-value")
        server.is_away = True
        assert deserializer(serializer("orders", TEA)) == TEA

    asyncio.run(main())


def test_bytes_that_do_not_fit_are_rejected(server: Registry) -> None:
    checked = JsonSchemaDeserializer(schemas=server.client, validator=required)
    for wrong, text in ((b"{}", "has no id"), (b"\x00\x00\x00\x00\x07{}", "no schema with id 7")):
        with pytest.raises(SerializationError, match=text):
            checked(wrong)
    with pytest.raises(SerializationError, match="not JSON"):
        JsonSchemaDeserializer()(b"\x00\x00\x00\x00\x07{")


def test_unusable_arguments_are_rejected_at_once(server: Registry) -> None:
    avro = RegistrySchemas("http://localhost:1")
    for make in (
        lambda: JsonSchemaSerializer("{", server.client),
        lambda: JsonSchemaSerializer(SCHEMA, avro),
        lambda: JsonSchemaDeserializer(schemas=avro, validator=required),
        lambda: JsonSchemaDeserializer(schemas=server.client),
        lambda: JsonSchemaDeserializer(validator=required),
    ):
        with pytest.raises(ConfigError):
            make()
