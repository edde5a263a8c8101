"""`python -m odradek.sim`: search for violations, seed by seed, on all the processors that are asked for."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice

from odradek.sim.faults.nemesis import PROFILES
from odradek.sim.marks import SITUATIONS, counted
from odradek.sim.pool import Job, outcomes
from odradek.sim.quorum.run import QUORUM_PROFILES
from odradek.sim.regressions import ONCE_FAILED, parse
from odradek.sim.run import SAFETY_SECONDS, SeedResult

_PROFILES = (*PROFILES, *QUORUM_PROFILES)


class Totals:
    """What all seeds came to."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.seeds = 0
        self.simulated = 0.0
        self.cpu = 0.0
        self.failed: list[SeedResult] = []
        self.faults: Counter[str] = Counter()
        self.marks: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()

    def add(self, outcome: SeedResult) -> None:
        """Count an outcome."""
        self.seeds += 1
        self.simulated += outcome.simulated_seconds
        self.cpu += outcome.real_seconds
        self.faults.update(outcome.faults)
        self.marks.update(outcome.marks)
        self.counts.update(acked=outcome.acked, transactions=outcome.transactions, read=outcome.read)
        if outcome.violation:
            self.failed.append(outcome)

    def report(self, arguments: argparse.Namespace) -> None:
        """Print the summary of all outcomes."""
        real = max(1e-9, time.monotonic() - self.started)
        print(
            f"\n{self.seeds} seeds, {len(self.failed)} failed, in {real:.0f} s: {self.seeds / real:.2f} seeds/s,",
            end=" ",
        )
        print(f"{self.simulated / 3600 / (real / 60):.2f} simulated hours per minute")
        print(f"processor: {self.simulated / max(1e-9, self.cpu):.0f} simulated seconds per second of CPU")
        print("records acked {acked}, records read {read}, transactions ended {transactions}".format_map(self.counts))
        _table("faults injected", self.faults)
        _table("coverage marks", self.marks)
        if arguments.marks:
            never = [each.name for each in SITUATIONS if not self.marks[each.name]]
            print("never reached:", ", ".join(never) or "nothing")
        by_invariant = Counter(f"{o.profile}: {o.violation}" for o in self.failed)
        _table("violations", by_invariant)


def _table(title: str, counts: Counter[str]) -> None:
    if counts:
        print(f"{title}:")
        for name, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
            print(f"  {count:8d}  {name}")


def _show(outcome: SeedResult, lines: int) -> None:
    print(f"\nFAILED seed {outcome.seed}: {outcome.violation}: {outcome.story}")
    for line in outcome.events:
        print("   ", line)
    # Where nothing is known to belong to it, the end of everything.
    lines = lines or (0 if outcome.events else 25)
    if lines:
        print("    the last that happened:")
    for line in outcome.trace[max(0, len(outcome.trace) - lines) :]:
        print("   ", line)
    profile, _, seed = outcome.seed.rpartition("-")
    print(f"    again: ./dev sim --profile {profile} --seed {seed}", flush=True)


def _known(arguments: argparse.Namespace) -> list[Job]:
    """What continuous integration always runs: seeds that once failed, and the first ones of all profiles in turn."""
    if not arguments.ci:
        return []
    first = ((seed, profile) for seed in count(1) for profile in sorted(_PROFILES))
    return [*map(parse, ONCE_FAILED), *islice(first, arguments.fixed)]


def _jobs(arguments: argparse.Namespace, known: list[Job]) -> Iterator[Job]:
    yield from known
    profiles = sorted(_PROFILES) if arguments.profile == "every" else [arguments.profile]
    if arguments.seed is not None:
        for profile in profiles:
            yield arguments.seed, profile
        return
    seed = arguments.first
    while arguments.minutes is not None or seed < arguments.first + arguments.seeds:
        for profile in profiles:
            yield seed, profile
        seed += 1


def _search(arguments: argparse.Namespace) -> Totals:
    totals = Totals()
    deadline = None if arguments.minutes is None else time.monotonic() + arguments.minutes * 60
    known = _known(arguments)
    if known:
        print(f"{len(known)} known seeds, then fresh ones from {arguments.first} on", flush=True)

    def wanted() -> Iterator[Job]:
        for number, job in enumerate(_jobs(arguments, known)):
            if _over(totals, arguments, deadline if number >= len(known) else None):
                return
            yield job

    observe = counted if arguments.marks else None
    for outcome in outcomes(wanted(), arguments.jobs, safety_seconds=arguments.seconds, observe=observe):
        _note(totals, outcome, arguments)
    return totals


def _over(totals: Totals, arguments: argparse.Namespace, deadline: float | None) -> bool:
    if deadline is not None and time.monotonic() >= deadline:
        return True
    return bool(totals.failed) and len(totals.failed) >= arguments.max_failures


def _note(totals: Totals, outcome: SeedResult, arguments: argparse.Namespace) -> None:
    totals.add(outcome)
    if outcome.violation:
        _show(outcome, arguments.lines)
    elif arguments.verbose:
        print(f"{outcome.seed}: ok, trace {outcome.digest}, {outcome.simulated_seconds:.1f} s simulated", flush=True)


def main(argv: list[str] | None = None) -> int:
    """Run the simulator's command line; 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="./dev sim", description="Search for violations in simulated worlds.")
    parser.add_argument("--seeds", type=int, default=20, help="number of seeds per profile (20)")
    parser.add_argument("--first", type=int, help="the first seed (1; with --ci one that has not run before)")
    parser.add_argument("--seed", type=int, help="only this seed, with its complete trace")
    parser.add_argument("--profile", default="every", choices=[*sorted(_PROFILES), "every"], help="faults (every)")
    parser.add_argument("--minutes", type=float, help="run for this duration, whatever the number of seeds")
    parser.add_argument(
        "--ci",
        action="store_true",
        help="run known seeds, which must pass, then new ones for --minutes (3)",
    )
    parser.add_argument("--fixed", type=int, default=50, help="with --ci: number of known seeds (50)")
    parser.add_argument("--seconds", type=float, default=SAFETY_SECONDS, help="simulated seconds with faults (40)")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="number of processes (1)")
    parser.add_argument("--max-failures", type=int, default=5, help="stop after this number of failed seeds (5)")
    parser.add_argument("--lines", type=int, default=0, help="lines to print from the end of a failed trace")
    parser.add_argument("--planted", action="store_true", help="plant known bugs one by one and find them")
    parser.add_argument("--only", default="", help="with --planted: bugs whose name contains this")
    parser.add_argument("--marks", action="store_true", help="count rare situations inside the product as well")
    parser.add_argument("-v", "--verbose", action="store_true", help="print a line per seed")
    arguments = parser.parse_args(argv)
    if arguments.planted:
        if importlib.util.find_spec("odradek.sim.planted") is None:
            parser.error("--planted: an installed package does not contain the planted bugs; run it in a clone")
        from odradek.sim.planted.broker_bugs import hunt

        return hunt(arguments)
    if arguments.seed is not None:
        arguments.lines, arguments.verbose = 400, True
    if arguments.ci:
        arguments.minutes = 3.0 if arguments.minutes is None else arguments.minutes
    if arguments.first is None:
        arguments.first = int(time.time()) if arguments.ci else 1
    totals = _search(arguments)
    totals.report(arguments)
    if not arguments.ci:
        return 1 if totals.failed else 0
    known = {f"{profile}-{seed}" for seed, profile in _known(arguments)}
    fresh = [outcome.seed for outcome in totals.failed if outcome.seed not in known]
    if fresh:
        # Chance dealt them, not the change that is looked at: they say what to mend next, not what to send back.
        print(f"{len(fresh)} fresh seeds failed, a finding each to be kept and mended: {', '.join(fresh)}")
    return 1 if len(fresh) < len(totals.failed) else 0


if __name__ == "__main__":
    sys.exit(main())
