"""Where the time of a gap went: what the fault did, what brokers logged, and what the machine had left.

A gap of a producer begins with its last acknowledged record. Its parts end when the fault was noticed, when the
controller had chosen the next leader, when that broker began to lead, and when the producer had its next record
acknowledged. Brokers log the first three; the last part is the client's, and that of the network between.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, Self

from tests.faults.deployment import Deployment
from tests.faults.judge import Gap

SAMPLE_SECONDS: Final = 0.1
_LINE: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) [A-Z]+ [\w.]+: (.*)")
NOTICED: Final = re.compile(r"is dead: its|is gone: its|: they are fenced|ended the election|is in controlled shutdown")
ELECTED: Final = re.compile(r"replaces broker \d+ as leader|leads? again|electing the preferred leaders")
BEGAN: Final = re.compile(r"^began to lead")
_TOLD: Final = re.compile(
    f"{NOTICED.pattern}|{ELECTED.pattern}|{BEGAN.pattern}|is the controller, epoch|is registered, epoch"
    "|yielded as the controller|left the ISR|joined the ISR|serves on|the session with the metadata store"
    "|is no longer fenced|cannot reach|stopped following"
)
_MOST_MOMENTS: Final = 40


class Moment(NamedTuple):
    """Something that happened, in seconds of the run."""

    at: float
    who: str
    what: str


class Load(NamedTuple):
    """The machine and the processes since their start, in seconds; differences of two are what is of interest."""

    at: float
    busy: float
    stolen: float
    idle: float
    waited: dict[str, float]
    """How long each process was ready to run and did not, by its name."""


class Shares(NamedTuple):
    """What the machine did in a time, as parts of what its processors could do, and how long processes waited."""

    busy: float
    stolen: float
    waited: dict[str, float]

    def __str__(self) -> str:
        waited = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in sorted(self.waited.items()) if seconds > 0.02)
        stolen = f" ({self.stolen:.0%} stolen)" if self.stolen >= 0.005 else ""
        return f"processors {self.busy:.0%} busy{stolen}; waited for one: {waited or 'none'}"


class LoadWatch(threading.Thread):
    """Samples what processors do and how long the brokers and the clients wait for one. Linux."""

    def __init__(self, deployment: Deployment, now: Callable[[], float]) -> None:
        super().__init__(name="load", daemon=True)
        self.samples: list[Load] = []
        self._deployment = deployment
        self._now = now
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            user, nice, system, idle, iowait, irq, softirq, steal = _processor_seconds()
            busy = user + nice + system + irq + softirq + steal
            self.samples.append(Load(self._now(), busy, steal, idle + iowait, self._waited()))

    def _waited(self) -> dict[str, float]:
        found = {"clients": waited_seconds("self")}
        for node in self._deployment.nodes:
            # A process that starts again counts from nothing: `shares` adds what grows.
            if node.running():
                found[f"broker {node.broker_id}"] = waited_seconds(str(node.process.pid))
        return found


def _processor_seconds() -> list[float]:
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    return [int(field) / 100 for field in fields]


def waited_seconds(pid: str) -> float:
    """How long the threads of a process have waited for a processor; 0 if it has ended."""
    total = 0
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            total += int((thread / "schedstat").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return total / 1e9


def shares(samples: Sequence[Load], since: float, until: float) -> Shares:
    """Of the samples in that time."""
    within = [load for load in samples if since - SAMPLE_SECONDS <= load.at <= until + SAMPLE_SECONDS]
    if len(within) < 2:
        return Shares(0.0, 0.0, {})
    first, last = within[0], within[-1]
    total = max(1e-9, last.busy + last.idle - first.busy - first.idle)
    waited: dict[str, float] = {}
    for before, after in pairwise(within):
        for name, seconds in after.waited.items():
            grown = seconds - before.waited.get(name, seconds)
            waited[name] = waited.get(name, 0.0) + max(0.0, grown)
    return Shares((last.busy - first.busy) / total, (last.stolen - first.stolen) / total, waited)


def logged(path: Path, who: str, epoch: float) -> list[Moment]:
    """What a broker's log says of leaders, controllers and itself; `epoch` is the run's beginning by the wall clock."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(errors="replace").splitlines():
        match = _LINE.match(line)
        if match and _TOLD.search(match[3]):
            at = time.mktime(time.strptime(match[1], "%Y-%m-%d %H:%M:%S")) + int(match[2]) / 1000
            found.append(Moment(at - epoch, who, match[3]))
    return found


class Parts(NamedTuple):
    """A gap in seconds, by what was awaited. None: the log has no such line in that gap."""

    noticed: float | None
    elected: float | None
    began: float | None
    client: float


def parts(gap: Gap, moments: Iterable[Moment]) -> Parts:
    """Each part ends with the first line of its kind after the part before; leaders count up to the last that began."""
    until = gap.since + gap.seconds
    within = sorted(moment for moment in moments if gap.since <= moment.at <= until)
    reached, found = gap.since, []
    for pattern in (NOTICED, ELECTED, BEGAN):
        at = next((moment.at for moment in within if moment.at >= reached and pattern.search(moment.what)), None)
        found.append(None if at is None else at - reached)
        reached = reached if at is None else at
    return Parts(found[0], found[1], found[2], until - reached)


def _seconds(part: float | None) -> str:
    return f"{'-':>7}" if part is None else f"{part:7.2f}"


def worst_by_kind(gaps: Iterable[Gap]) -> list[Gap]:
    """The longest gap of each kind of fault, the longest first."""
    worst: dict[str, Gap] = {}
    for gap in gaps:
        if gap.seconds > worst.get(gap.kind, gap).seconds or gap.kind not in worst:
            worst[gap.kind] = gap
    return sorted(worst.values(), key=lambda gap: -gap.seconds)


def summary(gaps: Iterable[Gap], moments: Sequence[Moment], samples: Sequence[Load]) -> list[str]:
    """A line for the longest gap of each kind: its parts and what the machine did meanwhile."""
    worst = worst_by_kind(gaps)
    width = max([len(gap.kind) for gap in worst] + [len("longest gap, s")])
    lines = [f"{'longest gap, s':{width}}   total noticed elected   began  client  processors busy, stolen"]
    for gap in worst:
        found, load = parts(gap, moments), shares(samples, gap.since, gap.since + gap.seconds)
        cells = " ".join(map(_seconds, found))
        lines.append(f"{gap.kind:{width}} {gap.seconds:7.2f} {cells}  {load.busy:15.0%}, {load.stolen:.0%}")
    return lines


def story(gap: Gap, moments: Iterable[Moment], load: Shares) -> list[str]:
    """The gap from its last to its next record."""
    until = gap.since + gap.seconds
    within = sorted(moment for moment in moments if gap.since - 0.5 <= moment.at <= until)
    shown = within if len(within) <= _MOST_MOMENTS else [*within[: _MOST_MOMENTS // 2], *within[-_MOST_MOMENTS // 2 :]]
    lines = [str(gap), f"    {load}"]
    rows = [*shown, Moment(gap.since, gap.client, "last record"), Moment(until, gap.client, "next record")]
    return lines + [f"    {at - gap.since:+8.3f} s  {who}: {what}" for at, who, what in sorted(rows)]
