"""Serializers of the package: Java's bytes, types checked, dataclasses both ways."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from odradek.client.errors import ConfigError, SerializationError
from odradek.client.serializers import (
    DataclassDeserializer,
    DataclassSerializer,
    DoubleDeserializer,
    DoubleSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    JsonDeserializer,
    JsonSerializer,
    LongDeserializer,
    LongSerializer,
    StringDeserializer,
    StringSerializer,
    takes_topic,
)


@dataclass
class Line:
    article: str
    count: int = 1


@dataclass
class Order:
    number: int
    lines: list[Line] = field(default_factory=list)
    first: Line | None = None
    by_name: dict[str, Line] = field(default_factory=dict)
    pair: tuple[Line, ...] = ()


@pytest.mark.parametrize(
    ("serializer", "deserializer", "value", "data"),
    [
        (StringSerializer(), StringDeserializer(), "grüße", "grüße".encode()),
        (StringSerializer("utf-16-le"), StringDeserializer("utf-16-le"), "a", b"a\0"),
        (IntegerSerializer(), IntegerDeserializer(), -2, b"\xff\xff\xff\xfe"),
        (LongSerializer(), LongDeserializer(), 1 << 40, b"\0\0\1\0\0\0\0\0"),
        (DoubleSerializer(), DoubleDeserializer(), 1.5, b"?\xf8\0\0\0\0\0\0"),
        (JsonSerializer(), JsonDeserializer(), {"a": [1, "ü"]}, '{"a":[1,"ü"]}'.encode()),
    ],
)
def test_values_become_javas_bytes_and_come_back(serializer: Any, deserializer: Any, value: Any, data: bytes) -> None:
    assert serializer(value) == data
    assert deserializer(data) == value


def test_nested_dataclasses_come_back() -> None:
    line = Line("tea", 2)
    order = Order(7, [line], line, {"tea": line}, (line, Line("cup")))
    assert DataclassDeserializer(Order)(DataclassSerializer(Order)(order)) == order


@pytest.mark.parametrize(
    ("function", "value", "message"),
    [
        (StringSerializer(), b"x", "expected str, got bytes"),
        (IntegerSerializer(), 1 << 31, "expected an integer of 32 bits, got int"),
        (LongSerializer(), "1", "expected an integer of 64 bits, got str"),
        (LongDeserializer(), b"1", "expected 8 bytes of an integer of 64 bits, got 1"),
        (JsonSerializer(), {"a": object()}, "JSON cannot carry dict"),
        (JsonDeserializer(), b"{", "not JSON"),
        (JsonDeserializer(), b"[" * 200_000, "not JSON"),
        (DataclassDeserializer(Line), b"[" * 200_000, "not JSON"),
        (DataclassSerializer(Order), Line("x"), "expected Order, got Line"),
        (DataclassDeserializer(Line), b"[]", "expected the fields of Line, got list"),
        (DataclassDeserializer(Line), b'{"articel": "x"}', "Line: .*articel"),
        (DataclassDeserializer(Line), b"x", "not JSON"),
    ],
)
def test_what_cannot_be_converted_is_named(function: Any, value: Any, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        function(value)


def test_classes_are_rejected_where_instances_are_needed() -> None:
    with pytest.raises(ConfigError, match=r"pass an instance, StringSerializer\(\.\.\.\)"):
        takes_topic("value_serializer", StringSerializer)
    with pytest.raises(ConfigError, match="expected a dataclass"):
        DataclassSerializer(int)
