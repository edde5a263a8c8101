"""Work that takes simulated time: clocks, other steps of the process, and the limit of a step."""

from __future__ import annotations

import asyncio
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


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.profile == "holds"], ids=lambda bug: bug.name)
def test_planted_hold_is_found(bug: Any) -> None:
    with planted(bug):
        outcomes = (run_seed(seed, "holds", safety_seconds=12) for seed in range(1, 5))
        assert any(outcome.violation == "no step holds the event loop" for outcome in outcomes)
