"""Messages to test with, made from the schema."""

from __future__ import annotations

import contextlib
import functools
import importlib
import struct
import tracemalloc
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from hypothesis import strategies as st

from odradek.wire.definitions import Field, Message, Struct, load_all
from odradek.wire.primitives import DecodeError

RANGES = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}


class Case(NamedTuple):
    """A message of the schema and its class."""

    module: str
    message: Message
    kind: Any

    @property
    def name(self) -> str:
        return self.message.name

    @property
    def versions(self) -> range:
        return range(self.message.versions.low, self.message.versions.high + 1)

    def struct_class(self, struct: str) -> Any:
        return getattr(importlib.import_module(self.kind.__module__), self.message.class_name(struct))


@functools.cache
def cases() -> list[Case]:
    return [
        Case(module, message, getattr(importlib.import_module(f"odradek.wire.messages.{module}"), message.name))
        for module, messages in load_all().items()
        for message in messages
    ]


def case(name: str) -> Case:
    return next(each for each in cases() if each.name == name)


def encoded(message: Any, version: int) -> bytes:
    out = bytearray()
    message.encode(out, version)
    return bytes(out)


def decoded(kind: Any, data: bytes, version: int) -> Any:
    """The message that fills `data` exactly."""
    message, position = kind.decode(memoryview(data), 0, version)
    assert position == len(data), f"{len(data) - position} bytes left"
    return message


# --- with hypothesis: any value ---

_text = st.one_of(st.text(max_size=8), st.integers(100, 400).map(lambda n: "é" * n))
_binary = st.one_of(st.binary(max_size=8), st.integers(120, 20_000).map(lambda n: b"\x01" * n))


def _element(each: Case, field: Field) -> st.SearchStrategy[Any]:
    if field.is_struct:
        return structs(each, each.message.struct(field.element))
    if field.element in RANGES:
        return st.integers(*RANGES[field.element])
    return {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "uuid": st.binary(min_size=16, max_size=16),
        "string": _text,
        "bytes": _binary,
        "records": _binary,
    }[field.element]


def structs(each: Case, shape: Struct) -> st.SearchStrategy[Any]:
    """Objects of a struct with all fields set, whatever their versions."""
    parts: dict[str, st.SearchStrategy[Any]] = {}
    for field in shape.fields:
        value = _element(each, field)
        if field.array:
            value = st.lists(value, max_size=3)
        parts[field.attribute] = st.none() | value if field.nullable else value
    return st.builds(each.struct_class(shape.name), **parts)


def messages(each: Case) -> st.SearchStrategy[Any]:
    return structs(each, each.message.root)


def projected(each: Case, value: Any, version: int, shape: Struct | None = None) -> Any:
    """`value` with only what `version` can carry."""
    shape = shape or each.message.root
    result = each.struct_class(shape.name)()
    for field in shape.fields:
        if version not in field.versions:
            continue
        item = getattr(value, field.attribute)
        if item is None and version not in field.nullable:
            continue_with = [] if field.array else {"string": "", "bytes": b"", "records": b""}.get(field.element)
            item = each.struct_class(field.element)() if continue_with is None else continue_with
        elif item is not None and field.is_struct:
            inner = each.message.struct(field.element)
            if field.array:
                item = [projected(each, one, version, inner) for one in item]
            else:
                item = projected(each, item, version, inner)
        setattr(result, field.attribute, item)
    return result


# --- with a seed: plausible values that stricter peers accept ---


def plausible(each: Case, version: int, random: Random, shape: Struct | None = None) -> Any:
    """A message with values of the kind that real ones carry, nothing null that has another value."""
    shape = shape or each.message.root
    result = each.struct_class(shape.name)()
    for field in shape.fields:
        if version in field.versions:
            make = functools.partial(_plausible_value, each, field, version, random)
            value = [make() for _ in range(random.randint(1, 3))] if field.array else make()
            setattr(result, field.attribute, value)
    return result


def _plausible_value(each: Case, field: Field, version: int, random: Random) -> Any:
    if field.is_struct:
        return plausible(each, version, random, each.message.struct(field.element))
    if field.element == "int8" or field.name.endswith("ErrorCode"):
        return random.randint(1, 50)
    if field.element in RANGES:
        return random.randint(1, min(RANGES[field.element][1], 1_000_000))
    match field.element:
        case "bool":
            return random.random() < 0.5
        case "float64":
            return random.randint(0, 1000) / 8
        case "uuid":
            return random.randbytes(16)
        case "string":
            return "".join(random.choices("abcdefghijkl-.é", k=random.choice((0, 3, 12, 150))))
        case _:
            return random.randbytes(random.choice((0, 5, 200)))


def mutations(data: bytes, random: Random, count: int) -> list[bytes]:
    """Damaged copies of a valid message: cut, overwritten, stretched, and plain noise."""
    result = []
    for _ in range(count):
        copy = bytearray(data)
        at = random.randrange(len(copy) + 1)
        match random.randrange(6):
            case 0:
                copy = copy[:at]
            case 1:
                copy[at : at + 1] = random.randbytes(1)
            case 2:
                copy[at : at + 4] = struct.pack(">i", random.choice((-1, -2, 1 << 20, (1 << 31) - 1, -(1 << 31))))
            case 3:
                copy[at : at + 5] = random.choice((b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff", b"\x80" * 5))
            case 4:
                copy[at:at] = random.randbytes(random.randint(1, 8))
            case _:
                copy = bytearray(random.randbytes(len(copy)))
        result.append(bytes(copy))
    return result


def peak_bytes(decode: Callable[[memoryview, int, int], Any], data: bytes, version: int, allowed: int) -> int:
    """Bytes allocated at most while decoding what may be damaged; tracemalloc must run.

    Other threads of this process are counted, too, those of clients that outlive their tests for one. So what is more
    than allowed is looked at again: the decoder itself takes it each time.
    """
    view = memoryview(data)
    for _ in range(5):
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        with contextlib.suppress(DecodeError):
            decode(view, 0, version)
        peak = tracemalloc.get_traced_memory()[1] - before
        if peak < allowed:
            break
    return peak


def absurd_lengths(data: bytes) -> list[bytes]:
    """Each position of a message overwritten with the greatest lengths."""
    lengths = (b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\x80\x80\x80\x40", b"\x7f\xff")
    return [data[:at] + length + data[at + len(length) :] for at in range(len(data)) for length in lengths]
