"""How jobs pass over many partitions."""

from __future__ import annotations

import asyncio

from odradek.log.turns import AT_ONCE, in_turns


def test_others_are_served_between_a_thousand_items_and_the_next() -> None:
    async def scenario() -> None:
        seen: list[object] = []

        def shape(several: list[int]) -> tuple[int, int]:
            seen.append(found := (several[0], len(several)))
            return found

        async def passes() -> list[tuple[int, int]]:
            return [shape(several) async for several in in_turns(range(2 * AT_ONCE + 1))]

        job = asyncio.ensure_future(passes())
        while not job.done():
            await asyncio.sleep(0)
            seen.append("served")
        assert job.result() == [(0, AT_ONCE), (AT_ONCE, AT_ONCE), (2 * AT_ONCE, 1)]
        first, second, third = (seen.index(each) for each in job.result())
        assert second - first == third - second == 2

    asyncio.run(scenario())


def test_few_items_come_at_once_and_none_give_nothing() -> None:
    async def scenario() -> None:
        assert [several async for several in in_turns("abc")] == [["a", "b", "c"]]
        assert [several async for several in in_turns("")] == []

    asyncio.run(scenario())
