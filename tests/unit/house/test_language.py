"""Log lines, help texts, test names and docstrings follow docs/style/language.md where a test can see it."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.unit.house.sources import ROOT, functions, package_sources

DIALECT = re.compile(
    r"\b(told|tells?|hears?|heard|anew|once more|again and again|any ?more|nobody|goe?s? on|settle[sd]?|by half|"
    r"is none|in vain|so many|so long|refuse[sd]?|what is|who is)\b",
    re.IGNORECASE,
)
"""Words and turns that the table of docs/style/language.md replaces, in log lines and help texts."""

PROSE = re.compile(
    r"\b([Tt]old|[Tt]ells?|[Hh]ears?|[Hh]eard of|[Aa]new|[Oo]nce more|any more|[Nn]obody|goes on|go on|"
    r"[Ss]ettle[sd]?|by half|(?<!there )is none)\b"
)
"""Those of them that docstrings, comments and pages must not have either."""

NAMES = re.compile(PROSE.pattern + r"|\b(whoever|somebody|taken? for|for good)\b")
"""The names of tests have none of these either."""

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


@cache
def names_of_tests() -> tuple[tuple[str, str], ...]:
    """(file, name) of each test."""
    found = [
        (path.name, node.name)
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in functions(ast.parse(path.read_text()))
        if node.name.startswith("test_")
    ]
    assert len(found) > 2_000
    return tuple(found)


def test_names_of_tests_are_short() -> None:
    found = [each for each in names_of_tests() if len(each[1]) > MAX_TEST_NAME]
    assert not found, f"the story belongs in the docstring: {found}"


def test_names_of_tests_are_in_plain_english() -> None:
    found = [each for each in names_of_tests() if NAMES.search(each[1].replace("_", " "))]
    assert not found, f"docs/style/language.md says what to write instead: {found}"


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of each comment and each docstring of a program, or of each line of a page outside code blocks."""
    text = path.read_text()
    if not PROSE.search(text):
        return  # Most have none, and need not be parsed.
    if path.suffix == ".md":
        is_code = False
        for number, line in enumerate(text.splitlines(), 1):
            is_code ^= line.lstrip().startswith("```")
            if not is_code and not line.startswith("    "):
                yield number, line
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for number, line in enumerate(node.value.value.split("\n"), node.lineno):
                yield number, line


def written() -> Iterator[Path]:
    """Every program and page but generated ones, the style guide, and the changelog of what was."""
    for folder in ("src", "tests", "bench", "examples", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix in (".py", ".md") and "/wire/messages/" not in name and name != "docs/style/language.md":
                yield path
    yield from (path for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md") if (path := ROOT / name).exists())


def test_docstrings_comments_and_pages_are_in_plain_english() -> None:
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{line}: {match[0]!r} in {text.strip()!r}"
        for path in written()
        for line, text in prose(path)
        if (match := PROSE.search(text))
    ]
    assert not found, "docs/style/language.md says what to write instead:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("# The controller tells the broker.", "tells"),
        ('"""It goes on."""', "goes on"),
        ('x: int = 1\n"""Nobody reads it."""', "Nobody"),
        ('told = "told"', None),
        ('"""A count; -1 while there is none."""', None),
    ],
)
def test_prose_is_found_in_comments_and_docstrings_only(tmp_path: Path, line: str, word: str | None) -> None:
    path = tmp_path / "module.py"
    path.write_text(line)
    assert [match[0] for _, text in prose(path) if (match := PROSE.search(text))] == ([word] if word else [])


def test_loggers_have_one_name() -> None:
    """`log` is the log of a partition, and the test of log lines finds calls of `logger`."""
    found = [
        f"{source.name}:{node.lineno}: {ast.unparse(node.targets[0])}"
        for source in package_sources()
        for node in source.tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("logging.getLogger(")
        if ast.unparse(node.targets[0]) not in ("logger", "_logger")
    ]
    assert not found, "\n".join(found)
