"""./dev faults: real broker processes, real clients, faults at random; nothing acknowledged may be lost or doubled.

Without --shape the minutes are shared out: a quarter to one broker, half to three brokers on SQLite, a quarter to
three brokers on an ensemble of three ZooKeeper servers. `--shape quorum` is three processes that are brokers and KRaft
controllers, `--shape mixed` the same with Apache Kafka 4.3 in the place of one of them. `--shape namespaces` puts each
broker into a network namespace and cuts their network silently (it takes root and iproute2). `--peer kafka` does the
same to three brokers of Apache Kafka 4.3 first (KAFKA_HOME names an installation; Maven fetches one otherwise) and
prints both gaps side by side.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.faults import gaps, namespaces, timeline
from tests.faults.deployment import Shape
from tests.faults.judge import Figures
from tests.faults.run import OVERLAP, STEADY, Outcome, Plan, run

SHAPES = {
    "one": Shape(1),
    "three": Shape(3),
    "zookeeper": Shape(3, zookeepers=3),
    "quorum": Shape(3, quorum=True),
    "mixed": Shape(3, quorum=True, apache=1),
    "namespaces": Shape(3, zookeepers=1, proxied=False, namespaces=True),
}
PEERS = {"kafka": Shape(3, quorum=True, peer=True)}
SHARES = {"one": 0.25, "three": 0.5, "zookeeper": 0.25}


def _report(outcomes: list[Outcome], seconds: float, seed: int, *, stories: bool) -> int:
    kinds = sum(len(outcome.events) for outcome in outcomes)
    peers = [outcome for outcome in outcomes if outcome.shape.peer]
    outcomes = [outcome for outcome in outcomes if not outcome.shape.peer]
    for outcome in outcomes:
        beside = [("Apache Kafka", peer.gaps) for peer in peers]
        print(f"\n{outcome.shape.name}: longest time in which a partition took no write, by fault")
        print(*gaps.table([("Odradek", outcome.gaps), *beside], STEADY), sep="\n")
    for peer in peers:
        print(f"{peer.shape.name}: {len(peer.events)} faults: {peer.figures}; problems {len(peer.problems)}")
    for outcome in outcomes:
        print(f"{outcome.shape.name}: {len(outcome.events)} faults: {outcome.figures}")
        for reason in outcome.missing:
            print(f"  not done here: {reason}")
        for problem in outcome.problems:
            print(f"  PROBLEM: {problem}")
    for outcome in outcomes:
        print(f"\n{outcome.shape.name}: where the time of the longest gaps went")
        print(*timeline.summary(outcome.gaps, outcome.moments, outcome.samples), sep="\n")
        if stories:
            for gap in timeline.worst_by_kind(outcome.gaps):
                load = timeline.shares(outcome.samples, gap.since, gap.since + gap.seconds)
                print("", *timeline.story(gap, outcome.moments, load), sep="\n")
    total = Figures(*(sum(column) for column in zip(*(outcome.figures for outcome in outcomes), strict=True)))
    problems = sum(len(outcome.problems) for outcome in outcomes)
    failed = (
        problems or total.lost or total.duplicated or total.aborted_visible or total.out_of_order or not total.acked
    )
    print(f"seed {seed}: {kinds} faults in {seconds / 60:.1f} minutes: {total}; problems {problems}")
    print(f"dev faults: {'FAILED' if failed else 'passed'}")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev faults", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=12.0, help="duration of the faults; reading and judging come after"
    )
    parser.add_argument(
        "--events", type=int, metavar="N", help="so many faults of each deployment, however long it takes"
    )
    parser.add_argument(
        "--seed", type=int, help="decides which faults come when; what processes do in between it cannot"
    )
    parser.add_argument("--shape", choices=sorted(SHAPES), help="only this deployment")
    parser.add_argument("--peer", choices=sorted(PEERS), help="suffer the same beside Odradek, for comparison")
    parser.add_argument("--kind", action="append", help="only this fault; may be repeated")
    parser.add_argument("--apart", action="store_true", help="begin each fault after the one before is overcome")
    parser.add_argument("--timeline", action="store_true", help="print what happened in the longest gap of each kind")
    parser.add_argument("--kill-rounds", type=int, metavar="N", help="kill -9 of one broker N times instead")
    parser.add_argument("--home", type=Path, help="where data and logs stay; a temporary directory if not given")
    options = parser.parse_args()
    if options.shape == "namespaces" and not namespaces.is_entered():
        if reason := namespaces.unavailable():
            print(f"dev faults: skipped: no network namespaces can be made here: {reason}")
            return 0
        namespaces.enter(["-m", "tests.faults", *sys.argv[1:]])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # nothing that was started stays behind
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="odradek-faults-") as scratch:
        home = options.home or Path(scratch)
        outcomes = []
        if options.kill_rounds:
            plan = Plan(events=options.kill_rounds, kinds=("kill",), rest_seconds=0.5)
            outcomes.append(run(home / "one", SHAPES["one"], plan, seed))
        else:
            shares = {options.shape: 1.0} if options.shape else SHARES
            runs = [(options.peer, PEERS[options.peer], 1.0)] if options.peer else []
            runs += [(name, SHAPES[name], share) for name, share in shares.items()]
            for name, shape, share in runs:
                kinds = tuple(options.kind) if options.kind else None
                seconds = None if options.events else options.minutes * 60 * share
                plan = Plan(options.events, seconds, kinds, overlap=0.0 if options.apart else OVERLAP)
                print(f"--- {shape.name}, load average {os.getloadavg()[0]:.1f}", flush=True)
                outcomes.append(run(home / name, shape, plan, seed))
        return _report(outcomes, time.monotonic() - begun, seed, stories=options.timeline)


if __name__ == "__main__":
    sys.exit(main())
