"""A sample of the planted bugs; `./dev sim --planted` searches them all."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from odradek.sim.planted.broker_bugs import BUGS, SEED_LIMIT, planted, search
from odradek.sim.targets import locate

QUICK = (
    "duplicate appended",
    "stable offset ignores open transactions",
    "flush not synced",
    "offset commit not stored",
    "lease ignores deposed controllers",
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


def test_what_is_planted_is_called_as_what_was_right() -> None:
    """Else it is found by the exception that the call raises, and not by a checker."""
    for bug in BUGS:
        for target in bug.targets:
            owner, attribute = locate(target)
            right = owner.__dict__[attribute]
            wrong = bug.make(right)
            if inspect.isfunction(right) and inspect.isfunction(wrong):
                expected, given = (_kinds(each) for each in (right, wrong))
                assert given == expected or _ANY & set(given), f"{bug.name}: {target}"


_ANY = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


def _kinds(function: Callable[..., object]) -> list[object]:
    return [each.kind for each in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("name", QUICK)
def test_planted_bugs_are_found(name: str) -> None:
    bug = next(bug for bug in BUGS if bug.name == name)
    found = search(bug, SEED_LIMIT)
    assert found.violation, f"not within {found.seeds} seeds"
