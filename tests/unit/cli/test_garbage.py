"""Full collections of garbage: never by themselves, and only when a process has time for them."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Iterator

import pytest

from odradek.cli.serving import garbage
from odradek.cli.serving.garbage import LateCollections, collect_in_small_steps


class Cycle:
    """Garbage that reference counts do not free, once its variable is gone."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def collections_of_the_process() -> Iterator[None]:
    thresholds = gc.get_threshold()
    collect_in_small_steps()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        gc.collect()


def old_cycle() -> weakref.ref[Cycle]:
    """A garbage cycle that has outlived the young generations, and full collections that are due."""
    cycle = Cycle()
    for _ in range(garbage._MIDDLE_ONES + 1):
        gc.collect(1)
    found = weakref.ref(cycle)
    del cycle
    gc.collect(1)
    assert found() is not None
    return found


def is_looked_at(thing: object) -> bool:
    """Whether the next collection would look at the object."""
    return any(each is thing for each in gc.get_objects())


def test_no_number_of_middle_collections_brings_on_a_full_one() -> None:
    full_ones = gc.get_stats()[2]["collections"]
    kept = [[number] for number in range(garbage.YOUNG * garbage.MIDDLE * 20)]
    assert gc.get_count()[2] > 10, "Python would have made a full one"
    assert gc.get_stats()[2]["collections"] == full_ones
    assert kept


@pytest.mark.parametrize("is_idle", [True, False])
def test_few_new_objects_are_collected_and_the_others_kept(is_idle: bool) -> None:
    async def main() -> None:
        collections = LateCollections(asyncio.get_running_loop())
        found, kept = old_cycle(), Cycle()
        collections.look(is_idle=is_idle)
        assert found() is None
        assert not is_looked_at(kept)
        collections.close()

    asyncio.run(main())


def test_process_without_middle_collections_is_left_alone() -> None:
    async def main() -> None:
        collections = LateCollections(asyncio.get_running_loop())
        old_cycle()
        collections.look(is_idle=True)
        full_ones = gc.get_stats()[2]["collections"]
        collections.look(is_idle=True)
        assert gc.get_stats()[2]["collections"] == full_ones
        collections.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "is_idle", "is_collected", "is_kept"),
    [
        ("FEW_BLOCKS", True, True, True),
        ("FEW_BLOCKS", False, False, False),
        ("MANY_BLOCKS", True, False, True),
        ("MANY_BLOCKS", False, False, False),
        ("MOST_BLOCKS", False, True, True),
    ],
)
def test_many_new_objects_are_collected_by_an_idle_process_only(
    monkeypatch: pytest.MonkeyPatch, name: str, is_idle: bool, is_collected: bool, is_kept: bool
) -> None:
    """Where there are more than the name says."""

    async def main() -> None:
        collections = LateCollections(asyncio.get_running_loop())
        for each in ("FEW_BLOCKS", "MANY_BLOCKS", "MOST_BLOCKS"):
            monkeypatch.setattr(garbage, each, 1_000)
            if each == name:
                break
        found, kept = old_cycle(), [[number] for number in range(3_000)]
        collections.look(is_idle=is_idle)
        assert (found() is None) is is_collected
        assert is_looked_at(kept) is not is_kept
        collections.close()

    asyncio.run(main())


@pytest.mark.parametrize("is_idle", [True, False])
def test_process_is_idle_by_its_share_of_the_processor(monkeypatch: pytest.MonkeyPatch, is_idle: bool) -> None:
    used = 0.0

    def process_time() -> float:
        nonlocal used
        used += 0.0 if is_idle else garbage.LOOK_SECONDS
        return used

    monkeypatch.setattr(time, "process_time", process_time)
    looks = []
    monkeypatch.setattr(LateCollections, "look", lambda _self, *, is_idle: looks.append(is_idle))

    async def main() -> None:
        collections = LateCollections(asyncio.get_running_loop())
        collections._look()
        collections.close()

    asyncio.run(main())
    assert looks == [is_idle]
