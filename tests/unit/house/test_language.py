"""Log lines, help texts, test names and docstrings follow docs/style/language.md where a test can see it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.unit.house.sources import ROOT, functions, package_sources

DIALECT = re.compile(
    r"\b(told|tells?|hears?|heard|anew|once more|again and again|any ?more|nobody|goe?s? on|settle[sd]?|by half|"
    r"is none|in vain|so many|so long|refuse[sd]?|what is|who is)\b",
    re.IGNORECASE,
)
"""Words and turns that the table of docs/style/language.md replaces."""

MAX_TEST_NAME = 70
LOG_CALLS = {f"logger.{level}" for level in ("debug", "info", "warning", "error", "exception", "critical")}


def strings(node: ast.AST) -> Iterator[str]:
    """The literal text in an expression, the fixed parts of an f-string included."""
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, text) of each log line and each help text."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if ast.unparse(node.func) in LOG_CALLS and node.args:
            yield node.lineno, " ".join(strings(node.args[0]))
        for keyword in node.keywords:
            if keyword.arg in ("help", "description"):
                yield node.lineno, " ".join(strings(keyword.value))


def test_log_lines_and_help_texts_are_in_plain_english() -> None:
    found = [
        f"{source.name}:{line}: {match[0]!r} in {text!r}"
        for source in package_sources()
        for line, text in messages(source.tree)
        if (match := DIALECT.search(text))
    ]
    assert not found, "\n".join(found)


def test_names_of_tests_are_short() -> None:
    tests = [
        (path.name, node.name)
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in functions(ast.parse(path.read_text()))
        if node.name.startswith("test_")
    ]
    assert len(tests) > 2_000
    assert [each for each in tests if len(each[1]) > MAX_TEST_NAME] == [], "the story belongs in the docstring"
