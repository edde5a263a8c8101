"""Schemas that refer to other schemas of a registry, which a server in this process plays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.client import AvroDeserializer, RegistryError, RegistrySchemas, SchemaReference, registry
from odradek.client.avro_names import with_named_types
from odradek.client.consumer.avro_schema import parse_avro
from odradek.client.framing import framed
from tests.unit.client.test_avro_serializers import Registry, serve

PRICE = {"type": "record", "name": "Price", "namespace": "money", "fields": [{"name": "cents", "type": "long"}]}
ARTICLE = {
    "type": "record",
    "name": "shop.Article",
    "fields": [{"name": "name", "type": "string"}, {"name": "price", "type": "money.Price"}],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "articles", "type": {"type": "array", "items": "Article"}},
        {"name": "gift", "type": ["null", "shop.Article"]},
        {"name": "total", "type": "money.Price"},
    ],
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setattr(registry, "PAUSES_S", ())
    with serve(Registry()) as made:
        yield made


def register_order(schemas: RegistrySchemas) -> int:
    price = SchemaReference("money.Price", "price", 1)
    schemas.schema_id("price", json.dumps(PRICE))
    schemas.schema_id("article", json.dumps(ARTICLE), references=[price])
    article = SchemaReference("shop.Article", "article", 1)
    return schemas.schema_id("orders-value", json.dumps(ORDER), references=[article, price])


def test_avro_schema_contains_those_it_refers_to(server: Registry) -> None:
    schema_id = register_order(server.client)
    client = server.client
    assert list(client.referenced(schema_id)) == ["money.Price", "shop.Article"]
    parse_avro(client.schema(schema_id))
    asked = len(server.asked)
    client.schema(schema_id)
    client.referenced(schema_id)
    assert len(server.asked) == asked


def test_avro_record_of_a_schema_with_references_is_read(server: Registry) -> None:
    schema_id = register_order(server.client)
    tea = b"\x06tea" + b"\x08"
    data = framed(schema_id, b"\x02" + tea + b"\x00" + b"\x02" + tea + b"\x0a")
    article = {"name": "tea", "price": {"cents": 4}}
    expected = {"articles": [article], "gift": article, "total": {"cents": 5}}
    assert AvroDeserializer(server.client)(data) == expected


def test_loaded_subject_needs_no_request_for_its_references(server: Registry) -> None:
    schema_id = register_order(server.client)
    client = server.client
    assert client.load("orders-value") == [schema_id]
    server.is_away = True
    assert "cents" in client.schema(schema_id)


def test_version_of_a_schema_in_a_subject_is_known(server: Registry) -> None:
    client = server.client
    client.schema_id("price", json.dumps(PRICE))
    client.schema_id("price", '"string"')
    assert [client.version("price", json.dumps(PRICE)), client.version("price", '"string"')] == [1, 2]
    with pytest.raises(LookupError, match="no such schema in subject price"):
        client.version("price", '"int"')


def test_schemas_that_refer_to_each_other_are_fetched_once(server: Registry) -> None:
    first = server.client.schema_id("a", '"A"', references=[SchemaReference("B", "b", 1)])
    server.client.schema_id("b", '"B"', references=[SchemaReference("A", "a", 1)])
    assert sorted(server.client.referenced(first)) == ["A", "B"]


def test_too_many_references_are_an_error(server: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MAX_REFERENCED", 1)
    schema_id = register_order(server.client)
    with pytest.raises(RegistryError, match="refers to more than 1 other schemas"):
        server.client.referenced(schema_id)


def test_reference_that_the_registry_lacks_is_a_lookup_error(server: Registry) -> None:
    schema_id = server.client.schema_id("a", '"B"', references=[SchemaReference("B", "b", 1)])
    with pytest.raises(LookupError, match="no version 1 of subject b"):
        server.client.schema(schema_id)


def test_reference_that_is_not_json_is_a_registry_error(server: Registry) -> None:
    server.client.schema_id("b", "{")
    schema_id = server.client.schema_id("a", '"B"', references=[SchemaReference("B", "b", 1)])
    with pytest.raises(RegistryError, match="is not JSON"):
        server.client.schema(schema_id)


@pytest.mark.parametrize(
    ("schema", "others", "expected"),
    [
        ('"a.B"', {"a.B": {"type": "fixed", "name": "a.B", "size": 2}},
         {"type": "fixed", "name": "B", "namespace": "a", "size": 2}),
        ('["null", "a.B", "a.B"]', {"a.B": {"type": "enum", "name": "B", "namespace": "a", "symbols": ["X"]}},
         ["null", {"type": "enum", "name": "B", "namespace": "a", "symbols": ["X"]}, "a.B"]),
        ('{"type": "map", "values": "B"}', {"B": {"type": "record", "name": "B", "fields": []}},
         {"type": "map", "values": {"type": "record", "name": "B", "namespace": "", "fields": []}}),
        ('{"type": "record", "name": "C", "namespace": "c", "fields": [{"name": "b", "type": "B"}]}', {"B": "int"},
         {"type": "record", "name": "C", "namespace": "c", "fields": [{"name": "b", "type": "B"}]}),
    ],
)  # fmt: skip
def test_type_is_defined_where_it_is_first_named(schema: str, others: dict[str, Any], expected: Any) -> None:
    texts = {name: json.dumps(each) for name, each in others.items()}
    assert json.loads(with_named_types(schema, texts)) == expected


def test_type_within_a_referenced_schema_is_used_before_that_schema() -> None:
    """Kafka's own clients know all types of a referenced schema, wherever they are defined."""
    size = {"type": "enum", "name": "Size", "symbols": ["S", "L"]}
    fields = [
        {"name": "size", "type": ["null", size]},
        {"name": "other", "type": "Size"},
        {"name": "box", "type": ["null", "Box"]},
    ]
    box = {"type": "record", "name": "shop.Box", "fields": fields}
    order: dict[str, Any] = {"type": "record", "name": "Order", "namespace": "shop"}
    for used in (["Size", "Box"], ["shop.Size"], ["Box", "shop.Size"], [{"type": "map", "values": "Size"}, "shop.Box"]):
        order["fields"] = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(used)]
        text = with_named_types(json.dumps(order), {"shop.Box": json.dumps(box)})
        assert len(parse_avro(text)["fields"]) == len(used)
        assert text.count('"symbols"') == 1
