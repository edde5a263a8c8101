"""Randomness, as handed to everything that must be repeatable under a seed."""

from __future__ import annotations

import os
import random
from typing import Protocol


class Random(Protocol):
    """The few draws that a broker or client makes."""

    def random(self) -> float:
        """A float in [0, 1)."""
        ...

    def randrange(self, stop: int) -> int:
        """An int in [0, stop)."""
        ...

    def uuid(self) -> bytes:
        """Sixteen bytes of a version 4 UUID whose base64 form does not begin with '-'.

        Kafka's `Uuid.randomUuid` avoids the leading dash too: command-line tools mistake it for an option.
        """
        ...


def _uuid_from(raw: bytearray) -> bytes | None:
    raw[6] = (raw[6] & 0x0F) | 0x40
    raw[8] = (raw[8] & 0x3F) | 0x80
    # 62, in the first six bits, is the '-' of URL-safe base64; the two reserved UUIDs are all zero up to the last byte.
    return None if raw[0] >> 2 == 62 else bytes(raw)


class SystemRandom:
    """The operating system's randomness."""

    __slots__ = ("_source",)

    def __init__(self) -> None:
        self._source = random.SystemRandom()

    def random(self) -> float:
        """A number from 0 up to 1, without 1."""
        return self._source.random()

    def randrange(self, stop: int) -> int:
        """An integer from 0 up to `stop`, without it."""
        return self._source.randrange(stop)

    def uuid(self) -> bytes:
        """Sixteen bytes of a version 4 UUID whose base64 form does not begin with '-'."""
        while True:
            made = _uuid_from(bytearray(os.urandom(16)))
            if made is not None:
                return made


class SeededRandom:
    """A repeatable stream: one seed, one sequence."""

    __slots__ = ("_source",)

    def __init__(self, seed: str | int) -> None:
        self._source = random.Random(seed)

    def random(self) -> float:
        """The next number from 0 up to 1, without 1."""
        return self._source.random()

    def randrange(self, stop: int) -> int:
        """The next integer from 0 up to `stop`, without it."""
        return self._source.randrange(stop)

    def uuid(self) -> bytes:
        """The next version 4 UUID whose base64 form does not begin with '-'."""
        while True:
            made = _uuid_from(bytearray(self._source.randbytes(16)))
            if made is not None:
                return made
