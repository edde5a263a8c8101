"""Work that takes simulated time: clocks, other steps of the process, and the limit of a step."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.sim.checkers.history import Violation
from odradek.sim.planted.broker_bugs import BUGS, planted
from odradek.sim.run import run_seed
from odradek.sim.world.costs import COSTS, LIMIT_SECONDS, SLOWNESS, Charges, charged
from odradek.sim.world.hosts import SimulatedClock
from odradek.sim.world.loop import Process, SimulatedLoop, new_loop


def paying_loop(*, serves: bool) -> tuple[SimulatedLoop, Charges]:
    loop = new_loop("costs")
    loop.charges = charges = Charges(loop, lambda _: serves)
    return loop, charges


def run_in_process(loop: SimulatedLoop, coroutine: Any) -> Any:
    return loop.run_until_complete(loop.create_task(coroutine, context=Process("b1.1", "b1").context))


def test_work_advances_the_clock_within_its_step() -> None:
    loop, charges = paying_loop(serves=True)
    clock = SimulatedClock(loop)

    async def work() -> float:
        before = clock.monotonic()
        charges.add("work", 3, 100)
        return clock.monotonic() - before

    assert run_in_process(loop, work()) == pytest.approx(300e-6 * SLOWNESS)


def test_process_does_nothing_else_until_its_work_is_done() -> None:
    loop, charges = paying_loop(serves=True)

    async def work() -> float:
        charges.add("work", 1, 1000)
        began = loop.time()
        await asyncio.sleep(0)
        return loop.time() - began

    assert run_in_process(loop, work()) >= 1000e-6 * SLOWNESS


def test_step_above_the_limit_is_a_violation() -> None:
    loop, charges = paying_loop(serves=True)

    async def work() -> None:
        charges.add("work", 1, LIMIT_SECONDS * 1e6 / SLOWNESS + 1)
        await asyncio.sleep(1)

    with pytest.raises(Violation, match="work"):
        run_in_process(loop, work())


def test_broker_that_does_not_serve_may_take_its_time() -> None:
    loop, charges = paying_loop(serves=False)

    async def work() -> None:
        charges.add("work", 1, LIMIT_SECONDS * 1e6)
        await asyncio.sleep(1)

    run_in_process(loop, work())
    assert charges.longest == (0.0, "")


def test_thread_costs_the_loop_nothing() -> None:
    loop, charges = paying_loop(serves=True)

    async def work() -> None:
        loop.off_loop(charges.add, "work", 1, LIMIT_SECONDS * 1e6)
        assert loop.spent == 0.0

    run_in_process(loop, work())


def test_charged_functions_are_put_back() -> None:
    loop = new_loop("costs")
    from odradek.metadata.nodes import PartitionNode

    before = PartitionNode.__dict__["encode"]
    with charged(loop, lambda _: True):
        assert PartitionNode.__dict__["encode"] is not before
    assert PartitionNode.__dict__["encode"] is before
    assert len({cost.work for cost in COSTS}) == len(COSTS)


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.profile in ("holds", "slow")], ids=lambda bug: bug.name)
def test_planted_hold_is_found(bug: Any) -> None:
    expected = "a connection gets its turn" if bug.name == "turn never comes" else "no step holds the event loop"
    with planted(bug):
        outcomes = (run_seed(seed, bug.profile, safety_seconds=12) for seed in range(1, 9))
        assert any(outcome.violation == expected for outcome in outcomes)


def test_waits_for_a_slow_disk_are_charged() -> None:
    disk: Any = SimpleNamespace(volume=SimpleNamespace(faults=SimpleNamespace(slow=1.0)), _jobs={"a": [1], "b": []})
    waits = next(cost.units for cost in COSTS if cost.work == "waits for a slow disk")
    assert [waits(disk, lane) for lane in ("a", "b")] == [1, 0]
    disk.volume.faults.slow = 0.0
    assert waits(disk, "a") == 0


def test_only_new_directories_are_charged() -> None:
    directories: Any = SimpleNamespace(directory_of=lambda *place: {("t", 0): "d"}.get(place))
    created = next(cost.units for cost in COSTS if cost.work == "directories created")
    assert [created(directories, "t", partition, b"id") for partition in (0, 1)] == [0, 1]


@pytest.mark.parametrize(("slow", "later", "charged_for"), [(True, False, 1), (True, True, 0), (False, False, 0)])
def test_segments_that_are_begun_on_a_slow_disk_are_charged(slow: bool, later: bool, charged_for: int) -> None:
    owner = SimpleNamespace(writer_of=lambda _directory: SimpleNamespace(slow=slow))
    log: Any = SimpleNamespace(_environment=SimpleNamespace(owner=owner), directory="d")
    begun = next(cost.units for cost in COSTS if cost.work == "segments begun on a slow disk")
    assert begun(log, 7, b"", later=later) == charged_for
