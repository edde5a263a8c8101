"""The generator on a schema that has every feature, also those no message uses yet."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from odradek.wire.definitions import Versions, load_messages, parse_versions, snake
from odradek.wire.emit import condition, emit_module
from odradek.wire.primitives import DecodeError, EncodeError
from tests.unit.wire.samples import decoded, encoded

SCHEMA = """
[OddRequest]
key = 4
versions = "1-6"
flexible = "4+"
fields = [
  { name = "Old", type = "int16", versions = "1-2" },
  { name = "Middle", type = "uint16", versions = "2-4", default = 7, ignorable = true },
  { name = "Twice", type = "string", nullable = "3-5", default = "x" },
  { name = "Blobs", type = "[]bytes", nullable = "5+" },
  { name = "Ids", type = "[]uuid", versions = "2+" },
  { name = "Flags", type = "[]bool" },
  { name = "Ratio", type = "float64", versions = "6+" },
  { name = "Inner", type = "Inner", versions = "3+", nullable = "5+" },
  { name = "Inners", type = "[]Inner", versions = "3+", nullable = "4+", default = "null" },
  { name = "Late", type = "[]int64", versions = "5+", tag = 0 },
  { name = "Mark", type = "Inner", versions = "4+", nullable = "4+", default = "null", tag = 3 },
  { name = "Class", type = "int8", versions = "5", tag = 1, default = -2 },
]

[OddRequest.structs]
Inner = [
  { name = "Size", type = "uint32", versions = "3+" },
  { name = "Key", type = "bytes", versions = "3+", nullable = "4+" },
]
"""


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    path = tmp_path_factory.mktemp("schema") / "odd.toml"
    path.write_text(SCHEMA)
    source = emit_module(load_messages(path))
    module = ModuleType("odd_messages")
    sys.modules[module.__name__] = module
    exec(compile(source, "odd.py", "exec"), module.__dict__)
    return module


def full(odd: Any, version: int) -> Any:
    inner = odd.OddRequestInner(4_000_000_000, b"k")
    value = odd.OddRequest(twice="y", blobs=[b"", b"blob"], flags=[True, False])
    if version <= 2:
        value.old = -3
    if 2 <= version <= 4:
        value.middle = 65_535
    if version >= 2:
        value.ids = [bytes(range(16)), bytes(16)]
    if version >= 3:
        value.inner = inner
        value.inners = [inner, inner]
    if version >= 4:
        value.mark = inner
    if version >= 5:
        value.late = [1, -1]
    if version == 5:
        value.class_ = 5
    if version >= 6:
        value.ratio = 0.1
    return value


@pytest.mark.parametrize("version", range(1, 7))
def test_all_versions_go_and_come(odd: Any, version: int) -> None:
    value = full(odd, version)
    assert decoded(odd.OddRequest, encoded(value, version), version) == value
    for end in range(len(encoded(value, version))):
        with pytest.raises(DecodeError):
            odd.OddRequest.decode(memoryview(encoded(value, version))[:end], 0, version)


def test_null_where_it_may_be(odd: Any) -> None:
    value = odd.OddRequest(twice=None, blobs=None, inner=None, inners=None)
    assert decoded(odd.OddRequest, encoded(value, 5), 5) == value
    for version, wrong in (
        (2, odd.OddRequest(twice=None)),
        (6, odd.OddRequest(twice=None)),
        (4, odd.OddRequest(blobs=None)),
        (4, odd.OddRequest(inner=None, inners=[])),
        (3, odd.OddRequest(inner=odd.OddRequestInner(), inners=None)),
        (3, odd.OddRequest(inner=odd.OddRequestInner(0, None), inners=[])),
    ):
        with pytest.raises(EncodeError):
            encoded(wrong, version)


def test_the_bytes_are_kafkas(odd: Any) -> None:
    first = bytes.fromhex("fffd 0001 79 00000002 00000000 00000004 626c6f62 00000002 01 00")
    assert encoded(full(odd, 1), 1) == first
    inner = "ee6b2800 02 6b 00"
    wanted = (
        f"02 79 03 01 05 626c6f62 03 {bytes(range(16)).hex()} {bytes(16).hex()} 03 01 00 3fb999999999999a 01 {inner}"
    )
    wanted += f" 03 {inner} {inner} 02 00 11 03 0000000000000001 ffffffffffffffff 03 08 01 {inner}"
    assert encoded(full(odd, 6), 6) == bytes.fromhex(wanted)


def test_values_without_a_place_are_rejected_if_they_may_not_be_lost(odd: Any) -> None:
    with pytest.raises(EncodeError, match="old"):
        encoded(odd.OddRequest(old=1), 3)
    assert decoded(odd.OddRequest, encoded(odd.OddRequest(middle=9), 1), 1).middle == 7
    with pytest.raises(EncodeError, match="late"):
        encoded(odd.OddRequest(late=[1]), 4)


def test_the_class_says_what_it_is(odd: Any) -> None:
    kind = odd.OddRequest
    assert (kind.API_KEY, kind.MIN_VERSION, kind.MAX_VERSION, kind.FLEXIBLE_FROM) == (4, 1, 6, 4)
    assert "class_" in kind.__slots__


@pytest.mark.parametrize(
    ("wanted", "known", "test"),
    [
        ((0, 9), (0, 9), None),
        ((3, 9), (0, 9), "version >= 3"),
        ((0, 3), (0, 9), "version <= 3"),
        ((3, 5), (0, 9), "3 <= version <= 5"),
        ((4, 4), (0, 9), "version == 4"),
    ],
)
def test_conditions_are_as_short_as_can_be(wanted: Any, known: Any, test: str | None) -> None:
    assert condition(Versions(*wanted), Versions(*known)) == test


def test_version_texts() -> None:
    assert parse_versions("3") == (3, 3)
    assert parse_versions("3-5") == (3, 5)
    assert parse_versions("3+").low == 3
    assert not parse_versions("none")


def test_names() -> None:
    assert snake("ThrottleTimeMs") == "throttle_time_ms"
    assert snake("V3AndBelowTopics") == "v3_and_below_topics"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('fields = [{ name = "A", type = "int8", nullabel = "0+" }]', "unknown keys"),
        ('fields = []\n[XRequest.structs]\nS = [{ name = "A", type = "int8" }]', "not used"),
    ],
)
def test_mistakes_in_a_schema_are_reported(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(f'[XRequest]\nkey = 1\nversions = "0"\nflexible = "none"\n{text}\n')
    with pytest.raises(ValueError, match=complaint):
        load_messages(path)
