"""Full collections of garbage: never by themselves, and only of a process that is idle."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Iterator

import pytest

from odradek.cli.serving import garbage
from odradek.cli.serving.garbage import IdleCollections, collect_in_small_steps


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


def test_no_number_of_middle_collections_brings_on_a_full_one() -> None:
    full_ones = gc.get_stats()[2]["collections"]
    kept = [[number] for number in range(garbage.YOUNG * garbage.MIDDLE * 20)]
    assert gc.get_count()[2] > 10, "Python would have made a full one"
    assert gc.get_stats()[2]["collections"] == full_ones
    assert kept


def test_idle_process_collects_old_cycles_and_looks_at_the_rest_no_more() -> None:
    async def main() -> None:
        collections = IdleCollections(asyncio.get_running_loop())
        frozen, found = gc.get_freeze_count(), old_cycle()
        kept = Cycle()
        collections.on_idle()
        assert found() is None
        assert gc.get_freeze_count() > 0
        assert gc.get_freeze_count() != frozen
        assert not any(each is kept for each in gc.get_objects())
        collections.close()

    asyncio.run(main())


def test_idle_process_without_middle_collections_is_left_alone() -> None:
    async def main() -> None:
        collections = IdleCollections(asyncio.get_running_loop())
        found = old_cycle()
        collections.on_idle()
        assert found() is None
        full_ones = gc.get_stats()[2]["collections"]
        collections.on_idle()
        assert gc.get_stats()[2]["collections"] == full_ones
        collections.close()

    asyncio.run(main())


def test_what_has_grown_much_is_kept_without_a_look_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        collections = IdleCollections(asyncio.get_running_loop())
        monkeypatch.setattr(garbage, "_MOST_BLOCKS", 1_000)
        found = old_cycle()
        kept = [[number] for number in range(2_000)]
        collections.on_idle()
        assert found() is not None
        assert not any(each is kept for each in gc.get_objects())
        collections.close()

    asyncio.run(main())


@pytest.mark.parametrize(("is_idle", "collects"), [(True, True), (False, False)])
def test_busy_process_makes_no_full_collection(monkeypatch: pytest.MonkeyPatch, is_idle: bool, collects: bool) -> None:
    """The share of the processor decides: of one tick in ten seconds, or of all of them."""
    used = 0.0

    def process_time() -> float:
        nonlocal used
        used += 0.0 if is_idle else garbage.LOOK_SECONDS
        return used

    monkeypatch.setattr(time, "process_time", process_time)

    async def main() -> None:
        collections = IdleCollections(asyncio.get_running_loop())
        found = old_cycle()
        collections._look()
        assert (found() is None) is collects
        collections.close()

    asyncio.run(main())
