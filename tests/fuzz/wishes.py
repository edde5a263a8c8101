"""Requests that are right by the schema and strange by their values: names that exist and names that cannot, limits and
what lies beyond them. Everything follows from the seed.
"""

from __future__ import annotations

import functools
import importlib
from collections import deque
from random import Random
from typing import Any

from odradek.records.builder import BatchFields, encode_batch
from odradek.wire.definitions import Field, Message, Struct, load_all
from odradek.wire.primitives import ZERO_UUID, EncodeError

EDGES = {
    "int8": (-128, -1, 0, 1, 2, 3, 4, 8, 16, 32, 127),
    "int16": (-(1 << 15), -1, 0, 1, 2, (1 << 15) - 1),
    "uint16": (0, 1, (1 << 16) - 1),
    "int32": (-(1 << 31), -2, -1, 0, 1, 2, 3, 1000, (1 << 31) - 1),
    "uint32": (0, 1, (1 << 32) - 1),
    "int64": (-(1 << 63), -5, -4, -3, -2, -1, 0, 1, 2, 1000, 1 << 32, (1 << 63) - 1),
}
ODD_TEXTS = (
    "",
    ".",
    "..",
    "a/b",
    "\0",
    "é" * 300,
    "x" * 249,
    "x" * 250,
    "{}",
    "<default>",
    "0",
    "-1",
    "1",
    "%",
    "[",
    "*",
)
WORDS = (
    *("range", "uniform", "consumer", "classic", "share", "simple", "Stable", "Empty", "user", "client-id", "ip"),
    *(
        "producer_byte_rate",
        "connection_creation_rate",
        "retention.ms",
        "cleanup.policy",
        "compact",
        "message.max.bytes",
    ),
    *("transaction.version", "group.version", "__cluster_metadata", "__consumer_offsets", "__transaction_state"),
    *("root", "odradek", "interval.ms", "consumer.session.timeout.ms", "PLAINTEXT", "^t.*", "(", "SCRAM-SHA-256"),
)


@functools.cache
def request_shape(key: int) -> tuple[str, Message]:
    """The module and the definition of the requests of an API."""
    for module, messages in load_all().items():
        for message in messages:
            if message.key == key and message.name.endswith("Request"):
                return module, message
    raise KeyError(key)


class Wisher:
    """Makes requests for a broker with these topics (names and ids) and with whatever earlier requests have made."""

    def __init__(self, random: Random, topics: list[tuple[str, bytes]]) -> None:
        self._random = random
        self._names = [name for name, _ in topics]
        self._ids = [identifier for _, identifier in topics]
        self._groups = [f"group-{number}" for number in range(4)]
        self._heard: dict[str, deque[Any]] = {}

    def learn(self, message: Any) -> None:
        """Use what a broker has said (ids of members, producers and sessions, epochs, ...) in later requests."""
        for name in getattr(message, "__slots__", ()):
            value = getattr(message, name)
            for one in value if isinstance(value, list) else (value,):
                if hasattr(one, "__slots__"):
                    self.learn(one)
                elif one is not None and name not in ("error_code", "error_message", "throttle_time_ms"):
                    self._heard.setdefault(name, deque(maxlen=20)).append(one)

    def request(self, key: int, version: int) -> tuple[Any, bytes]:
        """A request and its body. Values that a version cannot carry are drawn again."""
        module, message = request_shape(key)
        while True:
            made = self._struct(module, message, version, message.root)
            body = bytearray()
            try:
                made.encode(body, version)
            except (EncodeError, TypeError, AttributeError):
                # What was heard under the same name may be of another type.
                continue
            return made, bytes(body)

    def _struct(self, module: str, message: Message, version: int, shape: Struct) -> Any:
        made = getattr(importlib.import_module(f"odradek.wire.messages.{module}"), message.class_name(shape.name))()
        for field in shape.fields:
            if version not in field.versions:
                continue
            if version in field.nullable and self._random.random() < 0.2:
                setattr(made, field.attribute, None)
                continue
            value = functools.partial(self._value, module, message, version, field)
            setattr(
                made,
                field.attribute,
                [value() for _ in range(self._random.choice((0, 1, 1, 1, 2, 3)))] if field.array else value(),
            )
        return made

    def _value(self, module: str, message: Message, version: int, field: Field) -> Any:
        random = self._random
        if field.is_struct:
            return self._struct(module, message, version, message.struct(field.element))
        heard = self._heard.get(field.attribute)
        if heard and random.random() < 0.4:
            return random.choice(heard)
        if field.element in EDGES:
            return self._number(field)
        match field.element:
            case "bool":
                return random.random() < 0.5
            case "float64":
                return random.choice((0.0, -1.0, 0.5, 5.0, 1e300, float("inf"), float("nan")))
            case "uuid":
                return random.choice((*self._ids, ZERO_UUID, random.randbytes(16)))
            case "string":
                return self._text(field)
            case "records":
                return self._records()
        return random.choice((b"", random.randbytes(random.randrange(200)), b"\0\0\0\0\0\1\0\1t\0\0\0\1\0\0\0\0"))

    def _number(self, field: Field) -> int:
        random = self._random
        name = field.name.lower()
        if name == "replicaid":
            return random.choice((-1, -1, -1, -2, 0, 1))
        if "wait" in name or "timeout" in name:
            # The test must not wait for a fuzzed deadline.
            return random.choice((-1, 0, 1, 50))
        if "partition" in name or name in ("indexes", "count"):
            return random.choice((0, 0, 1, 1, 2, -1, EDGES[field.element][-1]))
        return random.choice(EDGES[field.element])

    def _text(self, field: Field) -> str:
        random = self._random
        name = field.name.lower()
        if random.random() < 0.15:
            return random.choice(ODD_TEXTS)
        if random.random() < 0.15:
            return random.choice(WORDS)
        if "group" in name or name == "key":
            return random.choice(self._groups)
        if "topic" in name or name == "name":
            return random.choice(self._names)
        if "transactional" in name:
            return random.choice(("tx-1", "tx-2"))
        return random.choice((*WORDS, *self._names))

    def _records(self) -> Any:
        random = self._random
        fields = BatchFields(
            producer_id=random.choice((-1, -1, 0, 1, 1 << 62)),
            producer_epoch=random.choice((-1, 0, 1, 32767)),
            base_sequence=random.choice((-1, 0, 1, (1 << 31) - 1)),
            is_transactional=random.random() < 0.2,
        )
        records = [
            (random.choice((0, -1, 1 << 40, (1 << 62))), random.choice((None, b"k")), b"v" * random.randrange(50), ())
            for _ in range(random.randrange(1, 4))
        ]
        batch = bytearray(encode_batch(records, fields))
        if random.random() < 0.4:
            batch[random.randrange(len(batch))] ^= 1 << random.randrange(8)
        return memoryview(bytes(batch) * random.choice((1, 1, 2)))[: random.choice((None, None, len(batch) - 3))]
