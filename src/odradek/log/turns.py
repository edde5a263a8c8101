"""How jobs pass over all partitions of a broker while others are served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import Final, TypeVar

T = TypeVar("T")

AT_ONCE: Final = 1_000
"""So many partitions or files in a turn of the event loop: some ms."""

TURN_SECONDS: Final = 0.004
"""After so long a job lets others be served, if what it does to a partition takes long on a busy disk."""


async def in_turns(items: Iterable[T]) -> AsyncIterator[list[T]]:
    """The items, a thousand at a time; between two such lists others are served."""
    rest = iter(items)
    while several := list(islice(rest, AT_ONCE)):
        yield several
        if len(several) == AT_ONCE:
            await asyncio.sleep(0)
