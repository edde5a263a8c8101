"""Avro and Protobuf columns, without Spark: types, and the functions that tasks run."""

import base64
import datetime as dt
import io
import json
import pickle
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from odradek.spark.formats import avro, protobuf
from odradek.spark.formats.framing import FixedSchemas, framed

EVENT = json.dumps(
    {
        "type": "record",
        "name": "Event",
        "fields": [
            {"name": "user", "type": "string"},
            {"name": "amount", "type": ["null", "double"], "default": None},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
            {"name": "other", "type": ["null", "Kind"], "default": None},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        ],
    }
)
EVENT_TYPE = (
    "struct<`user`: string, `amount`: double, `at`: timestamp, `tags`: array<string>, `kind`: string, `other`: string, "
    "`price`: decimal(9,2)>"
)
EVENT_ARROW = pa.struct(
    [
        ("user", pa.string()),
        ("amount", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("kind", pa.string()),
        ("other", pa.string()),
        ("price", pa.decimal128(9, 2)),
    ]
)
AT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
ROW = {"user": "u", "amount": 1.5, "at": AT, "tags": ["x"], "kind": "B", "other": None, "price": Decimal("1.25")}


def encoded(row: dict[str, Any], schema: str = EVENT) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), row)
    return out.getvalue()


def avro_decoder(**options: Any) -> Any:
    given = {"schemas": None, "permissive": False, **options}
    made = avro._Decoder(EVENT, given["schemas"], EVENT_ARROW, permissive=given["permissive"])
    return pickle.loads(pickle.dumps(made))


def test_avro_types() -> None:
    assert avro.spark_type(EVENT) == EVENT_TYPE
    assert avro.spark_type('{"type": "map", "values": "int"}') == "map<string, int>"
    with pytest.raises(avro.SchemaError):
        avro.spark_type('["int", "string"]')
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    with pytest.raises(avro.SchemaError):
        avro.spark_type(json.dumps(node))


def test_avro_comes_back() -> None:
    values = avro._Encoder(EVENT, None)(pa.array([ROW, None], EVENT_ARROW))
    assert values.to_pylist() == [encoded(ROW), None]
    assert avro_decoder()(values).to_pylist() == [ROW, None]


def test_avro_of_an_older_schema_by_its_id() -> None:
    """The value is read with the schema that it was written with, and gets the defaults of the one that is wanted."""
    old = json.loads(EVENT)
    old["fields"] = [each for each in old["fields"] if each["name"] != "amount"]
    without = {name: value for name, value in ROW.items() if name != "amount"}
    schemas = FixedSchemas({3: json.dumps(old), 4: EVENT})
    values = pa.array([framed(3, encoded(without, json.dumps(old))), framed(4, encoded(ROW))])
    assert avro_decoder(schemas=schemas)(values).to_pylist() == [{**ROW, "amount": None}, ROW]
    assert avro._Encoder(EVENT, 4)(pa.array([ROW], EVENT_ARROW)).to_pylist() == [framed(4, encoded(ROW))]


@pytest.mark.parametrize("value", [b"", b"\xff" * 30, encoded(ROW)[:-1], encoded(ROW) + b"\0", framed(9, encoded(ROW))])
def test_what_is_not_avro_fails_or_is_null(value: bytes) -> None:
    with pytest.raises(ValueError, match="is not Avro"):
        avro_decoder()(pa.array([value]))
    assert avro_decoder(permissive=True)(pa.array([value, encoded(ROW)])).to_pylist() == [None, ROW]


def test_an_unknown_schema_id_fails() -> None:
    with pytest.raises(ValueError, match="is not Avro"):
        avro_decoder(schemas=FixedSchemas({}))(pa.array([framed(9, encoded(ROW))]))


def record(*kinds: Any, **more: Any) -> str:
    """A schema of a record with the fields f0, f1, …"""
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(kinds)]
    return json.dumps({"type": "record", "name": "Record", "fields": fields, **more})


@pytest.mark.parametrize(
    ("kind", "logical", "spark", "arrow", "given", "found"),
    [
        ("string", "uuid", "string", pa.string(), UUID(int=7), str(UUID(int=7))),
        ("int", "time-millis", "int", pa.int32(), dt.time(0, 0, 1), 1_000),
        ("long", "time-micros", "bigint", pa.int64(), dt.time(0, 0, 1), 1_000_000),
        ("long", "timestamp-nanos", "bigint", pa.int64(), 5, 5),
        ("int", "date", "date", pa.date32(), dt.date(2026, 1, 2), dt.date(2026, 1, 2)),
        ("string", "date", "string", pa.string(), "2026", "2026"),
    ],
)
def test_logical_types_are_read(kind: str, logical: str, spark: str, arrow: Any, given: Any, found: Any) -> None:
    """UUIDs and times of a day failed each query that read one."""
    schema = record({"type": kind, "logicalType": logical}, ["null", {"type": kind, "logicalType": logical}])
    assert avro.spark_type(schema) == f"struct<`f0`: {spark}, `f1`: {spark}>"
    decoder = avro._Decoder(schema, None, pa.struct([("f0", arrow), ("f1", arrow)]), permissive=False)
    values = pa.array([encoded({"f0": given, "f1": each}, schema) for each in (given, None)])
    assert decoder(values).to_pylist() == [{"f0": found, "f1": found}, {"f0": found, "f1": None}]


def test_types_are_named_with_and_without_their_namespace() -> None:
    """Schemas that Java generates name a type in full where it is used again."""
    kind = {"type": "enum", "name": "Kind", "symbols": ["A"]}
    schema = record(kind, "Kind", "shop.Kind", namespace="shop")
    assert avro.spark_type(schema) == "struct<`f0`: string, `f1`: string, `f2`: string>"


def test_maps_are_written() -> None:
    """Arrow has pairs in their place."""
    maps = {"type": "map", "values": {"type": "map", "values": "long"}}
    schema = record(maps, {"type": "array", "items": ["null", maps]})
    arrow = pa.map_(pa.string(), pa.map_(pa.string(), pa.int64()))
    rows = [
        {"f0": [("a", [("b", 1)])], "f1": [[("c", [])], None]},
        {"f0": [], "f1": []},
        None,
    ]
    values = pa.array(rows, pa.struct([("f0", arrow), ("f1", pa.list_(arrow))]))
    written = avro._Encoder(schema, None)(values)
    assert written.to_pylist() == [
        encoded({"f0": {"a": {"b": 1}}, "f1": [{"c": {}}, None]}, schema),
        encoded({"f0": {}, "f1": []}, schema),
        None,
    ]
    assert avro._Decoder(schema, None, values.type, permissive=False)(written).to_pylist() == rows


@pytest.mark.parametrize(
    ("kind", "arrow", "good", "bad"),
    [
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            pa.decimal128(4, 2),
            b"\x02\x7d",
            b"\x10" + b"\x7f" * 8,
        ),
        ("int", pa.int32(), b"\x02", b"\x80\x80\x80\x80\x80\x40"),
    ],
)
def test_number_beyond_its_type_fails_or_is_null(kind: Any, arrow: Any, good: bytes, bad: bytes) -> None:
    schema, kinds = record(kind), pa.struct([("f0", arrow)])
    with pytest.raises(ValueError, match="does not fit"):
        avro._Decoder(schema, None, kinds, permissive=False)(pa.array([good, bad]))
    found = avro._Decoder(schema, None, kinds, permissive=True)(pa.array([good, bad, None, good])).to_pylist()
    assert [each is None for each in found] == [False, True, True, False]


# --- Protobuf ---


def field(name: str, number: int, kind: int, *, repeated: bool = False, type_name: str | None = None) -> Any:
    made = descriptor_pb2.FieldDescriptorProto(name=name, number=number, type=kind, type_name=type_name)
    made.label = 3 if repeated else 1
    return made


def descriptors() -> bytes:
    """shop.Order, as protoc would describe it: all kinds of fields."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="First")
    order = file.message_type.add(name="Order")
    state = order.enum_type.add(name="State")
    state.value.add(name="OPEN", number=0)
    state.value.add(name="PAID", number=1)
    line = order.nested_type.add(name="Line")
    line.field.extend([field("article", 1, 9), field("count", 2, 5)])
    entry = order.nested_type.add(name="PricesEntry")
    entry.options.map_entry = True
    entry.field.extend([field("key", 1, 9), field("value", 2, 1)])
    order.field.extend(
        [
            field("id", 1, 4),
            field("state", 2, 14, type_name=".shop.Order.State"),
            field("lines", 3, 11, repeated=True, type_name=".shop.Order.Line"),
            field("prices", 4, 11, repeated=True, type_name=".shop.Order.PricesEntry"),
            field("at", 5, 11, type_name=".google.protobuf.Timestamp"),
            field("note", 6, 11, type_name=".shop.Order.Line"),
            field("tags", 7, 9, repeated=True),
        ]
    )
    node = file.message_type.add(name="Node")
    node.field.append(field("next", 1, 11, type_name=".shop.Node"))
    stamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    return descriptor_pb2.FileDescriptorSet(file=[stamp, file]).SerializeToString()


LINE = pa.struct([("article", pa.string()), ("count", pa.int32())])
ORDER_ARROW = pa.struct(
    [
        ("id", pa.decimal128(20, 0)),
        ("state", pa.string()),
        ("lines", pa.list_(LINE)),
        ("prices", pa.map_(pa.string(), pa.float64())),
        ("at", pa.timestamp("us", "UTC")),
        ("note", LINE),
        ("tags", pa.list_(pa.string())),
    ]
)
ORDER = {
    "id": Decimal(2**64 - 1),
    "state": "PAID",
    "lines": [{"article": "a", "count": 2}],
    "prices": [("a", 1.5)],
    "at": AT,
    "note": None,
    "tags": ["x", "y"],
}


def protobuf_decoder(**options: bool) -> Any:
    given = {"confluent": False, "permissive": False, **options}
    return pickle.loads(pickle.dumps(protobuf._Decoder("shop.Order", descriptors(), ORDER_ARROW, **given)))


def test_protobuf_types() -> None:
    assert protobuf.spark_type("shop.Order", descriptors()) == (
        "struct<`id`: decimal(20,0), `state`: string, `lines`: array<struct<`article`: string, `count`: int>>, "
        "`prices`: map<string, double>, `at`: timestamp, `note`: struct<`article`: string, `count`: int>, "
        "`tags`: array<string>>"
    )
    for wrong in ("shop.Node", "shop.Nothing"):
        with pytest.raises(avro.SchemaError):
            protobuf.spark_type(wrong, descriptors())


@pytest.mark.parametrize("schema_id", [None, 7])
def test_protobuf_comes_back(schema_id: int | None) -> None:
    values = protobuf._Encoder("shop.Order", descriptors(), schema_id)(pa.array([ORDER, None], ORDER_ARROW))
    assert protobuf_decoder(confluent=schema_id is not None)(values).to_pylist() == [ORDER, None]
    if schema_id is not None:
        assert values[0].as_py()[:8] == bytes.fromhex("0000000007") + b"\x02\x02" + values[0].as_py()[7:8]


@pytest.mark.parametrize("value", [b"\xff", b"\x0a", b"\x2a\x08\x08\x80\x80\x9a\xa6\xea\xaf\xe3\x01"])
def test_what_is_not_protobuf_fails_or_is_null(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"is not a shop\.Order"):
        protobuf_decoder()(pa.array([value]))
    assert protobuf_decoder(permissive=True)(pa.array([value])).to_pylist() == [None]


def test_map_with_keys_of_64_bits_without_sign_comes_back() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="maps.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Counts")
    entry = message.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.extend([field("key", 1, 4), field("value", 2, 4)])
    message.field.append(field("counts", 1, 11, repeated=True, type_name=".shop.Counts.CountsEntry"))
    described = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    kind = pa.struct([("counts", pa.map_(pa.decimal128(20, 0), pa.decimal128(20, 0)))])
    rows = [{"counts": [(Decimal(2**64 - 1), Decimal(3))]}]
    values = protobuf._Encoder("shop.Counts", described, None)(pa.array(rows, kind))
    decoder = protobuf._Decoder("shop.Counts", described, kind, confluent=False, permissive=False)
    assert decoder(values).to_pylist() == rows


def registered(*names: str) -> str:
    """A schema as a registry has it: a file that imports another one, with a second message of these fields."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="First")
    order = file.message_type.add(name="Order")
    order.field.extend([field(name, number, 9) for number, name in enumerate(names, 1)])
    order.field.append(field("at", 15, 11, type_name=".google.protobuf.Timestamp"))
    return base64.b64encode(file.SerializeToString()).decode()


def test_message_of_a_registry_reads_older_and_newer_values() -> None:
    schemas = FixedSchemas({1: registered("id"), 2: registered("id", "note"), 3: registered("id", "note", "more")})
    readers = {each: protobuf.registered_message(schemas, each, (1,)) for each in (1, 2, 3)}
    name, described = readers[2]
    assert name == "shop.Order"
    assert protobuf.spark_type(name, described) == "struct<`id`: string, `note`: string, `at`: timestamp>"
    kind = pa.struct([("id", pa.string()), ("note", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    decoder = protobuf._Decoder(name, described, kind, confluent=True, permissive=False)
    values = []
    for number in (1, 3):
        encoder = protobuf._Encoder(*readers[number], number)
        values += encoder(pa.array([{"id": "a", "note": "n", "more": "m", "at": AT}])).to_pylist()
    assert decoder(pa.array(values)).to_pylist() == [
        {"id": "a", "note": "", "at": AT},
        {"id": "a", "note": "n", "at": AT},
    ]


def test_message_that_a_registered_schema_lacks_is_an_error() -> None:
    with pytest.raises(avro.SchemaError):
        protobuf.registered_message(FixedSchemas({1: registered("id")}), 1, (5,))


def test_a_mode_is_one_of_two() -> None:
    assert avro.is_permissive("PERMISSIVE")
    with pytest.raises(ValueError, match="neither"):
        avro.is_permissive("DROPMALFORMED")
