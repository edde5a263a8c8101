"""A sample of the planted bugs; `./dev sim --planted` searches them all."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from fractions import Fraction
from typing import Any, cast

import pytest

from odradek.sim.planted.broker_bugs import BUGS, SEED_LIMIT, Planted, planted, search
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
    assert found.violation, found.mistake or f"not within {found.seeds} seeds"


class _Product:
    async def wait(self) -> str:
        return "right"

    def fetch(self, key: str) -> str:
        return key

    @property
    def name(self) -> str:
        return "right"


def _renamed(right: Any) -> Any:
    if isinstance(right, property):
        return property(lambda self: self.gone)
    if inspect.iscoroutinefunction(right):

        async def wait(self: Any) -> Any:
            return await self.gone()

        return wait
    return lambda self, *args: self.gone


def _bug(target: str, make: Callable[[Any], Any]) -> Planted:
    return Planted("a bug", "of a test", "cluster", (f"{__name__}:_Product.{target}",), make)


def test_names_that_planted_code_takes_wrongly_are_mistakes_of_its_own() -> None:
    for target, act in (
        ("fetch", lambda: _Product().fetch("a")),
        ("wait", lambda: asyncio.run(_Product().wait())),
        ("name", lambda: _Product().name),
    ):
        with planted(_bug(target, _renamed)) as mistakes:
            with pytest.raises(AttributeError):
                act()
            (mistake,) = mistakes
            assert "'_Product' object has no attribute 'gone'" in mistake, target


def test_planted_function_that_is_called_otherwise_is_a_mistake() -> None:
    with planted(_bug("fetch", lambda _: lambda self: "wrong")) as mistakes:
        with pytest.raises(TypeError):
            _Product().fetch("a")
        assert len(mistakes) == 1


def test_exception_of_the_product_is_no_mistake_of_what_is_planted() -> None:
    def make(right: Any) -> Any:
        return lambda self, at_most: right(self, at_most)  # noqa: PLW0108 - a function of this file

    with planted(Planted("a bug", "of a test", "cluster", ("fractions:Fraction.limit_denominator",), make)) as mistakes:
        with pytest.raises(TypeError):
            Fraction(1).limit_denominator(cast("int", "a"))
        assert mistakes == []


def test_bug_with_a_mistake_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the search had found "lease outlives the session" for a day: no broker started."""
    target = "odradek.broker.kraft.heartbeat_lease:HeartbeatLease.unfenced"
    bug = Planted("a bug", "of a test", "kraft", (target,), _renamed)
    found = search(bug, 1)
    assert (found.violation, found.seeds) == ("", 1)
    assert "no attribute 'gone'" in found.mistake
