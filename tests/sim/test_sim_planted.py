"""A sample of the planted bugs; `./dev sim --planted` searches them all."""

from __future__ import annotations

import importlib

import pytest

from odradek.sim.planted import BUGS, SEED_LIMIT, planted, search

QUICK = (
    "duplicate appended",
    "stable offset ignores open transactions",
    "flush not synced",
    "offset commit not stored",
)


def test_names_are_unique_and_targets_exist() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 30
    for bug in BUGS:
        module, _, path = bug.target.partition(":")
        owner = importlib.import_module(module)
        for part in path.split(".")[:-1]:
            owner = getattr(owner, part)
        attribute = path.rpartition(".")[2]
        right = owner.__dict__[attribute]
        with planted(bug):
            assert owner.__dict__[attribute] is not right
        assert owner.__dict__[attribute] is right


@pytest.mark.parametrize("name", QUICK)
def test_planted_bugs_are_found(name: str) -> None:
    bug = next(bug for bug in BUGS if bug.name == name)
    found = search(bug, SEED_LIMIT)
    assert found.violation, f"not within {found.seeds} seeds"
