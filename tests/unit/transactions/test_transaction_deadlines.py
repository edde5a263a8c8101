"""When a transactional id is due: earlier, later, and without a deadline."""

from __future__ import annotations

import pytest

from odradek.transactions.deadlines import Deadlines

DUE: dict[str, int | None] = {"a": 10, "b": 20}


@pytest.fixture
def due() -> dict[str, int | None]:
    return dict(DUE)


@pytest.fixture
def deadlines(due: dict[str, int | None]) -> Deadlines:
    found = Deadlines(due.get)
    for name in due:
        found.update(name)
    return found


def test_names_are_due_in_the_order_of_their_deadlines(deadlines: Deadlines) -> None:
    assert [deadlines.pop_due(30) for _ in range(3)] == ["a", "b", None]


@pytest.mark.parametrize(("now_ms", "expected"), [(9, None), (10, "a"), (11, "a")])
def test_name_is_due_from_its_deadline(deadlines: Deadlines, now_ms: int, expected: str | None) -> None:
    assert deadlines.pop_due(now_ms) == expected


@pytest.mark.parametrize(("deadline", "next_ms"), [(5, 5), (15, 15), (25, 20), (None, 20)])
def test_deadline_moves_with_the_state_of_its_name(
    deadlines: Deadlines, due: dict[str, int | None], deadline: int | None, next_ms: int
) -> None:
    due["a"] = deadline
    deadlines.update("a")
    assert deadlines.next_ms() == next_ms


def test_name_is_due_at_its_later_deadline_without_an_update(deadlines: Deadlines, due: dict[str, int | None]) -> None:
    due["a"] = 25
    assert [deadlines.pop_due(24), deadlines.pop_due(24), deadlines.pop_due(25)] == ["b", None, "a"]


def test_forgotten_name_is_not_due(deadlines: Deadlines) -> None:
    deadlines.forget("a")
    deadlines.forget("unknown")
    assert deadlines.next_ms() == 20


def test_name_that_was_due_is_not_due_again_before_an_update(deadlines: Deadlines) -> None:
    assert deadlines.pop_due(10) == "a"
    assert deadlines.next_ms() == 20
    deadlines.update("a")
    assert deadlines.next_ms() == 10


def test_name_without_a_deadline_is_never_due() -> None:
    deadlines = Deadlines(lambda _name: None)
    deadlines.update("a")
    assert deadlines.next_ms() is None
    assert deadlines.pop_due(1 << 62) is None
