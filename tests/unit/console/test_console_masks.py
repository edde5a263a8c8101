"""Masks replace parts of records before anything reads them."""

import json
from typing import Any

import pytest

from odradek.client.model import CREATE_TIME, ConsumerRecord
from odradek.console.messages.masks import MASK, MaskError, Masks


def masked(rule: str, value: Any = None, key: bytes | None = None, headers: Any = (), topic: str = "payments") -> Any:
    """A record after the rule; a value that is not bytes is written as JSON."""
    data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    return Masks.parse([rule]).apply(ConsumerRecord(topic, 0, 0, 0, CREATE_TIME, key, data, headers, 0))


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("card", {"card": 1, "name": "x"}, {"card": MASK, "name": "x"}),
        ("card.number", {"card": {"number": 1, "year": 2}}, {"card": {"number": MASK, "year": 2}}),
        ("cards.number", {"cards": [{"number": 1}, {"number": 2}]}, {"cards": [{"number": MASK}, {"number": MASK}]}),
        ("*.number", {"a": {"number": 1}, "b": {"number": 2}}, {"a": {"number": MASK}, "b": {"number": MASK}}),
        ("cards.1", {"cards": [1, 2]}, {"cards": [1, MASK]}),
        ("absent", {"card": 1}, {"card": 1}),
    ],
)
def test_mask_replaces_fields(path: str, value: Any, expected: Any) -> None:
    assert json.loads(masked(f"payments:value.{path}", value).value) == expected


@pytest.mark.parametrize("value", [b"\xff\x00", b"no json", b'"text"', b"17", b"[" * 100_000])
def test_value_that_is_no_document_is_hidden_completely(value: bytes) -> None:
    assert masked("payments:value.card", value).value == MASK.encode()


def test_mask_applies_to_key_and_headers() -> None:
    assert masked("payments:key", key=b"secret").key == MASK.encode()
    found = masked("payments:headers.auth*", headers=[("authorization", b"x"), ("trace", b"y")])
    assert found.headers == [("authorization", MASK.encode()), ("trace", b"y")]


def test_mask_leaves_other_topics_and_tombstones() -> None:
    assert masked("pay*:value", b"x", topic="orders").value == b"x"
    assert masked("pay*:value").value is None


@pytest.mark.parametrize("rule", ["", "payments", "payments:", "payments:body", ":value", "payments:value..x"])
def test_rule_that_cannot_be_read_is_rejected(rule: str) -> None:
    with pytest.raises(MaskError):
        Masks.parse([f"{rule} " if rule else "x"])
