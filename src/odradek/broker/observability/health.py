"""Whether a broker is alive, serves, and what an operator should look at: `/healthy`, `/ready`, `/health`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum
from typing import Any, Final, NamedTuple

from odradek.broker.observability.http_messages import HttpRequest, HttpResponse, json_response, text_response
from odradek.broker.observability.storage_metrics import free_space
from odradek.broker.storage.partitions import Partitions
from odradek.log.directories.log_directories import LogDirectories
from odradek.metadata.image import NO_BROKER, NO_LEADER, ClusterImage
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk

CLOCK_STEP_MS: Final = 1000
"""Wall time that has moved this much against the monotonic clock since the start is a problem."""
_NAMED: Final = 10
"""Partitions that a problem names."""
_STEP: Final = 512
"""Partitions that are looked at in one turn of the event loop."""


class Severity(Enum):
    """How bad a problem is."""

    WARNING = "warning"
    """Something has less redundancy or room than it should."""
    CRITICAL = "critical"
    """Clients cannot use something."""


class Problem(NamedTuple):
    """One reason why the health is not `ok`."""

    check: str
    severity: Severity
    reason: str
    number: int = 1
    """How many partitions or directories it concerns."""
    examples: tuple[str, ...] = ()
    """Names of some partitions or directories."""

    def as_json(self) -> dict[str, Any]:
        """For the JSON document."""
        return {**self._asdict(), "severity": self.severity.value, "examples": list(self.examples)}


class Lifecycle:
    """How far a node is between its start and its end."""

    __slots__ = ("is_ready", "kind")

    def __init__(self, kind: str = "broker") -> None:
        self.kind = kind
        """Which node it is, for texts."""
        self.is_ready = False
        """Whether clients are served."""

    def set_ready(self, is_ready: bool) -> None:
        """Note that clients are served from now on, or no longer."""
        self.is_ready = is_ready


class ClockSteps:
    """Whether the wall clock was set since the start."""

    __slots__ = ("_began", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = self._difference_ms()

    def _difference_ms(self) -> float:
        return self._clock.now_ms() - self._clock.monotonic() * 1000

    def problems(self) -> Iterator[Problem]:
        """A clock that was set by `CLOCK_STEP_MS` or more."""
        skew_ms = self._difference_ms() - self._began
        if abs(skew_ms) >= CLOCK_STEP_MS:
            text = (
                f"the wall clock was set by {skew_ms / 1000:+.1f} s since the start: timestamps and retention follow it"
            )
            yield Problem("clock", Severity.WARNING, text)


class HealthPages:
    """The paths that answer for the health of a node."""

    __slots__ = ("_lifecycle", "_problems")

    def __init__(self, lifecycle: Lifecycle, problems: Callable[[], Awaitable[list[Problem]]]) -> None:
        self._lifecycle = lifecycle
        self._problems = problems

    async def healthy(self, _request: HttpRequest) -> HttpResponse:
        """The process lives and its event loop turns."""
        return text_response(200, "ok")

    async def ready(self, _request: HttpRequest) -> HttpResponse:
        """Whether clients are served: 200 or 503."""
        if self._lifecycle.is_ready:
            return text_response(200, "ready")
        return text_response(503, f"not ready: the {self._lifecycle.kind} starts or stops")

    async def health(self, _request: HttpRequest) -> HttpResponse:
        """All problems as JSON; 503 while clients are not served, else 200."""
        problems = await self._problems()
        worst = {problem.severity for problem in problems}
        status = "critical" if Severity.CRITICAL in worst else "warning" if worst else "ok"
        document = {"status": status, "problems": [problem.as_json() for problem in problems]}
        return json_response(200 if self._lifecycle.is_ready else 503, document)


class Health:
    """Looks at a broker when it is asked."""

    __slots__ = (
        "_clock_steps",
        "_directories",
        "_disk",
        "_image",
        "_least_free",
        "_lifecycle",
        "_partitions",
    )

    def __init__(
        self,
        lifecycle: Lifecycle,
        image: Callable[[], ClusterImage],
        partitions: Partitions,
        directories: LogDirectories,
        disk: Disk,
        clock: Clock,
        least_free: Callable[[], float],
    ) -> None:
        """`least_free` is the share of a file system, 0 to 1, below which a log directory is a problem."""
        self._lifecycle = lifecycle
        self._image = image
        self._partitions = partitions
        self._directories = directories
        self._disk = disk
        self._clock_steps = ClockSteps(clock)
        self._least_free = least_free

    async def problems(self) -> list[Problem]:
        """All that was found; empty if all is well."""
        found = list(self._of_broker())
        found += await self._of_partitions()
        return found

    def _of_broker(self) -> Iterator[Problem]:
        if not self._lifecycle.is_ready:
            yield Problem("serving", Severity.CRITICAL, "the broker starts or stops: clients are not served")
        if self._image().controller_id == NO_BROKER:
            yield Problem("controller", Severity.CRITICAL, "no controller is known: nothing can be changed")
        offline = [each.path for each in self._directories.directories if each.offline is not None]
        if offline:
            yield Problem(
                "log directories", Severity.CRITICAL, "log directories failed", len(offline), tuple(offline[:_NAMED])
            )
        for path, (free, total) in free_space(self._directories, self._disk):
            if total and free / total < self._least_free():
                text = f"{free / total:.1%} of the file system is free ({free} of {total} bytes)"
                yield Problem("disk space", Severity.WARNING, text, 1, (path,))
        lagging = tuple(path for path, queue in self._directories.writers.by_path().items() if queue.slow)
        if lagging:
            text = "the disk does not keep up: all appends are queued"
            yield Problem("disk speed", Severity.WARNING, text, len(lagging), lagging[:_NAMED])
        yield from self._clock_steps.problems()

    async def _of_partitions(self) -> list[Problem]:
        without_leader: list[str] = []
        below_minimum: list[str] = []
        lacking: list[str] = []
        number = 0
        for name, topic in list(self._image().topics.items()):
            config = self._partitions.settings_of(name)
            least = 1 if config is None else config.min_insync_replicas
            for index, state in enumerate(topic.partitions):
                number += 1
                if not number % _STEP:
                    await asyncio.sleep(0)
                if state.leader == NO_LEADER:
                    without_leader.append(f"{name}-{index}")
                elif len(state.isr) < min(least, len(state.replicas)):
                    below_minimum.append(f"{name}-{index}")
                elif len(state.isr) < len(state.replicas):
                    lacking.append(f"{name}-{index}")
        named = (
            ("offline partitions", Severity.CRITICAL, "partitions have no leader", without_leader),
            (
                "under min.insync.replicas",
                Severity.CRITICAL,
                "partitions reject writes with acks=all: their ISR is below min.insync.replicas",
                below_minimum,
            ),
            ("under-replicated partitions", Severity.WARNING, "partitions have replicas outside the ISR", lacking),
        )
        return [
            Problem(check, severity, reason, len(places), tuple(places[:_NAMED]))
            for check, severity, reason, places in named
            if places
        ]
