"""Schemas of keys and values that are given by file, without a schema registry."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

AVRO: Final = "avro"
PROTOBUF: Final = "protobuf"
_RULE: Final = re.compile(r"(?P<topic>[^:#=]+)(?::(?P<part>key|value))?(?:#(?P<id>\d{1,10}))?=(?P<place>.+)")
_MESSAGE: Final = re.compile(r"(?P<file>.+):(?P<message>[A-Za-z_][\w.]*)")


class SchemaError(ValueError):
    """A schema or its rule cannot be read."""


class SchemaRule(NamedTuple):
    """A schema for the keys or values of topics; `topic` is a pattern with * and ?.

    With a schema id, it is the one that records of that id were written with; without, it is for all other records.
    `text` is Avro's JSON, or a descriptor set in base64, whose message is `message`.
    """

    topic: str
    part: str
    schema_id: int | None
    format: str
    text: str
    message: str = ""

    @classmethod
    def parse(cls, rule: str) -> Self:
        """`TOPIC[:key|:value][#ID]=FILE.avsc`, or `…=FILE:MESSAGE` for a descriptor set. Raises SchemaError."""
        found = _RULE.fullmatch(rule.strip())
        if found is None:
            raise SchemaError(f"{rule}: TOPIC=FILE.avsc or TOPIC=DESCRIPTORS:MESSAGE expected")
        topic, part = found["topic"], found["part"] or "value"
        schema_id = None if found["id"] is None else int(found["id"])
        place = found["place"]
        try:
            if place.endswith(".avsc"):
                made = cls(topic, part, schema_id, AVRO, Path(place).read_text(encoding="utf-8"))
            else:
                named = _MESSAGE.fullmatch(place)
                if named is None:
                    raise SchemaError(f"{rule}: FILE.avsc or DESCRIPTORS:MESSAGE expected")
                data = base64.b64encode(Path(named["file"]).read_bytes()).decode()
                made = cls(topic, part, schema_id, PROTOBUF, data, named["message"])
        except UnicodeDecodeError as error:
            raise SchemaError(f"{rule}: {error}") from error
        except OSError as error:
            raise SchemaError(f"{rule}: {error.strerror or error}") from error
        made.check(rule)
        return made

    def check(self, rule: str) -> None:
        """Raise SchemaError unless the schema can be compiled."""
        from odradek.console.messages.schema_worker import compiled

        try:
            compiled(self.document())
        except Exception as error:
            raise SchemaError(f"{rule}: the schema cannot be read: {str(error) or type(error).__name__}") from error

    def document(self) -> dict[str, Any]:
        """The rule for the process that decodes."""
        return {
            "part": self.part, "id": self.schema_id, "format": self.format, "text": self.text, "message": self.message,
        }  # fmt: skip


class Schemas:
    """The schemas of a console."""

    __slots__ = ("_rules",)

    def __init__(self, rules: Iterable[SchemaRule] = ()) -> None:
        self._rules = tuple(rules)

    @classmethod
    def parse(cls, rules: Iterable[str]) -> Self:
        """Schemas from options. Raises SchemaError."""
        return cls(SchemaRule.parse(each) for each in rules)

    def for_topic(self, topic: str) -> bytes | None:
        """The first frame of the process that decodes records of a topic; None if it has no schemas."""
        rules = [each.document() for each in self._rules if fnmatchcase(topic, each.topic)]
        return json.dumps(rules).encode() if rules else None
