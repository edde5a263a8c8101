"""The versions of functions between which the cost of metrics is measured."""

from __future__ import annotations

import pytest

from bench.metrics_cost import FUNCTIONS, Measured, code_of, versions, without


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: f"{each.owner}.{each.name}")
def test_version_without_metrics_is_shorter_and_has_the_same_arguments(function: Measured) -> None:
    _, counting, silent = versions(function)
    assert len(silent.__code__.co_code) < len(counting.__code__.co_code)
    assert (
        silent.__code__.co_varnames[: silent.__code__.co_argcount]
        == (counting.__code__.co_varnames[: counting.__code__.co_argcount])
    )
    assert not silent.__code__.co_freevars


def test_missing_statement_ends_the_measurement() -> None:
    with pytest.raises(ValueError, match="0 times in the source"):
        without("pass\n", FUNCTIONS[0].statements)


def test_missing_function_ends_the_measurement() -> None:
    with pytest.raises(LookupError, match=r"no Dispatcher\.__call__"):
        code_of("class Dispatcher: pass", FUNCTIONS[0])
