"""Keys, order and filter of `odradek top`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from odradek.cli.actions.top_view import TopView, ordered

ROWS: Sequence[Mapping[str, Any]] = [{"topic": "ab", "n": 1}, {"topic": "b", "n": None}, {"topic": "ac", "n": 3}]


def press(keys: str, view: TopView | None = None) -> TopView:
    """The view after the keys."""
    view = view or TopView()
    for key in keys:
        view = view.press(key)
    return view


def names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [row["topic"] for row in rows]


def test_numbers_are_sorted_from_the_largest_and_texts_from_a() -> None:
    assert names(ordered(ROWS, "n", False)) == ["ac", "ab", "b"]
    assert names(ordered(ROWS, "topic", False)) == ["ab", "ac", "b"]


def test_rows_without_a_value_are_last_when_reversed() -> None:
    assert names(ordered(ROWS, "n", True)) == ["ab", "ac", "b"]
    assert names(ordered(ROWS, "topic", True)) == ["b", "ac", "ab"]


def test_keys_choose_the_view() -> None:
    assert [press(key).view for key in "btgx"] == ["brokers", "topics", "groups", "topics"]


def test_sort_key_steps_through_the_columns_of_its_view_only() -> None:
    view = press("gs")
    assert view.sorts["groups"] == "lag_per_second"
    assert press("s", view).sorts["groups"] == "group"
    assert view.sorts["topics"] == "records_per_second"


def test_reverse_key_turns_the_order_round_and_back() -> None:
    assert [press("r").is_reversed, press("rr").is_reversed] == [True, False]


def test_filter_is_typed_with_corrections_and_ends_with_enter() -> None:
    view = press("/Ax\x7f\n")
    assert (view.filter, view.typing) == ("A", None)
    view = view._replace(sorts={"topics": "n"})
    assert names(view.chosen(ROWS)) == ["ac", "ab"]


def test_escape_keeps_the_filter_that_was_there() -> None:
    assert press("/q\x1b", TopView(filter="old")).filter == "old"


def test_quit_key_is_a_letter_while_a_filter_is_typed() -> None:
    assert not press("/q").has_ended
    assert press("q").has_ended
