"""A sample of the planted bugs; `./dev sim --planted` searches them all."""

from __future__ import annotations

import pytest

from odradek.sim.planted import BUGS, SEED_LIMIT, locate, planted, search

QUICK = (
    "duplicate appended",
    "stable offset ignores open transactions",
    "flush not synced",
    "offset commit not stored",
)


def test_names_are_unique_and_targets_exist() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 30
    for bug in BUGS:
        places = [locate(target) for target in bug.targets]
        right = [owner.__dict__[attribute] for owner, attribute in places]
        with planted(bug):
            for (owner, attribute), was in zip(places, right, strict=True):
                assert owner.__dict__[attribute] is not was
        assert [owner.__dict__[attribute] for owner, attribute in places] == right


@pytest.mark.parametrize("name", QUICK)
def test_planted_bugs_are_found(name: str) -> None:
    bug = next(bug for bug in BUGS if bug.name == name)
    found = search(bug, SEED_LIMIT)
    assert found.violation, f"not within {found.seeds} seeds"
