"""./dev search: fresh seeds on committed sources, added to a record that several machines and sessions fill.

`run` takes seeds of all profiles in turn, from a block that it draws for this machine, and writes a line to the record
after each turn: an interrupted search loses a turn at most, and the next one continues. `total` adds up all lines of
the same product as a line for the notes of a release: of the tree `src`, whatever the commit, without the simulator. So
a checker that was wrong can be mended, and the seeds that ran before still count.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from odradek.sim.faults.nemesis import PROFILES
from odradek.sim.pool import Job, outcomes
from odradek.sim.quorum.run import QUORUM_PROFILES
from odradek.sim.run import SeedResult
from tests.search.record import HEADER, Searched, merged, next_seed, parse_record, release_lines, total

ROOT: Final = Path(__file__).parents[2]
RECORD: Final = ROOT / "docs" / "reliability" / "searches.txt"
SOURCES: Final = "src"
_SIMULATOR: Final = "odradek/sim"
"""Within the sources."""
_MATTER: Final = (SOURCES, "requirements", "pyproject.toml")
"""What decides the course of a seed, beside the interpreter."""
_BLOCK_SEEDS: Final = 1_000_000
_BLOCKS: Final = range(10_000, 1_000_000)
"""Above every seed that was chosen by hand or by the clock; two machines hardly ever draw the same block."""
_RELEASE_SEEDS: Final = 10_000


class NotPossible(Exception):
    """The sources are not those of a commit, or changed meanwhile, or another search is running; says which."""


class Version(NamedTuple):
    """Committed sources."""

    sources: str
    commit: str


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def version_of(root: Path) -> Version:
    """The committed sources of a clone. Raises NotPossible."""
    if changed := _git(root, "status", "--porcelain", "--", *_MATTER):
        raise NotPossible(f"not committed, so that no one could repeat a seed: {', '.join(changed.splitlines()[:5])}")
    return Version(_git(root, "rev-parse", f"HEAD:{SOURCES}"), _git(root, "rev-parse", "HEAD"))


def same_product(root: Path, record: Sequence[Searched], sources: str) -> set[str]:
    """The recorded sources that differ from these in the simulator at most, as far as the clone has them."""
    options = ["--", ".", f":(exclude){_SIMULATOR}"]
    return {
        each
        for each in {line.sources for line in record}
        if subprocess.run(
            ["git", "-C", str(root), "diff", "--quiet", each, sources, *options], capture_output=True, check=False
        ).returncode
        == 0
    }


def read_record(path: Path) -> list[Searched]:
    """Its lines; none where there is no file."""
    return parse_record(path.read_text()) if path.exists() else []


def add_to(path: Path, lines: Sequence[Searched]) -> None:
    """Add to a record, or create it; a reader sees it with all of the lines or none."""
    text = "".join(f"{each.line()}\n" for each in merged([*read_record(path), *lines]))
    written = path.with_suffix(".new")
    written.write_text(f"{HEADER}\n{text}")
    written.replace(path)


@contextlib.contextmanager
def own_block(path: Path) -> Iterator[range]:
    """The seeds of this clone, for one search at a time. Raises NotPossible.

    Drawn once and remembered at this path, in git's directory, which is not committed."""
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise NotPossible("another search of this clone is running; `-j` uses more processors") from error
        file.seek(0)
        drawn = file.read()
        if not drawn:
            drawn = str(_BLOCKS.start + secrets.randbelow(len(_BLOCKS)))
            file.write(drawn)
            file.flush()
        yield range(int(drawn) * _BLOCK_SEEDS, (int(drawn) + 1) * _BLOCK_SEEDS)


def turn(version: Version, jobs: Sequence[Job], processes: int) -> tuple[list[Searched], list[SeedResult]]:
    """Run a turn of seeds. What the record gets of it, and the failures."""
    date = time.strftime("%Y-%m-%d", time.gmtime())
    lines, failures = [], []
    for outcome in outcomes(iter(jobs), processes):
        profile, _, seed = outcome.seed.rpartition("-")
        failed = (int(seed),) if outcome.violation else ()
        lines.append(Searched(*version, date, profile, int(seed), 1, failed, outcome.real_seconds))
        if outcome.violation:
            failures.append(outcome)
    return merged(lines), failures


def _jobs(record: Sequence[Searched], block: range, profiles: Sequence[str]) -> Iterator[Job]:
    """Seeds of all profiles in turn, those that were behind first."""
    following = {profile: next_seed(record, block, profile) for profile in profiles}
    while True:
        profile = min(profiles, key=lambda name: (following[name], name))
        yield following[profile], profile
        following[profile] += 1


def _run(options: argparse.Namespace, block: range) -> int:
    version = version_of(ROOT)
    profiles = sorted((*PROFILES, *QUORUM_PROFILES)) if options.profile is None else options.profile
    jobs = _jobs(read_record(options.record), block, profiles)
    until = None if options.minutes is None else time.monotonic() + options.minutes * 60
    left, failed = options.seeds, 0
    print(f"sources {version.sources[:12]}, commit {version.commit[:10]}", flush=True)
    while left > 0 and (until is None or time.monotonic() < until):
        wanted = list(islice(jobs, min(left, options.turn)))
        lines, failures = turn(version, wanted, options.jobs)
        if version_of(ROOT).sources != version.sources:
            raise NotPossible("the sources changed during the search; the last turn is not recorded")
        add_to(options.record, lines)
        left, failed = left - len(wanted), failed + len(failures)
        for each in failures:
            print(f"FAILED {each.seed}: {each.violation}: {each.story}", flush=True)
        print(f"{options.seeds - left} seeds, {failed} failed", flush=True)
    _print_total(options.record, version.sources, options.wanted)
    return 1 if failed else 0


def _print_total(path: Path, sources: str, wanted: int) -> None:
    record = read_record(path)
    print(*release_lines(total(record, sources, same_product(ROOT, record, sources)), wanted), sep="\n")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 1 if a seed failed, 2 if nothing can be searched."""
    parser = argparse.ArgumentParser(prog="./dev search", description=__doc__)
    parser.add_argument("--record", type=Path, default=RECORD, help="the file of all searches (docs/reliability/)")
    parser.add_argument("--wanted", type=int, default=_RELEASE_SEEDS, help="seeds that a release takes (10000)")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="search fresh seeds of the committed sources, and record them")
    run.add_argument("--seeds", type=int, default=1000, help="of all profiles together (1000)")
    run.add_argument("--minutes", type=float, help="begin no turn after this time")
    run.add_argument("--profile", action="append", help="only this one; may be repeated")
    run.add_argument("--turn", type=int, default=100, help="seeds between two entries of the record (100)")
    run.add_argument("-j", "--jobs", type=int, default=1, help="number of processes (1)")
    add_up = commands.add_parser("total", help="what all records say of the committed sources, or of those named")
    add_up.add_argument("--sources", help="the hash of another tree `src`")
    options = parser.parse_args(argv)
    try:
        if options.command == "run":
            with own_block(ROOT / _git(ROOT, "rev-parse", "--git-dir") / "odradek-search-block") as block:
                return _run(options, block)
        _print_total(options.record, options.sources or version_of(ROOT).sources, options.wanted)
        return 0
    except NotPossible as error:
        print(f"dev search: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
