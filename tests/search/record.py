"""The record of searches: which seeds of which profile ran on which sources, and which failed. Pure.

A line is one run of consecutive seeds of a day. Lines of several machines and branches can be put into one file in any
order; seeds that two lines share count once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple, Self

HEADER: Final = "# sources commit date profile first count failed processor-seconds"
_NONE: Final = "-"


class Searched(NamedTuple):
    """Seeds `first` to `first + seeds - 1` of a profile."""

    sources: str
    """The hash of the tree `src` in git: equal for commits with the same product and the same simulator."""
    commit: str
    date: str
    profile: str
    first: int
    seeds: int
    failed: tuple[int, ...]
    seconds: float
    """Of processors."""

    def line(self) -> str:
        """As it stands in the record."""
        failed = ",".join(map(str, self.failed)) or _NONE
        head = f"{self.sources} {self.commit} {self.date} {self.profile} {self.first} {self.seeds}"
        return f"{head} {failed} {self.seconds:.0f}"

    @classmethod
    def parse(cls, line: str) -> Self:
        """Raises ValueError."""
        sources, commit, date, profile, first, count, failed, seconds = line.split()
        failures = () if failed == _NONE else tuple(map(int, failed.split(",")))
        return cls(sources, commit, date, profile, int(first), int(count), failures, float(seconds))


def parse_record(text: str) -> list[Searched]:
    """The lines of a record. Raises ValueError with the number of a malformed line."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line and not line.startswith("#"):
            try:
                found.append(Searched.parse(line))
            except ValueError as error:
                raise ValueError(f"line {number} is malformed: {line!r}") from error
    return found


def merged(lines: Iterable[Searched]) -> list[Searched]:
    """In order, those of consecutive seeds of a profile, a version and a day as one."""
    found: list[Searched] = []
    for each in sorted(lines, key=lambda line: (line.date, line.commit, line.profile, line.first)):
        last = found[-1] if found else None
        if last is not None and last[:4] == each[:4] and last.first + last.seeds == each.first:
            found[-1] = last._replace(
                seeds=last.seeds + each.seeds, failed=last.failed + each.failed, seconds=last.seconds + each.seconds
            )
        else:
            found.append(each)
    return found


class Total(NamedTuple):
    """What was searched of one version of the product."""

    sources: str
    commits: tuple[str, ...]
    seeds: dict[str, int]
    """How many different ones, by profile."""
    failed: tuple[str, ...]
    seconds: float

    @property
    def all_seeds(self) -> int:
        """Of all profiles."""
        return sum(self.seeds.values())


def total(record: Iterable[Searched], sources: str, same_product: Collection[str] = ()) -> Total:
    """Add up the lines of these sources, and of those that have another simulator for the same product."""
    ranges: dict[str, list[tuple[int, int]]] = defaultdict(list)
    commits: dict[str, None] = {}
    failed: dict[str, None] = {}
    seconds = 0.0
    for each in record:
        if each.sources == sources or each.sources in same_product:
            ranges[each.profile].append((each.first, each.first + each.seeds))
            commits[each.commit] = None
            failed.update(dict.fromkeys(f"{each.profile}-{seed}" for seed in each.failed))
            seconds += each.seconds
    seeds = {profile: _different(found) for profile, found in sorted(ranges.items())}
    return Total(sources, tuple(commits), seeds, tuple(failed), seconds)


def _different(ranges: Iterable[tuple[int, int]]) -> int:
    count = reached = 0
    for first, end in sorted(ranges):
        count += max(0, end - max(first, reached))
        reached = max(reached, end)
    return count


def next_seed(record: Iterable[Searched], block: range, profile: str) -> int:
    """The first seed of the block that no line of this profile reaches, whatever its sources."""
    ends = [each.first + each.seeds for each in record if each.profile == profile and each.first in block]
    return max(ends, default=block.start)


def release_lines(found: Total, wanted: int) -> list[str]:
    """For the notes of a release."""
    if not found.all_seeds:
        return [f"No seed was searched on sources {found.sources[:12]}."]
    least, most = min(found.seeds.values()), max(found.seeds.values())
    each = f"{least}" if least == most else f"{least} to {most}"
    searched = (
        f"{found.all_seeds:,} different seeds on sources {found.sources[:12]} (commits {_named(found.commits)}): "
        f"{len(found.seeds)} profiles, {each} seeds each, {found.seconds / 3600:.1f} hours of a processor; "
        f"{len(found.failed)} failed{': ' if found.failed else ''}{', '.join(found.failed)}."
    )
    lines = [searched]
    if found.all_seeds < wanted:
        lines.append(f"{wanted - found.all_seeds:,} of {wanted:,} are missing.")
    return lines


def _named(commits: Sequence[str]) -> str:
    return ", ".join(commit[:10] for commit in commits)
