"""What sources write behind the ids of a registry: which schemas, and that converters read it."""

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest

from odradek.client.registry import RegistryError
from odradek.connect.errors import ConnectError, TargetAway
from odradek.connect.registry_converters import FORMATS, RegistryConverter, SchemaMissing
from odradek.connect.registry_writers import RegistryWriter, SchemaChoice

LOGICAL = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "raw", "type": "bytes"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "inner", "type": {"type": "record", "name": "I", "fields": [{"name": "n", "type": "int"}]}},
        {"name": "again", "type": "I"},
    ],
}


class Memory:
    """A registry in this process, with schemas of one type."""

    def __init__(self, schema_type: str) -> None:
        self.schema_type = schema_type
        self.texts: list[str] = []
        self.subjects: dict[str, list[int]] = {}
        self.failure: RegistryError | None = None

    def schema(self, schema_id: int) -> str:
        return self.texts[schema_id]

    def referenced(self, _schema_id: int) -> dict[str, str]:
        return {}

    def load(self, subject: str) -> list[int]:
        if self.failure is not None:
            raise self.failure
        if subject not in self.subjects:
            raise LookupError(f"no subject {subject}")
        return self.subjects[subject]

    def schema_id(self, subject: str, schema: str, *, register: bool = True) -> int:
        if schema not in self.texts:
            if not register:
                raise LookupError(f"no such schema in subject {subject}")
            self.texts.append(schema)
            self.subjects.setdefault(subject, []).append(len(self.texts) - 1)
        return self.texts.index(schema)


def made(registry: Memory, **choice: Any) -> RegistryConverter:
    format_ = next(each for each in FORMATS.values() if each.schema_type == registry.schema_type)
    given: Any = registry
    return RegistryConverter(format_, given, RegistryWriter(registry.schema_type, given, SchemaChoice(**choice)))


def written(converter: RegistryConverter, value: Any) -> bytes:
    try:
        found = converter.encode("orders", value)
    except SchemaMissing as missing:
        missing.fetch()
        found = converter.encode("orders", value)
    assert found is not None
    return found


def read(converter: RegistryConverter, data: bytes) -> Any:
    try:
        return converter.decode(data)
    except SchemaMissing as missing:
        missing.fetch()
        return converter.decode(data)


@pytest.mark.parametrize("schema_type", ["AVRO", "JSON", "PROTOBUF"])
def test_schema_made_of_values_is_extended_by_new_fields(schema_type: str) -> None:
    registry = Memory(schema_type)
    first = made(registry)
    old = written(first, {"id": 1, "item": None, "price": 2.5})
    assert written(first, {"id": 2, "price": None})
    assert len(registry.texts) == 1
    new = written(first, {"id": 3, "item": "tea", "ok": True})
    assert len(registry.texts) == 2
    # a process that starts later continues with the newest schema
    later = made(registry)
    assert written(later, {"id": 3, "item": "tea", "ok": True}) == new
    assert len(registry.texts) == 2
    known = {name: each for name, each in read(later, old).items() if each is not None}
    assert known == {"id": 1, "price": 2.5}
    known = {name: each for name, each in read(later, new).items() if each is not None}
    assert known == {"id": 3, "item": "tea", "ok": True}


def test_values_fit_a_type_that_is_named_with_its_namespace() -> None:
    price = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    item = {"type": "record", "name": "Item", "fields": [{"name": "price", "type": price}]}
    fields = [{"name": "a", "type": item}, {"name": "b", "type": "Item"}, {"name": "c", "type": "shop.Item"}]
    schema = {"type": "record", "name": "R", "namespace": "shop", "fields": fields}
    converter = made(Memory("AVRO"), text=json.dumps(schema))
    value = {name: {"price": "1.50"} for name in "abc"}
    assert read(converter, written(converter, value)) == value


@pytest.mark.parametrize(
    ("schema_type", "nested"), [("AVRO", '{"a":[1]}'), ("JSON", {"a": [1]}), ("PROTOBUF", '{"a":[1]}')]
)
def test_objects_within_values_are_text_where_the_format_needs_it(schema_type: str, nested: Any) -> None:
    converter = made(Memory(schema_type))
    assert read(converter, written(converter, {"inner": {"a": [1]}})) == {"inner": nested}


@pytest.mark.parametrize(
    ("schema_type", "value"), [("AVRO", "line"), ("AVRO", 7), ("JSON", "line"), ("JSON", [1, "a"])]
)
def test_values_that_are_no_objects_have_simple_schemas(schema_type: str, value: Any) -> None:
    converter = made(Memory(schema_type))
    assert read(converter, written(converter, value)) == value
    assert converter.encode("orders", None) is None


def test_values_become_the_types_of_a_given_schema() -> None:
    registry = Memory("AVRO")
    converter = made(registry, text=json.dumps(LOGICAL))
    value = {
        "at": "2026-01-02T03:04:05", "day": "2026-01-02", "price": "1.50", "raw": "AP8=", "tags": ["a"],
        "inner": {"n": 1}, "again": {"n": 2},
    }  # fmt: skip
    found = read(converter, written(converter, value))
    assert found == {**value, "at": "2026-01-02T03:04:05+00:00"}
    content: Any = converter._read(written(converter, value))
    assert content["at"] == dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    assert content["price"] == Decimal("1.50")


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ({"n": 1, "other": 2}, "field other is not in the schema"),
        ({"n": "x"}, "Avro cannot carry"),
        ("text", "Avro cannot carry"),
    ],
)
def test_value_that_does_not_fit_the_newest_schema_is_rejected(value: Any, part: str) -> None:
    registry = Memory("AVRO")
    registry.schema_id("orders-value", '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}')
    converter = made(registry, uses_latest=True)
    assert read(converter, written(converter, {"n": 1, "other": None})) == {"n": 1}
    with pytest.raises(ValueError, match=part):
        written(converter, value)


def test_names_that_avro_lacks_are_rejected() -> None:
    with pytest.raises(ValueError, match="field 'a-b'"):
        written(made(Memory("AVRO")), {"a-b": 1})


@pytest.mark.parametrize("choice", [{"uses_latest": True}, {"registers": False}])
def test_subject_without_the_schema_fails_the_task(choice: dict[str, bool]) -> None:
    with pytest.raises(ConnectError, match="no s"):
        written(made(Memory("AVRO"), **choice), {"n": 1})


def test_registry_that_is_away_is_waited_for() -> None:
    registry = Memory("JSON")
    registry.failure = RegistryError("away", is_transient=True)
    with pytest.raises(TargetAway):
        written(made(registry), {"n": 1})


def test_keys_have_subjects_of_their_own() -> None:
    registry = Memory("AVRO")
    written(made(registry, is_key=True), "k")
    assert list(registry.subjects) == ["orders-key"]


def test_given_schema_of_protobuf_is_rejected() -> None:
    with pytest.raises(ValueError, match="Protobuf takes the newest schema"):
        made(Memory("PROTOBUF"), text="x")
