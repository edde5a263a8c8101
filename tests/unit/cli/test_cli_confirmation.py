"""What is asked before something is destroyed, and which answers count."""

import argparse
import io
from types import SimpleNamespace

import pytest

from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.terminal import confirmation
from odradek.cli.terminal.confirmation import confirm, shortened


def arguments(**given: bool) -> argparse.Namespace:
    return argparse.Namespace(**{"yes": False, "apache_compatible": False, **given})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch):
    def answer(text: str) -> Terminal:
        shown = Terminal()
        monkeypatch.setattr(confirmation, "sys", SimpleNamespace(stdin=Terminal(text), stderr=shown))
        return shown

    return answer


def test_confirmation_is_rejected_without_a_terminal():
    with pytest.raises(UsageError, match=r"this would delete 2 topics \(a, b\): confirm with --yes"):
        confirm(arguments(), "delete 2 topics", ["a", "b"])


def test_yes_and_apache_compatible_need_no_question():
    confirm(arguments(yes=True), "delete 2 topics", ["a", "b"])
    confirm(arguments(apache_compatible=True), "delete 2 topics", ["a", "b"])


def test_terminal_shows_what_is_affected_and_asks(terminal):
    shown = terminal("y\n")
    confirm(arguments(), "delete 2 topics", ["a", "b"])
    assert shown.getvalue() == "  a\n  b\nDelete 2 topics? [y/N] "


@pytest.mark.parametrize("answer", ["\n", "n\n", "yess\n", ""])
def test_any_other_answer_cancels(terminal, answer: str):
    terminal(answer)
    with pytest.raises(CommandError, match="nothing was changed"):
        confirm(arguments(), "delete 2 topics", ["a", "b"])


def test_long_lists_are_shortened():
    assert shortened(["a", "b"], 2) == "a, b"
    assert shortened(["a", "b", "c", "d"], 2) == "a, b and 2 more"
