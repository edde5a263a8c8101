"""Avro and Protobuf by schemas from files: formats, headers with schema ids, and bytes that attack the process."""

import asyncio
import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from odradek.client.framing import framed
from odradek.client.model import CREATE_TIME, ConsumerRecord
from odradek.console.messages import schema_decoding
from odradek.console.messages.decoding import show
from odradek.console.messages.schema_decoding import Decoders, Origin
from odradek.console.messages.schema_worker import MAX_TEXT, Decoded, Decoder
from odradek.console.messages.schemas import SchemaError, Schemas

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": "string"}],
}
RESOLVED = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": "string"},
        {"name": "more", "type": "int", "default": 7},
    ],
}
NULLS = {"type": "array", "items": "null"}
TREE = {"type": "record", "name": "T", "fields": [{"name": "next", "type": ["null", "T"]}]}


def avro(schema: Any, value: Any) -> bytes:
    """A value in Avro's binary form."""
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(schema), value)
    return out.getvalue()


def rule(schema: Any, part: str = "value", schema_id: int | None = None) -> dict[str, Any]:
    """A rule for Avro."""
    return {"part": part, "id": schema_id, "format": "avro", "text": json.dumps(schema), "message": ""}


def descriptors() -> bytes:
    """A descriptor set with the messages shop.Payment and shop.Payment.Card, and an enum."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="CASH", number=0)
    kind.value.add(name="CARD", number=1)
    payment = file.message_type.add(name="Payment")
    card = payment.nested_type.add(name="Card")
    card.field.add(name="number", number=1, type=9, label=1)
    payment.field.add(name="amount", number=1, type=3, label=1)
    payment.field.add(name="kind", number=2, type=14, label=1, type_name=".shop.Kind")
    payment.field.add(name="cards", number=3, type=11, label=3, type_name=".shop.Payment.Card")
    payment.field.add(name="token", number=4, type=12, label=1)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def payment(**fields: Any) -> bytes:
    """A shop.Payment."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors()).file:
        pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Payment"))(**fields)
    data: bytes = message.SerializeToString()
    return data


def given(tmp_path: Path) -> Schemas:
    """Schemas of the topics orders and payments, from files."""
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "shop.desc").write_bytes(descriptors())
    return Schemas.parse([f"orders={tmp_path}/order.avsc", f"pay*={tmp_path}/shop.desc:shop.Payment"])


def decoded(schemas: Schemas, topic: str, data: bytes) -> Any:
    """What a process for the topic would make of a value."""
    frame = schemas.for_topic(topic)
    assert frame is not None
    return Decoder(json.loads(frame)).decode("value", data)


def test_avro_value_becomes_json(tmp_path: Path) -> None:
    found = decoded(given(tmp_path), "orders", avro(ORDER, {"id": 4, "note": "<ä>"}))
    assert found == Decoded("avro", None, '{"id": 4, "note": "<ä>"}'.encode())


def test_header_with_schema_id_is_read(tmp_path: Path) -> None:
    found = decoded(given(tmp_path), "orders", framed(9, avro(ORDER, {"id": 4, "note": "x"})))
    assert (found.format, found.schema_id) == ("avro", 9)


def test_record_of_a_known_id_is_resolved_to_the_usual_schema() -> None:
    decoder = Decoder([rule(ORDER, schema_id=9), rule(RESOLVED)])
    found = decoder.decode("value", framed(9, avro(ORDER, {"id": 4, "note": "x"})))
    assert found is not None
    assert json.loads(found.text) == {"id": 4, "note": "x", "more": 7}


def test_avro_value_that_begins_with_zero_needs_no_header() -> None:
    found = Decoder([rule(ORDER)]).decode("value", avro(ORDER, {"id": 0, "note": "longer"}))
    assert found == Decoded("avro", None, b'{"id": 0, "note": "longer"}')


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ({"type": "bytes"}, b"\xff", "/w=="),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, Decimal("1.50"), "1.50"),
        ({"type": "long", "logicalType": "timestamp-millis"}, dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
         "2026-01-02T00:00:00+00:00"),
        ({"type": "int", "logicalType": "date"}, dt.date(2026, 1, 2), "2026-01-02"),
        ({"type": "map", "values": "int"}, {"a": 1}, {"a": 1}),
        (["null", "string"], None, None),
    ],
)  # fmt: skip
def test_avro_types_have_a_form_in_json(kind: Any, value: Any, expected: Any) -> None:
    found = Decoder([rule(kind)]).decode("value", avro(kind, value))
    assert found is not None
    assert json.loads(found.text) == expected


def test_protobuf_value_becomes_json(tmp_path: Path) -> None:
    data = payment(amount=2**60, kind=1, cards=[{"number": "4711"}], token=b"\x01")
    document = {"amount": 2**60, "kind": "CARD", "cards": [{"number": "4711"}], "token": "AQ=="}
    found = decoded(given(tmp_path), "payments", data)
    assert (found.format, json.loads(found.text)) == ("protobuf", document)
    with_header = decoded(given(tmp_path), "payments", framed(3, data, (0,)))
    assert (with_header.schema_id, json.loads(with_header.text)) == (3, document)


def test_indexes_choose_the_protobuf_message(tmp_path: Path) -> None:
    found = decoded(given(tmp_path), "payments", framed(3, b"\x0a\x02ab", (0, 0)))
    assert json.loads(found.text) == {"number": "ab"}


@pytest.mark.parametrize("topic", ["orders", "payments"])
@pytest.mark.parametrize("data", [b"\x00", b"\x00\x00\x00\x00\x07", b"\xff" * 40, b"text", framed(3, b"\x80", (5,))])
def test_value_of_another_form_is_reported(tmp_path: Path, topic: str, data: bytes) -> None:
    found = decoded(given(tmp_path), topic, data)
    assert found.format == ""
    assert found.text


def test_part_without_schema_is_left() -> None:
    decoder = Decoder([rule(ORDER, schema_id=9)])
    assert decoder.decode("key", b"x") is None
    assert decoder.decode("value", framed(8, b"x")) is None


def test_large_document_of_a_small_value_is_left() -> None:
    data = avro(NULLS, [None] * (MAX_TEXT // 4))
    found = Decoder([rule(NULLS)]).decode("value", data)
    assert len(data) < 20
    assert found is not None
    assert found.format == ""


@pytest.mark.parametrize(
    "given_rule",
    ["", "orders", "orders=", "=x.avsc", "orders=missing.avsc", "orders=wrong.avsc", "orders=shop.desc",
     "orders=shop.desc:shop.Missing", "orders=order.avsc:x", "orders#x=order.avsc", "orders:headers=order.avsc"],
)  # fmt: skip
def test_wrong_rule_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given_rule: str) -> None:
    given(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.avsc").write_text('{"type": "record"}')
    with pytest.raises(SchemaError):
        Schemas.parse([given_rule])


def record(offset: int, value: bytes | None, key: bytes | None = None) -> Any:
    """A record of partition 0."""
    return ConsumerRecord("t", 0, offset, 0, CREATE_TIME, key, value, [], 0)


def run(rules: list[Any], records: list[Any]) -> tuple[list[Any], dict[Any, Origin]]:
    """Records after a real process."""

    async def scenario() -> Any:
        async with Decoders(json.dumps(rules).encode()) as decoders:
            return await decoders.decode(records)

    found: tuple[list[Any], dict[Any, Origin]] = asyncio.run(scenario())
    return found


def test_keys_and_values_are_decoded_by_the_process() -> None:
    rules = [rule("long", "key"), rule(ORDER)]
    order = avro(ORDER, {"id": 1, "note": ""})
    found, origins = run(rules, [record(0, order, avro("long", 5)), record(1, None, b""), record(2, b"\xff")])
    assert [(each.key, each.value) for each in found] == [
        (b"5", b'{"id": 1, "note": ""}'), (b"", None), (None, b"\xff"),
    ]  # fmt: skip
    assert origins[0, 0].value == Decoded("avro", None, b'{"id": 1, "note": ""}')
    assert list(origins) == [(0, 0), (0, 2)]


@pytest.mark.parametrize(
    ("schema", "attack"),
    [(NULLS, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"), (TREE, b"\x02" * 900_000 + b"\x00")],
    ids=["endless", "deep"],
)
def test_attack_costs_only_its_own_record(monkeypatch: pytest.MonkeyPatch, schema: Any, attack: bytes) -> None:
    monkeypatch.setattr(schema_decoding, "LIST_S", 0.5)
    monkeypatch.setattr(schema_decoding, "RECORD_S", 4.0)
    good = avro(NULLS, []) if schema is NULLS else avro(TREE, {"next": None})
    found, origins = run([rule(schema)], [record(0, good), record(1, attack), record(2, good)])
    assert found[1].value == attack
    assert [origins[0, at].value.format for at in range(3)] == ["avro", "", "avro"]  # type: ignore[union-attr]


def test_reading_stops_to_decode_after_many_attacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_decoding, "LIST_S", 0.5)
    monkeypatch.setattr(schema_decoding, "RECORD_S", 0.5)
    monkeypatch.setattr(schema_decoding, "MAX_ENDED", 2)
    attack = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    found, origins = run([rule(NULLS)], [record(at, attack) for at in range(50)])
    assert [each.value for each in found] == [attack] * 50
    last = origins[0, 49].value
    assert last is not None
    assert b"2 processes ended" in last.text


def test_large_value_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_decoding, "MAX_VALUE", 4)
    _, origins = run([rule("string")], [record(0, avro("string", "long text")), record(1, avro("string", "x"))])
    assert [origins[0, at].value.format for at in range(2)] == ["", "avro"]  # type: ignore[union-attr]


def test_header_is_recognised_without_schema() -> None:
    assert show(framed(7, b"\x02\x04"), "auto").note == "begins as Confluent's wire format does, with schema id 7"
    inner = show(framed(7, b'{"a": 1}'), "auto")
    assert (inner.kind, inner.note, json.loads(inner.text)) == ("json", "schema id 7", {"a": 1})
    assert show((7).to_bytes(8, "big"), "auto").note == ""
