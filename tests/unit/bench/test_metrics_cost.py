"""The copy of the sources that the cost of metrics is measured against."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from bench.metrics_cost import SOURCES, STATEMENTS, without_metrics


def test_copy_lacks_the_statements_and_is_python(tmp_path: Path) -> None:
    without_metrics(SOURCES, tmp_path)
    for name, replacements in STATEMENTS.items():
        text = (tmp_path / name).read_text()
        ast.parse(text)
        assert not [statement for statement, _ in replacements if statement in text]


def test_copy_fails_when_a_statement_is_missing(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in STATEMENTS:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("pass\n")
    with pytest.raises(ValueError, match="0 times, not once"):
        without_metrics(source, tmp_path / "target")
