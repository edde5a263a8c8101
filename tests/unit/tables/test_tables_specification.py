"""Specifications of tables: what is accepted, and how errors read."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.connect.errors import ConfigInvalid
from odradek.connect.table_formats.partitioning import Division
from odradek.tables.specification import Start, parse_start, read, spec_of


def test_settings_have_defaults() -> None:
    spec = spec_of("orders", {"topic": "orders", "path": "o/"})
    assert list(spec.columns) == ["__key", "__topic", "__partition", "__offset", "__timestamp"]
    assert (spec.bad_path, spec.rules.keys, spec.start, spec.may_adopt) == ("o_bad", (), Start("earliest"), False)


def test_upsert_has_the_columns_of_the_key() -> None:
    spec = spec_of("o", {
        "topic": "o", "path": "o", "mode": "upsert", "key.converter": "json", "key.columns": "a,b",
        "columns": "a bigint,b string,at timestamp", "partition.by": "day(at)",
    })  # fmt: skip
    assert spec.rules.keys == ("a", "b")
    assert spec.divisions == (Division("at", "day"),)
    assert spec.columns["a"] == "bigint"


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({}, "table o: topic is missing"),
        ({"topic": "o", "path": "o", "mod": "upsert"}, "table o: mod is not a setting of a table; did you mean mode?"),
        ({"topic": "o", "path": "o", "columns": "a int"}, "table o: columns: 'a int': NAME TYPE expected"),
        ({"topic": "o", "path": "o", "partition.by": "day(at)"}, "partition.by: 'day(at)': at has to be one of"),
        ({"topic": "o", "path": "o", "partition.by": "hour(__offset)"}, "is of type bigint, timestamp expected"),
        ({"topic": "o", "path": "o", "key.converter": "json"}, "key.columns: __key: declare its type in `columns`"),
        ({"topic": "o", "path": "o", "key.columns": "a,b"}, "several columns need a key.converter"),
        ({"topic": "o", "path": "o", "value.converter": "avro"}, "value.converter: schema.registry.url is missing"),
        (
            {"topic": "o", "path": "o", "value.converter": "avro", "value.converter.schema.registry.url": "r:8081"},
            "value.converter: 'r:8081' is not an address of a schema registry",
        ),
        (
            {
                "topic": "o",
                "path": "o",
                "value.converter": "avro",
                "value.converter.schema.registry.url": "http://r:1",
                "value.converter.schemas.enable": "true",
            },
            "schemas.enable is not a setting of io.confluent.connect.avro.AvroConverter",
        ),
        ({"topic": "o", "path": "o", "columns": "__offset bigint"}, "__offset is a column that the table fills itself"),
        ({"topic": "o", "path": "o", "start": "soon"}, "start: 'soon': earliest, latest, a time"),
        ({"topic": "o", "path": "o", "consumer.override.nope": "1"}, "consumer.override.*"),
        ({"topic": "o", "path": "${file:/x:y}"}, "placeholders need --secrets"),
    ],
)
def test_mistakes_are_named(settings: dict[str, str], line: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        spec_of("o", settings)
    assert line in str(caught.value)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("latest", Start("latest")),
        ("0:5, 2:7", Start("offsets", offsets={0: 5, 2: 7})),
        ("1970-01-01T00:00:02", Start("time", time_ms=2000)),
        ("1970-01-01T02:00:00+02:00", Start("time", time_ms=0)),
    ],
)
def test_start_is_an_offset_or_a_time(text: str, start: Start) -> None:
    assert parse_start(text) == start


def test_two_tables_at_one_path_are_rejected(tmp_path: Path) -> None:
    file = tmp_path / "t.yml"
    file.write_text("tables:\n  a: {topic: o, path: x}\n  b: {topic: o, path: x/}\n")
    with pytest.raises(ConfigInvalid, match="table b: path=x/: table a has it already"):
        read([file], None)


def test_bad_records_cannot_go_to_the_table_itself(tmp_path: Path) -> None:
    file = tmp_path / "t.yml"
    file.write_text("tables:\n  a: {topic: o, path: x, bad.records.path: x}\n")
    with pytest.raises(ConfigInvalid, match="has it already"):
        read([file], None)


def test_file_of_one_table_has_its_name_among_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "t.properties"
    file.write_text("name=orders\ntopic=o\npath=x\n")
    assert list(read([file], None)) == ["orders"]
