"""Records of coordinators and control batches against what Apache Kafka 4.3's own classes wrote and say of it in JSON.

`apache_records.txt` has lines of: message, version, bytes in hexadecimal, JSON of Apache's converter.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from odradek.wire.definitions import Struct
from tests.unit.wire.samples import Case, case, cases, decoded, encoded

LINES = [line.split(" ", 3) for line in (Path(__file__).parent / "apache_records.txt").read_text("utf-8").splitlines()]


def _from_json(element: str, value: Any) -> Any:
    if element == "uuid":
        return base64.urlsafe_b64decode(value + "==")
    if element in ("bytes", "records"):
        return base64.b64decode(value)
    return value


def _same(each: Case, shape: Struct, ours: Any, said: dict[str, Any], version: int) -> None:
    for field in shape.fields:
        name = field.name[0].lower() + field.name[1:]
        if version not in field.versions or name not in said:
            # Apache leaves out tagged fields that hold their default.
            assert getattr(ours, field.attribute) == getattr(type(ours)(), field.attribute)
            continue
        our_value, value = getattr(ours, field.attribute), said[name]
        if value is None or our_value is None:
            assert our_value is value, name
            continue
        our_items, items = (our_value, value) if field.array else ([our_value], [value])
        for our_item, item in zip(our_items, items, strict=True):
            if field.is_struct:
                _same(each, each.message.struct(field.element), our_item, item, version)
            else:
                assert our_item == _from_json(field.element, item), name


def test_all_records_are_there() -> None:
    wanted = {(each.name, version) for each in cases() if each.message.key is None for version in each.versions}
    headers = {(name, version) for name, version in wanted if name in ("RequestHeader", "ResponseHeader")}
    assert {(name, int(version)) for name, version, _, _ in LINES} == wanted - headers


@pytest.mark.parametrize(("name", "version", "data", "said"), LINES, ids=[f"{line[0]}-{line[1]}" for line in LINES])
def test_records_are_apaches(name: str, version: str, data: str, said: str) -> None:
    ours = decoded(case(name).kind, bytes.fromhex(data), int(version))
    _same(case(name), case(name).message.root, ours, json.loads(said), int(version))
    assert encoded(ours, int(version)).hex() == data
