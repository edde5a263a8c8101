"""Values in Avro as Arrow columns."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client import AvroValues, FixedSchemas
from odradek.client.consumer import avro_columns
from odradek.client.consumer.avro_columns import UnknownSchemaId
from odradek.client.framing import framed

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "article", "type": "string"},
        {"name": "count", "type": ["null", "int"], "default": None},
        {"name": "price", "type": "double"},
        {"name": "weight", "type": ["float", "null"]},
        {"name": "paid", "type": "boolean"},
        {"name": "picture", "type": ["null", "bytes"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "before", "type": ["null", "Kind"]},
        {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 3}},
        {"name": "nothing", "type": "null"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "number", "type": {"type": "string", "logicalType": "uuid"}},
        {
            "name": "to",
            "type": ["null", {"type": "record", "name": "Place", "fields": [{"name": "town", "type": "string"}]}],
        },
    ],
}
WITH_LISTS: dict[str, Any] = {
    "type": "record",
    "name": "Basket",
    "fields": [
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "sizes", "type": {"type": "map", "values": ["null", "long"]}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "array", "items": {"type": "long", "logicalType": "timestamp-micros"}}},
    ],
}
AT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
FULL: dict[str, Any] = {
    "id": 2**62,
    "article": "tea, green, from a place with a long name",
    "count": -3,
    "price": 1.25,
    "weight": 0.5,
    "paid": True,
    "picture": b"\x00\xff" * 20,
    "kind": "OLD",
    "before": "NEW",
    "digest": b"abc",
    "nothing": None,
    "at": AT,
    "day": AT.date(),
    "number": "8c1d2f7e-0000-4000-8000-000000000000",
    "to": {"town": "Ägina"},
}
BARE: dict[str, Any] = {**FULL, "id": -1, "count": None, "weight": None, "picture": None, "before": None, "to": None}


def encoded(schema: Any, *rows: Any) -> list[bytes]:
    parsed = fastavro.parse_schema(schema)

    def encode(row: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        return out.getvalue()

    return [encode(row) for row in rows]


def decoded(values: AvroValues, data: Sequence[bytes | None]) -> list[Any]:
    found = values.to_columns(pa.array(data, pa.binary()))
    assert found.type == values.type
    found.validate(full=True)
    return found.to_pylist()


def test_fields_of_every_flat_type_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(avro_columns, "_decode_each")
    assert decoded(AvroValues(ORDER), encoded(ORDER, FULL, BARE, FULL)) == [FULL, BARE, FULL]


def test_null_values_are_null_and_slices_are_read_where_they_begin() -> None:
    data = pa.array([b"junk", None, *encoded(ORDER, FULL), None, *encoded(ORDER, BARE)], pa.binary())
    assert AvroValues(json.dumps(ORDER)).to_columns(data[1:]).to_pylist() == [None, FULL, None, BARE]


@pytest.mark.parametrize("data", [[], [None, None]])
def test_batch_without_values_has_the_type(data: list[bytes | None]) -> None:
    assert decoded(AvroValues(ORDER), data) == data


def test_lists_maps_and_decimals_are_decoded() -> None:
    row = {"tags": ["a", "b"], "sizes": {"x": 1, "y": None}, "price": Decimal("-1.25"), "at": [AT]}
    expected = {**row, "sizes": [("x", 1), ("y", None)]}
    values = AvroValues(WITH_LISTS)
    assert values.type.field("price").type == pa.decimal128(9, 2)
    assert decoded(values, [*encoded(WITH_LISTS, row), None]) == [expected, None]


@pytest.mark.parametrize(
    ("schema", "value"), [("string", "text"), ("long", 5), (["null", "double"], None), ("bytes", b"")]
)
def test_value_need_not_be_a_record(schema: Any, value: Any) -> None:
    assert decoded(AvroValues(json.dumps(schema)), encoded(schema, value)) == [value]


NUMBERS: dict[str, Any] = {
    "type": "record",
    "name": "Numbers",
    "fields": [
        {"name": "a", "type": ["null", "long"]},
        {"name": "b", "type": "int"},
        {"name": "c", "type": ["string", "null"]},
        {"name": "d", "type": "double"},
    ],
}


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "a": st.none() | st.integers(-(2**63), 2**63 - 1),
                "b": st.integers(-(2**31), 2**31 - 1),
                "c": st.none() | st.text(max_size=20),
                "d": st.floats(allow_nan=False),
            }
        ),
        min_size=1,
        max_size=20,
    )
)
def test_columns_have_what_fastavro_wrote(rows: list[dict[str, Any]]) -> None:
    assert decoded(AvroValues(NUMBERS), encoded(NUMBERS, *rows)) == rows


@pytest.mark.parametrize("schema", [NUMBERS, WITH_LISTS, {**NUMBERS, "fields": [{"name": "a", "type": "boolean"}]}])
@given(data=st.binary(max_size=30))
def test_any_bytes_are_decoded_or_an_error(schema: dict[str, Any], data: bytes) -> None:
    with suppress(ValueError):
        decoded(AvroValues(schema), [data, data])


@pytest.mark.parametrize("schema", [ORDER, WITH_LISTS])
def test_value_that_is_cut_off_or_longer_is_an_error(schema: dict[str, Any]) -> None:
    row = FULL if schema is ORDER else {"tags": [], "sizes": {}, "price": Decimal(1), "at": []}
    (whole,) = encoded(schema, row)
    for data in (whole[:-1], whole + b"\0", b""):
        with pytest.raises(ValueError, match="a value is not Avro of this schema"):
            AvroValues(schema).to_columns(pa.array([whole, data, whole], pa.binary()))


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("{", "not an Avro schema"),
        ({"type": "record"}, "not an Avro schema"),
        (5, "not an Avro schema"),
        (["string", "long"], "a union of 2 types besides null"),
        ({"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}, "L contains itself"),
    ],
)
def test_schema_without_columns_is_an_error(schema: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        AvroValues(schema)


OLDER: dict[str, Any] = {
    "type": "record",
    "name": "Numbers",
    "fields": [{"name": "b", "type": "int"}, {"name": "d", "type": "float"}],
}
NEWER: dict[str, Any] = {
    **NUMBERS,
    "fields": [{**each, "default": {"a": None, "c": "none"}.get(each["name"], 0)} for each in NUMBERS["fields"]],
}


def looked_up(values: AvroValues, data: list[bytes]) -> list[Any]:
    while True:
        try:
            return decoded(values, [*data])
        except UnknownSchemaId as unknown:
            values.look_up(unknown)


def test_each_value_is_read_with_the_schema_of_its_id() -> None:
    texts = {7: json.dumps(OLDER), 8: json.dumps({**NEWER, "doc": "as asked for"})}
    (new,) = encoded(NEWER, {"a": 1, "b": 2, "c": "x", "d": 0.5})
    old, other = encoded(OLDER, {"b": 3, "d": 1.5}, {"b": 4, "d": 2.5})
    values = AvroValues(NEWER, schemas=FixedSchemas(texts))
    assert looked_up(values, [framed(7, old), framed(8, new), framed(7, other)]) == [
        {"a": None, "b": 3, "c": "none", "d": 1.5},
        {"a": 1, "b": 2, "c": "x", "d": 0.5},
        {"a": None, "b": 4, "c": "none", "d": 2.5},
    ]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\0\0\0\0", "does not begin with a schema id"),
        (b"\1\0\0\0\7abc", "does not begin with a schema id"),
        (framed(9, b""), "there is no schema with id 9"),
        (framed(7, b"\x80"), "a value is not Avro of this schema"),
    ],
)
def test_value_without_a_usable_id_is_an_error(data: bytes, text: str) -> None:
    values = AvroValues(NEWER, schemas=FixedSchemas({7: json.dumps(OLDER)}))
    with pytest.raises(ValueError, match=text):
        looked_up(values, [data])
