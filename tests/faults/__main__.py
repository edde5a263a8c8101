"""./dev faults: real broker processes, real clients, faults at random; nothing acknowledged may be lost or doubled.

Without --shape the minutes are shared out: a quarter to one broker, half to three brokers on SQLite, a quarter to
three brokers on an ensemble of three ZooKeeper servers.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from tests.faults.deployment import Shape
from tests.faults.judge import Figures
from tests.faults.run import STEADY, Outcome, Plan, run

SHAPES = {"one": Shape(1), "three": Shape(3), "zookeeper": Shape(3, zookeepers=3)}
SHARES = {"one": 0.25, "three": 0.5, "zookeeper": 0.25}


def _report(outcomes: list[Outcome], seconds: float, seed: int) -> int:
    kinds: Counter[str] = Counter()
    gaps: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(STEADY, 0.0))
    for outcome in outcomes:
        for event in outcome.events:
            kinds[_named(outcome, event.kind)] += 1
        for gap in outcome.gaps:
            by_client = gaps[_named(outcome, gap.kind)]
            by_client[gap.client] = max(by_client[gap.client], gap.seconds)
    print(f"\n{'fault':48} {'times':>5}  longest write gap: {'  '.join(STEADY)}")
    for kind, times in sorted(kinds.items()):
        print(f"{kind:48} {times:5}  {'  '.join(f'{gaps[kind][client]:{len(client)}.2f} s' for client in STEADY)}")
    for outcome in outcomes:
        print(f"{outcome.shape.name}: {len(outcome.events)} faults: {outcome.figures}")
        for reason in outcome.missing:
            print(f"  not done here: {reason}")
        for problem in outcome.problems:
            print(f"  PROBLEM: {problem}")
    total = Figures(*(sum(column) for column in zip(*(outcome.figures for outcome in outcomes), strict=True)))
    problems = sum(len(outcome.problems) for outcome in outcomes)
    failed = (
        problems or total.lost or total.duplicated or total.aborted_visible or total.out_of_order or not total.acked
    )
    print(f"seed {seed}: {sum(kinds.values())} faults in {seconds / 60:.1f} minutes: {total}; problems {problems}")
    print(f"dev faults: {'FAILED' if failed else 'passed'}")
    return 1 if failed else 0


def _named(outcome: Outcome, kind: str) -> str:
    return f"{outcome.shape.name}: {kind}"


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
    parser.add_argument("--kind", action="append", help="only this fault; may be repeated")
    parser.add_argument("--kill-rounds", type=int, metavar="N", help="kill -9 of one broker N times instead")
    parser.add_argument("--home", type=Path, help="where data and logs stay; a temporary directory if not given")
    options = parser.parse_args()
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
            for name, share in shares.items():
                kinds = tuple(options.kind) if options.kind else None
                seconds = None if options.events else options.minutes * 60 * share
                plan = Plan(options.events, seconds, kinds)
                print(f"--- {SHAPES[name].name}", flush=True)
                outcomes.append(run(home / name, SHAPES[name], plan, seed))
        return _report(outcomes, time.monotonic() - begun, seed)


if __name__ == "__main__":
    sys.exit(main())
