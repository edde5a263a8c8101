"""What a broker's work costs its processor in simulated time: a table of measured constants for the known work.

In most profiles work takes no time, whatever it is. Where a profile charges for it, each call of a function in the
table costs the step of the event loop in which it happens: the process's clocks advance within the step, and the
process does nothing else until the time is over. A step that takes longer than `LIMIT_SECONDS` is a violation, so that
a request that is not served in slices is a finding of a seed. What runs in a thread costs the loop nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from odradek.sim.checkers.history import Violation
from odradek.sim.targets import replaced
from odradek.sim.world.disk import SimulatedDisk
from odradek.sim.world.loop import Process, SimulatedLoop

SLOWNESS: Final = 8
"""The simulated processor is that many times slower than the one that was measured.

A topic of the simulation has hundreds of partitions where one that is worth a thought has thousands.
"""
LIMIT_SECONDS: Final = 0.020
"""The longest that a step of a serving broker may take."""


class Cost(NamedTuple):
    """A function of the product and its cost, in µs for each of the units that `units` finds in a call's arguments."""

    work: str
    target: str
    us: float
    units: Callable[..., float] = lambda *_, **__: 1


def _is_begun_now(log: Any, _offset: int, _producers: bytes | None, *, later: bool = False) -> bool:
    """Whether a new segment's files are made at once, though the disk is known not to keep up."""
    return not later and log._environment.owner.writer_of(log.directory).slow


def _has_none(directories: Any, topic: str, partition: int, *_: Any, **__: Any) -> bool:
    """Whether a partition has no directory yet: opening its log asks for one each time."""
    return directories.directory_of(topic, partition) is None


def _waits(disk: SimulatedDisk, lane: str) -> bool:
    """Whether a slow disk has calls of the lane to execute."""
    return bool(disk.volume.faults.slow and disk._jobs[lane])


COSTS: Final[tuple[Cost, ...]] = (
    Cost("requests", "odradek.broker.network.dispatch:Dispatcher.__call__", 5),
    Cost(
        "KB of requests decoded",
        "odradek.broker.network.dispatch:Dispatcher.__call__",
        5,
        lambda _, frame, *__: len(frame) / 1e3,
    ),
    Cost("batches appended", "odradek.log.partition_log:PartitionLog.append", 8),
    Cost("partitions read", "odradek.log.reader:LogReader.read", 6),
    Cost("partitions looked up", "odradek.api.api_02_list_offsets:_row", 2.4),
    Cost("producers described", "odradek.api.api_61_describe_producers:_state", 0.6),
    Cost("logs opened", "odradek.log.directories.log_directories:LogDirectories.open", 60),
    Cost("directories created", "odradek.log.directories.log_directories:LogDirectories.create", 100, _has_none),
    Cost("directories deleted", "odradek.log.directories.log_directories:LogDirectories.delete", 60),
    Cost("partitions placed", "odradek.controller.topics:_new_partition", 2.5),
    Cost("states encoded", "odradek.metadata.nodes:PartitionNode.encode", 3),
    Cost("waits for a slow disk", "odradek.sim.world.disk:SimulatedDisk.wait", 5000, _waits),
    Cost("segments begun on a slow disk", "odradek.log.segments.local_log:LocalLog.roll", 5000, _is_begun_now),
)
"""Measured on one core of the machine of docs/PERFORMANCE.md, rounded; a slow disk takes more than any step may."""


class Charges:
    """What the steps of the loop cost. Belongs to one loop."""

    __slots__ = ("_is_relied_on", "_loop", "_work", "longest")

    def __init__(self, loop: SimulatedLoop, serves: Callable[[Process], bool]) -> None:
        """`serves` finds whether clients rely on a process: a broker that starts or stops may take its time."""
        self._loop = loop
        self._is_relied_on = serves
        self._work: dict[str, float] = {}
        self.longest: tuple[float, str] = (0.0, "")
        """Seconds of the longest step of a serving broker, and what it did."""

    def add(self, work: str, units: float, us: float) -> None:
        """Charge the step under way."""
        self._work[work] = self._work.get(work, 0.0) + us * units
        self._loop.spent += us * units * SLOWNESS / 1e6

    def end_step(self, process: Process | None) -> None:
        """The step is over: its process pays for it, and a step that took too long ends the run."""
        loop = self._loop
        spent, loop.spent = loop.spent, 0.0
        work, self._work = self._work, {}
        if not spent or process is None or not process.alive:
            return
        loop.pause(process, spent)
        if not self._is_relied_on(process) or spent <= self.longest[0]:
            return
        parts = ", ".join(
            f"{us * SLOWNESS / 1000:.1f} ms {name}" for name, us in sorted(work.items(), key=lambda item: -item[1])[:3]
        )
        self.longest = spent, f"{process.name} held its event loop for {spent * 1000:.1f} ms: {parts}"
        if spent > LIMIT_SECONDS and loop.broken is None:
            loop.broken = Violation("no step holds the event loop", self.longest[1])


@contextlib.contextmanager
def charged(loop: SimulatedLoop, serves: Callable[[Process], bool]) -> Iterator[Charges]:
    """Charge for the work of the table within the context."""
    charges = Charges(loop, serves)
    loop.charges = charges
    with replaced((cost.target, partial(_charging, cost, charges)) for cost in COSTS):
        yield charges


def _charging(cost: Cost, charges: Charges, right: Any) -> Any:
    function = right.__func__ if isinstance(right, staticmethod) else right

    def call(*args: Any, **kwargs: Any) -> Any:
        charges.add(cost.work, cost.units(*args, **kwargs), cost.us)
        return function(*args, **kwargs)

    return staticmethod(call) if isinstance(right, staticmethod) else call
