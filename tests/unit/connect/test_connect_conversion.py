"""Converters, transforms, and the records of the worker's topics."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek.client.model import CREATE_TIME, ConsumerRecord
from odradek.connect.conversion import Conversion
from odradek.connect.converters import JsonConverter, StringConverter, class_of, converter_of
from odradek.connect.model import SourceRecord, Target
from odradek.connect.sources.source import StoredOffsets, partition_text
from odradek.connect.topics import (
    StoredConnectors,
    config_record,
    offset_key,
    offset_value,
    parse_offset,
    target_record,
)
from odradek.connect.transforms import transforms_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_json_converter_returns_what_it_wrote(value: Any) -> None:
    try:
        data = JsonConverter().encode("t", value)
    except ValueError:
        assert "\\ud" in json.dumps(value).lower()  # a lone surrogate has no UTF-8
        return
    assert JsonConverter().decode(data) == value


@pytest.mark.parametrize("data", [b"{", b"\xff", b"NaN!", b"[" * 100_000])
def test_json_converter_rejects_what_is_no_json(data: bytes) -> None:
    with pytest.raises(ValueError, match="not JSON"):
        JsonConverter().decode(data)


def test_json_converter_returns_the_payload_of_an_envelope() -> None:
    converter = JsonConverter(schemas_enable=True)
    assert converter.decode(b'{"schema": {"type": "string"}, "payload": "x"}') == "x"
    with pytest.raises(ValueError, match=r"schemas\.enable"):
        converter.decode(b'{"payload": "x"}')


def test_string_converter_writes_objects_as_json() -> None:
    assert StringConverter().encode("t", {"a": 1}) == b'{"a":1}'
    assert StringConverter().encode("t", "a") == b"a"
    with pytest.raises(ValueError, match="byte 0"):
        StringConverter().decode(b"\xff")


@pytest.mark.parametrize("name", ["json", "JsonConverter", "org.apache.kafka.connect.json.JsonConverter"])
def test_converter_has_three_names(name: str) -> None:
    assert class_of(name) == "org.apache.kafka.connect.json.JsonConverter"
    assert isinstance(converter_of(name, {}), JsonConverter)


# --- transforms ---


def transformed(options: dict[str, str], value: Any, topic: str = "orders", timestamp: int = 0) -> Any:
    (transform,) = transforms_of(["t"], {f"t.{name}": text for name, text in options.items()})
    return transform(topic, "k", value, timestamp)


@pytest.mark.parametrize(
    ("options", "value", "expected"),
    [
        ({"type": "MaskField$Value", "fields": "card,cvc"}, {"card": "41", "cvc": 7, "a": 1},
         {"card": "", "cvc": 0, "a": 1}),
        ({"type": "MaskField$Value", "fields": "a,b,c", "replacement": "9"}, {"a": 4, "b": "x", "c": 1.5},
         {"a": 9, "b": "9", "c": 9.0}),
        ({"type": "MaskField$Value", "fields": "a,b", "replacement": "*"}, {"a": None, "b": "x"},
         {"a": None, "b": "*"}),
        ({"type": "MaskField$Value", "fields": "a,b,c,d"}, {"a": True, "b": [1], "c": {"x": 1}, "d": None},
         {"a": False, "b": [], "c": {}, "d": None}),
        ({"type": "InsertField$Value", "topic.field": "t!", "timestamp.field": "at?"}, {}, {"t": "orders", "at": 0}),
        ({"type": "ReplaceField$Value", "exclude": "b", "renames": "a:x"}, {"a": 1, "b": 2}, {"x": 1}),
        ({"type": "ReplaceField$Value", "include": "b"}, {"a": 1, "b": 2}, {"b": 2}),
        ({"type": "InsertField$Value", "topic.field": "t", "static.field": "s", "static.value": "v"}, {"a": 1},
         {"a": 1, "t": "orders", "s": "v"}),
        ({"type": "ExtractField$Value", "field": "a"}, {"a": [1]}, [1]),
        ({"type": "org.apache.kafka.connect.transforms.HoistField$Value", "field": "a"}, 5, {"a": 5}),
        ({"type": "HoistField$Value", "field": "a"}, None, {"a": None}),
        ({"type": "MaskField$Value", "fields": "card"}, None, None),
    ],
)  # fmt: skip
def test_transform_changes_the_value(options: dict[str, str], value: Any, expected: Any) -> None:
    assert transformed(options, value) == ("orders", "k", expected)


def test_value_to_key_takes_fields_of_the_value() -> None:
    assert transformed({"type": "ValueToKey", "fields": "a"}, {"a": 1, "b": 2}).key == {"a": 1}


def test_regex_router_renames_complete_matches_only() -> None:
    options = {"type": "RegexRouter", "regex": "or(.*)", "replacement": "new-$1"}
    assert transformed(options, {}).topic == "new-ders"
    assert transformed(options, {}, topic="xorders").topic == "xorders"


@pytest.mark.parametrize(("replacement", "topic"), [("$2-$1", "a-x"), ("$13", "x3"), (r"\$1", r"\x")])
def test_regex_router_reads_numbers_of_groups_as_java(replacement: str, topic: str) -> None:
    assert transformed({"type": "RegexRouter", "regex": "(.)(.)", "replacement": replacement}, {}, "xa").topic == topic


def test_timestamp_router_uses_utc() -> None:
    options = {"type": "TimestampRouter", "topic.format": "${topic}.${timestamp}", "timestamp.format": "yyyy-MM"}
    assert transformed(options, {}, timestamp=1_700_000_000_000).topic == "orders.2023-11"


def test_drop_tombstones_drops_records_without_value() -> None:
    assert transformed({"type": "DropTombstones"}, None) is None
    assert transformed({"type": "DropTombstones"}, {}) == ("orders", "k", {})


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"type": "MaskField", "fields": "a"}, r"MaskField\$Key or MaskField\$Value"),
        ({"type": "MaskField$Value"}, "fields is missing"),
        ({"type": "MaskField$Value", "fields": "a", "filds": "b"}, "did you mean fields"),
        ({"type": "ReplaceField$Value", "renames": "a"}, "OLD:NEW"),
        ({"type": "RegexRouter", "regex": "(", "replacement": ""}, "transforms.t"),
        ({"type": "RegexRouter", "regex": "(a).*", "replacement": "$2"}, "no group 2"),
        ({"type": "TimestampRouter", "timestamp.format": "yyyy-QQ"}, "yyyy, MM"),
        ({"type": "Flatten$Value"}, "one of MaskField"),
    ],
)
def test_wrong_transform_is_named(options: dict[str, str], part: str) -> None:
    with pytest.raises(ValueError, match=part):
        transformed(options, {})


def test_transform_rejects_a_value_that_is_no_object() -> None:
    with pytest.raises(ValueError, match="JSON object expected, got str"):
        transformed({"type": "MaskField$Value", "fields": "a"}, "text")


@pytest.mark.parametrize("value", [7, True, [1]])
def test_replacement_that_is_no_value_of_the_type_is_rejected(value: Any) -> None:
    with pytest.raises(ValueError, match=r"invalid literal|text or numbers only"):
        transformed({"type": "MaskField$Value", "fields": "a", "replacement": "*"}, {"a": value})


def record(value: bytes | None) -> ConsumerRecord[Any, Any]:
    return ConsumerRecord("orders", 1, 7, 1000, CREATE_TIME, b"k", value, (), 0)


def test_conversion_keeps_the_bytes_beside_the_objects() -> None:
    made = Conversion(StringConverter(), JsonConverter()).decode(record(b'{"a":1}'))
    assert made is not None
    assert (made.key, made.value, made.raw_key, made.raw_value) == ("k", {"a": 1}, b"k", b'{"a":1}')


def test_conversion_returns_none_for_a_dropped_record() -> None:
    transforms = transforms_of(["t"], {"t.type": "DropTombstones"})
    conversion = Conversion(StringConverter(), JsonConverter(), transforms)
    assert conversion.decode(record(None)) is None
    assert conversion.encode(SourceRecord({}, {}, "orders", None, None)) is None


# --- the worker's topics ---


@example("c", {"filename": "/in/\udcff.txt"}, {"position": 7, "\udcff": "\udcff"})
@given(st.text(min_size=1), st.dictionaries(st.text(), JSON, max_size=3), st.dictionaries(st.text(), JSON, max_size=3))
def test_offset_record_is_read_as_it_was_written(name: str, partition: dict[str, Any], offset: dict[str, Any]) -> None:
    key, value = offset_key(name, partition), offset_value(offset)
    assert parse_offset(key, value) == (name, partition, offset)
    assert parse_offset(key, None) == (name, partition, None)


def test_offset_key_is_that_of_kafka_connect() -> None:
    assert offset_key("lines", {"filename": "a.txt"}) == b'["lines",{"filename":"a.txt"}]'


@pytest.mark.parametrize("key", [b"", b"x", b"[1, 2]", b'["a"]', b'{"a": 1}', b'["a", "b"]'])
def test_record_that_is_no_offset_is_skipped(key: bytes) -> None:
    assert parse_offset(key, b"{}") is None


def test_stored_offsets_ignore_the_order_of_names() -> None:
    stored = StoredOffsets({partition_text({"a": 1, "b": 2}): {"position": 5}})
    assert stored.of({"b": 2, "a": 1}) == {"position": 5}
    stored.set({"b": 2, "a": 1}, None)
    assert stored.items() == []


def test_configurations_are_read_as_their_records_leave_them() -> None:
    stored = StoredConnectors()
    records = [
        config_record("a", {"topics": "x"}),
        target_record("a", Target.STOPPED),
        config_record("b", {"topics": "y"}),
        target_record("b", Target.PAUSED),
        config_record("c", {"topics": "z"}),
        config_record("c", None),
        target_record("b", Target.STARTED),
        (b"session-key", b'{"key": "x"}'),
        (b"connector-d", b'{"properties": {"topics": "w", "key.converter": null}}'),
        (b"task-a-0", b"not JSON"),
    ]
    for key, value in records:
        stored.apply(key, value)
    assert stored.configs == {"a": {"topics": "x"}, "b": {"topics": "y"}, "d": {"topics": "w"}}
    assert stored.targets == {"a": Target.STOPPED}


def test_stopped_connector_is_paused_for_workers_before_kafka_3_5() -> None:
    _, value = target_record("a", Target.STOPPED)
    assert json.loads(value or b"") == {"state": "PAUSED", "state.v2": "STOPPED"}
