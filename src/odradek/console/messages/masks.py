"""Masks: parts of records that the console never shows. They apply to the bytes, before everything else.

Filters, sorts, counts and downloads therefore see only masked records. Where a rule names a field of a value that is
not JSON, the complete value is hidden.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple, Self

from odradek.client.model import ConsumerRecord

MASK: Final = "***"
_PARTS: Final = ("key", "value", "headers")

RawRecord = ConsumerRecord[bytes | None, bytes | None]


class MaskError(ValueError):
    """A rule that cannot be read."""


class MaskRule(NamedTuple):
    """Hide a part of the records of topics. `topic` is a pattern with * and ?; an empty path means the complete part.

    A * in the path stands for all fields or elements. The path of `headers` is the name of a header.
    """

    topic: str
    part: str
    path: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """`TOPIC:PART[.FIELD…]`, for instance `payments*:value.card.number`. Raises MaskError."""
        topic, colon, place = text.strip().partition(":")
        part, *path = place.split(".")
        if not topic or not colon or part not in _PARTS or "" in path:
            raise MaskError(f"{text}: TOPIC:key, TOPIC:value.FIELD or TOPIC:headers.NAME expected")
        return cls(topic, part, (".".join(path),) if part == "headers" and path else tuple(path))


class Masks:
    """The rules of a console."""

    __slots__ = ("_rules",)

    def __init__(self, rules: Iterable[MaskRule] = ()) -> None:
        self._rules = tuple(rules)

    @classmethod
    def parse(cls, lines: Iterable[str]) -> Self:
        """Rules from lines; empty ones and those that begin with # are skipped. Raises MaskError."""
        return cls(MaskRule.parse(each) for each in lines if each.strip() and not each.lstrip().startswith("#"))

    def for_topic(self, topic: str) -> Sequence[MaskRule]:
        """The rules that apply to a topic."""
        return [each for each in self._rules if fnmatchcase(topic, each.topic)]

    def apply(self, record: RawRecord) -> RawRecord:
        """The record with its hidden parts replaced. Pure."""
        for rule in self.for_topic(record.topic):
            if rule.part == "headers":
                headers = [
                    (name, MASK.encode() if not rule.path or fnmatchcase(name, rule.path[0]) else value)
                    for name, value in record.headers
                ]
                record = record._replace(headers=headers)
            elif rule.part == "key":
                record = record._replace(key=_masked(record.key, rule.path))
            else:
                record = record._replace(value=_masked(record.value, rule.path))
        return record


def _masked(data: bytes | None, path: Sequence[str]) -> bytes | None:
    if data is None:
        return None
    if not path:
        return MASK.encode()
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return MASK.encode()
    if not isinstance(document, dict | list):
        return MASK.encode()
    return json.dumps(_replaced(document, path), ensure_ascii=False, separators=(",", ":")).encode(
        errors="backslashreplace"
    )


def _replaced(document: Any, path: Sequence[str]) -> Any:
    if not path:
        return MASK
    step, rest = path[0], path[1:]
    if isinstance(document, dict):
        return {key: _replaced(each, rest) if step in ("*", key) else each for key, each in document.items()}
    if isinstance(document, list):
        # A field's name applies to each element, as `orders.card` is meant for all orders.
        inner = rest if step == "*" else path
        return [
            _replaced(each, rest if step == str(at) else inner) if not step.isdecimal() or step == str(at) else each
            for at, each in enumerate(document)
        ]
    return document
