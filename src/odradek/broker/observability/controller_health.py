"""What an operator should look at on a controller: its quorum, its disk, its clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from odradek.broker.observability.health import ClockSteps, Lifecycle, Problem, Severity
from odradek.broker.observability.quorum_metrics import QuorumFigures
from odradek.ports.disk import Disk


def quorum_problems(found: QuorumFigures) -> Iterator[Problem]:
    """A quorum without a leader, and voters that do not fetch from it."""
    if found.high_watermark < 0:
        text = "this controller reaches no leader: without a majority of controllers nothing can be changed"
        yield Problem("quorum", Severity.CRITICAL, text)
    if found.absent:
        names = tuple(f"controller {node}" for node in found.absent)
        yield Problem("absent controllers", Severity.WARNING, "voters do not fetch from the leader", len(names), names)


class ControllerHealth:
    """Looks at a controller when it is asked."""

    __slots__ = ("_clock_steps", "_directory", "_disk", "_figures", "_least_free", "_lifecycle")

    def __init__(
        self,
        lifecycle: Lifecycle,
        figures: Callable[[], QuorumFigures],
        directory: str,
        disk: Disk,
        clock_steps: ClockSteps,
        least_free: Callable[[], float],
    ) -> None:
        """`directory` has the metadata log; `least_free` is the share of its file system, 0 to 1, that must be free."""
        self._lifecycle = lifecycle
        self._figures = figures
        self._directory = directory
        self._disk = disk
        self._clock_steps = clock_steps
        self._least_free = least_free

    async def problems(self) -> list[Problem]:
        """All that was found; empty if all is well."""
        found = (
            []
            if self._lifecycle.is_ready
            else [Problem("serving", Severity.CRITICAL, "the controller starts or stops")]
        )
        found += quorum_problems(self._figures())
        free, total = self._disk.free_bytes(self._directory)
        if total and free / total < self._least_free():
            text = f"{free / total:.1%} of the file system is free ({free} of {total} bytes)"
            found.append(Problem("disk space", Severity.WARNING, text, 1, (self._directory,)))
        found += self._clock_steps.problems()
        return found
