"""One run: a deployment, its clients, faults one after the other, and the judgement."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from odradek.sim.checkers.history import READ_UNCOMMITTED
from tests.faults import judge, nemesis, timeline
from tests.faults.clients import Crowd, Place, crowd
from tests.faults.deployment import Deployment, Node, NotWhole, Shape
from tests.faults.judge import Event, Figures, Gap

STEADY = ("librdkafka-steady", "our-steady")
OVERLAP: Final = 0.25
Say = Callable[[str], None]


class Outcome(NamedTuple):
    shape: Shape
    figures: Figures
    events: list[Event]
    gaps: list[Gap]
    problems: list[str]
    """Violations, clients that failed, exceptions in brokers' logs: nothing of it is promised to happen."""
    missing: list[str]
    """Faults that could not be done here."""
    moments: list[timeline.Moment]
    """What was done to brokers, and what they logged of leaders."""
    samples: list[timeline.Load]


class Plan(NamedTuple):
    """Until so many events or seconds have passed, whichever is later not reached first."""

    events: int | None = None
    seconds: float | None = None
    kinds: tuple[str, ...] | None = None
    pace: float = 1.0
    rest_seconds: float = 1.0
    overlap: float = OVERLAP
    """How often the next fault comes before the cluster is whole again."""


def _order(kinds: Sequence[str], chance: random.Random) -> list[str]:
    """Every kind once, then again in another order: none is left out of a short run."""
    return chance.sample(kinds, len(kinds))


def _torment(deployment: Deployment, place: Place, plan: Plan, seed: int, say: Say, events: list[Event]) -> None:
    chance = random.Random(f"{seed}:faults")
    faults, _ = nemesis.faults_of(deployment)
    kinds = sorted(faults) if plan.kinds is None else [kind for kind in plan.kinds if kind in faults]
    torment = nemesis.Torment(deployment, chance, plan.pace)
    waiting: list[str] = []
    until = None if plan.seconds is None else time.monotonic() + plan.seconds
    while (plan.events is None or len(events) < plan.events) and (until is None or time.monotonic() < until):
        if not waiting:
            waiting = _order(kinds, chance)
        kind = waiting.pop()
        began = place.now()
        say(f"{began:7.1f} s  {kind}")
        try:
            faults[kind](torment)
            if chance.random() >= plan.overlap:
                deployment.wait_whole()
                time.sleep(chance.uniform(0.1, 1.0) * plan.rest_seconds)
        finally:
            events.append(Event(kind, began, place.now()))


def run(home: Path, shape: Shape, plan: Plan, seed: int, say: Say = print, *, groups: bool = True) -> Outcome:
    """Raises nothing that the deployment does: it is among the problems."""
    problems: list[str] = []
    events: list[Event] = []
    with Deployment(home, shape) as deployment:
        _, missing = nemesis.faults_of(deployment)
        place = Place(deployment.bootstrap, seed)
        clients = crowd(place, groups=groups)
        clients.start()
        time.sleep(1.0)
        with timeline.LoadWatch(deployment, place.now) as load:
            try:
                _torment(deployment, place, plan, seed, say, events)
                deployment.wait_whole()
            except NotWhole as failure:
                problems.append(f"liveness: {failure}")
            except Exception as failure:
                problems.append(f"faults ended with {type(failure).__name__}: {failure}")
        problems += _judge(deployment, place, clients, say)
        for node in deployment.nodes:
            if not node.is_apache:
                problems += _exceptions(node)
    gaps = judge.write_gaps(place.history, events, STEADY)
    (home / "gaps.txt").write_text("".join(f"{gap}\n" for gap in gaps))
    figures = judge.figures(place.history)
    return Outcome(shape, figures, events, gaps, problems, missing, _moments(deployment, place), load.samples)


def _moments(deployment: Deployment, place: Place) -> list[timeline.Moment]:
    epoch = time.time() - place.now()
    found = []
    for node in deployment.nodes:
        who = f"broker {node.broker_id}"
        found += [timeline.Moment(at - place.begun, who, what) for at, what in node.acts]
        found += timeline.logged(node.process.log_path, who, epoch)
    return sorted(found)


def _judge(deployment: Deployment, place: Place, clients: Crowd, say: Say) -> list[str]:
    topics = deployment.topics()

    def ends() -> dict[tuple[str, int], int]:
        found = judge.positions(place.bootstrap, topics, READ_UNCOMMITTED)
        return {key: end for key, (_, end) in found.items()}

    problems: list[str] = []
    say(f"{place.now():7.1f} s  faults end; clients finish")
    try:
        clients.finish(ends)
        say(f"{place.now():7.1f} s  everything is read")
        judge.read_everything(place, topics)
        deployment.wait_whole()
        deployment.stop_brokers()
        problems += judge.divergent(deployment)
    except Exception as failure:
        problems.append(f"the end: {type(failure).__name__}: {failure}")
    say(f"{place.now():7.1f} s  {len(place.history.sends)} records are judged")
    place.history.broker_ends += [at - place.begun for node in deployment.nodes for at in node.ends]
    shape = deployment.shape
    has_apache = shape.peer or shape.apache > 0
    found = judge.violations(place.history, is_cluster=shape.brokers > 1, has_apache=has_apache)
    return [*place.failures, *found, *judge.lost(place.history), *problems]


def _exceptions(node: Node) -> list[str]:
    found = node.exceptions()
    return [f"broker {node.broker_id} logged {len(found)} exceptions, the first:\n{found[0]}"] if found else []
