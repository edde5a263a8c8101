"""Which changes of a module are mutants."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from tests.mutation.operators import mutants_of
from tests.mutation.workplace import ROOT


def changes(source: str) -> set[tuple[str, str]]:
    return {(mutant.before, mutant.text) for mutant in mutants_of("module.py", textwrap.dedent(source).encode())}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", {("a < b", "(a <= b)"), ("a < b", "(a >= b)")}),
        ("x = a == b", {("a == b", "(a != b)")}),
        ("x = a and b", {("a and b", "(a or b)")}),
        ("x = not a", {("not a", "(a)")}),
        ("x = a + b", {("a + b", "(a - b)")}),
        ("x += 1", {("x += 1", "x -= 1"), ("1", "2")}),
        ("x = True", {("True", "False")}),
        ("f(x)", {("f(x)", "pass")}),
        ("while True:\n    f()", {("True", "False"), ("f()", "pass")}),
        ("if a:\n    x = y", {("a", "(not a)")}),
        ("for a in b:\n    continue", {("continue", "break")}),
    ],
)
def test_operator_finds_every_change(source: str, expected: set[tuple[str, str]]) -> None:
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""Documentation."""',
        "logger.info('one')",
        "self._logger.warning('one', 2)",
        "x: int | None",
        "raise ValueError(a + 1)",
        "x = f'{a + 1}'",
        "x = 'a' + b",
        "if TYPE_CHECKING:\n    f()",
        "x = zip(a, b, strict=True)",
        "def f(a: int = 1) -> int:\n    '''Documentation.'''\n    ...",
    ],
)
def test_messages_and_types_are_no_mutants(source: str) -> None:
    assert changes(source) == set()


def test_mutant_changes_one_place_only() -> None:
    source = "# ä\nif a:\n    x = b > c\n".encode()
    changed = {mutant.apply(source).decode() for mutant in mutants_of("module.py", source)}
    assert changed == {
        "# ä\nif (not a):\n    x = b > c\n",
        "# ä\nif a:\n    x = (b >= c)\n",
        "# ä\nif a:\n    x = (b <= c)\n",
    }


def test_identity_survives_lines_above_a_mutant() -> None:
    (before,) = mutants_of("module.py", b"x = True\n")
    (after,) = mutants_of("module.py", b"import a\n\nx = True\n")
    assert before.line != after.line
    assert before.identity == after.identity


def test_equal_lines_of_a_module_have_identities_of_their_own() -> None:
    source = """
def first():
    x = 1
    x = 1

class C:
    def first(self):
        x = 1 + 1
"""
    identities = [mutant.identity for mutant in mutants_of("module.py", source.encode())]
    assert len(identities) == len(set(identities)) == 5
    assert [(scope, number) for _, scope, _, before, _, number in identities if before == "1"] == [
        ("first", 0),
        ("first", 1),
        ("C.first", 0),
        ("C.first", 1),
    ]


def test_mutant_outside_functions_runs_at_import() -> None:
    source = """
A = 1

class C:
    b = 2

    def f(self, c=3):
        return 4
"""
    found = {mutant.before: mutant.runs_at_import for mutant in mutants_of("module.py", source.encode())}
    assert found == {"1": True, "2": True, "3": True, "4": False}


def test_every_documented_equivalent_is_a_mutant() -> None:
    """One whose line was changed has lost its reason, and is judged again."""
    entries = json.loads(Path(__file__).with_name("equivalent.json").read_text())
    for entry in entries:
        path, *name = entry.get("mutant") or entry["constant"]
        mutants = mutants_of(path, (ROOT / path).read_bytes())
        found = {mutant.identity for mutant in mutants} | {(path, mutant.constant) for mutant in mutants}
        assert (path, *name) in found, entry
        assert entry["why"]


def test_mutant_of_a_constant_has_its_name() -> None:
    source = "A: Final = 1 << 2\n_B = 3\nx = 4\ndef f():\n    C = 5\n"
    names = {mutant.before: mutant.constant for mutant in mutants_of("module.py", source.encode())}
    assert names == {"1 << 2": "A", "1": "A", "2": "A", "3": "_B", "4": "", "5": ""}


def test_large_number_is_doubled() -> None:
    assert changes("x = 99") == {("99", "100")}
    assert changes("x = 100") == {("100", "200")}
