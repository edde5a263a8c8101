"""Expressions of searches read only the parts of a record that they name."""

from typing import Any

import pytest

from odradek.console.messages.filter_worker import compiled, evaluate, variables_of

RECORD: dict[str, Any] = {
    "topic": "orders", "partition": 1, "offset": 7, "timestamp": 1000,
    "key": "eu-1", "value": '{"total": 120}', "headers": [["trace", "a"]],
}  # fmt: skip


def test_cel_names_are_those_that_it_reads() -> None:
    expression = compiled("cel", "value.total > 100 && [1].exists(key, key == 1)")
    assert "value" in expression.names
    assert "headers" not in expression.names
    assert variables_of(RECORD, {"value"}) == {"value": {"total": 120}}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("value.total > 100", [0]),
        ("value.total > 200", []),
        ("key.startsWith('eu-') && headers.trace == 'a'", [0]),
        ("topic == 'orders' && partition == 1 && offset == 7 && timestamp == 1000", [0]),
        ("record.keyAsText == 'eu-1' && record.value.total == 120 && record.headers.trace == 'a'", [0]),
        ("true", [0]),
    ],
)
def test_cel_selects_records(text: str, found: list[int]) -> None:
    assert evaluate(compiled("cel", text), [RECORD]) == {"found": found, "failed": 0, "why": ""}


def test_unknown_name_fails_for_each_record() -> None:
    answer = evaluate(compiled("cel", "valeu.total > 100"), [RECORD, RECORD])
    assert (answer["found"], answer["failed"]) == ([], 2)
    assert "valeu" in answer["why"]


def test_json_path_reads_the_value_alone() -> None:
    expression = compiled("path", "$[?@ == 120]")
    assert set(expression.names) == {"value"}
    assert evaluate(expression, [RECORD])["found"] == [0]


@pytest.mark.parametrize("kind", ["cel", "path"])
def test_expression_that_cannot_be_read_is_an_error(kind: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        compiled(kind, "((")
