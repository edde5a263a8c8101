"""What a controller reports of its quorum, its disk and its clock."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.observability.controller_health import ControllerHealth
from odradek.broker.observability.health import ClockSteps, HealthPages, Lifecycle, Problem, Severity
from odradek.broker.observability.quorum_metrics import QuorumFigures

HEALTHY = QuorumFigures("leader", 1, 1, 5, 0, 9, 5, 9, 3, 1, (), 1, 2.0, 3.0)


def problems(
    figures: QuorumFigures = HEALTHY, *, free: int = 50, total: int = 100, least: float = 0.05, ready: bool = True
) -> list[Problem]:
    lifecycle = Lifecycle("controller")
    lifecycle.set_ready(ready)
    disk: Any = SimpleNamespace(free_bytes=lambda path: (free, total) if path == "/meta" else (0, 1))
    clock: Any = SimpleNamespace(now_ms=lambda: 5_000.0, monotonic=lambda: 5.0)
    health = ControllerHealth(lifecycle, lambda: figures, "/meta", disk, ClockSteps(clock), lambda: least)
    return asyncio.run(health.problems())


def test_controller_that_follows_its_quorum_has_no_problem() -> None:
    assert problems() == []
    assert problems(HEALTHY._replace(high_watermark=1)) == []


def test_quorum_without_a_leader_is_critical() -> None:
    (found,) = problems(HEALTHY._replace(high_watermark=-1))
    assert (found.check, found.severity) == ("quorum", Severity.CRITICAL)


def test_absent_voters_are_named() -> None:
    (found,) = problems(HEALTHY._replace(absent=(2, 3)))
    assert (found.severity, found.number, found.examples) == (Severity.WARNING, 2, ("controller 2", "controller 3"))


@pytest.mark.parametrize(
    ("free", "total", "least", "is_problem"),
    [(4, 100, 0.05, True), (5, 100, 0.05, False), (0, 0, 0.05, False), (0, 100, 0.0, False), (99, 100, 1.0, True)],
)
def test_disk_with_less_free_space_than_the_setting_is_a_problem(
    free: int, total: int, least: float, is_problem: bool
) -> None:
    found = problems(free=free, total=total, least=least)
    assert [(each.check, each.number, each.examples) for each in found] == (
        [("disk space", 1, ("/meta",))] if is_problem else []
    )


def test_controller_that_starts_is_critical() -> None:
    assert [each.check for each in problems(ready=False)] == ["serving"]


@pytest.mark.parametrize(
    ("found", "ready", "status", "code"),
    [
        ([], True, '"ok"', 200),
        ([Problem("a", Severity.WARNING, "r")], True, '"warning"', 200),
        ([Problem("a", Severity.WARNING, "r"), Problem("b", Severity.CRITICAL, "r")], True, '"critical"', 200),
        ([], False, '"ok"', 503),
    ],
)
def test_health_page_has_the_worst_severity(found: list[Problem], ready: bool, status: str, code: int) -> None:
    lifecycle = Lifecycle()
    lifecycle.set_ready(ready)

    async def given() -> list[Problem]:
        return found

    async def answered() -> tuple[Any, Any, Any]:
        pages, request = HealthPages(lifecycle, given), None
        return (
            await pages.healthy(request),  # type: ignore[arg-type]
            await pages.ready(request),  # type: ignore[arg-type]
            await pages.health(request),  # type: ignore[arg-type]
        )

    alive, serves, page = asyncio.run(answered())
    assert alive.status == 200
    assert serves.status == (200 if ready else 503)
    assert page.status == code
    assert status in b"".join(page.body).decode().replace('": ', '":')
