"""Tables on a terminal, and `--watch`."""

import io
import re
from collections.abc import Callable

import pytest

from odradek.cli.arguments.errors import CommandError
from odradek.cli.terminal.output import Column, show
from odradek.cli.terminal.rendering import style_of
from odradek.cli.terminal.watching import INTERVAL_S, Frame, drawn, repeat

COLUMNS = (Column("NAME", "name"), Column("LAG", "lag"), Column("STATE", "state"))
ROWS = ({"name": "漢字", "lag": 0, "state": "Stable"}, {"name": "ab", "lag": 12, "state": None})
PLAIN = "NAME LAG STATE\n漢字 0   Stable\nab   12  -\n"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal with colours, whatever runs the test."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "COLORTERM", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def stdout(monkeypatch: pytest.MonkeyPatch) -> Callable[[io.StringIO], io.StringIO]:
    def use(stream: io.StringIO) -> io.StringIO:
        monkeypatch.setattr("sys.stdout", stream)
        return stream

    return use


def test_tables_are_coloured_and_aligned_by_cells_on_a_terminal(stdout):
    terminal = stdout(Frame())
    show(ROWS, COLUMNS, None)
    shown = terminal.getvalue()
    assert ESCAPES.sub("", shown) == PLAIN
    assert "\x1b[1mNAME" in shown
    assert "\x1b[32m Stable" in shown
    assert "\x1b[33m 12" in shown


def test_tables_are_plain_without_a_terminal(stdout):
    file = stdout(io.StringIO())
    show(ROWS[1:], COLUMNS, None)
    assert file.getvalue() == "NAME LAG STATE\nab   12  -\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_tables_are_plain_on_request(name: str, value: str, stdout, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(name, value)
    terminal = stdout(Frame())
    show(ROWS, COLUMNS, None)
    assert "\x1b" not in terminal.getvalue()


@pytest.mark.parametrize("output", ["tsv", "json", "jsonl", "yaml"])
def test_output_for_programs_has_no_colours_on_a_terminal(output: str, stdout):
    terminal = stdout(Frame())
    show(ROWS, COLUMNS, output)
    assert "\x1b" not in terminal.getvalue()


def test_lines_longer_than_the_terminal_are_not_broken(stdout, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "20")
    terminal = stdout(Frame())
    show([{"name": "x" * 50, "lag": 1, "state": "y" * 50}], COLUMNS, None)
    assert terminal.getvalue().count("\n") == 2


@pytest.mark.parametrize(
    ("key", "text", "style"),
    [
        ("lag", "0", ""),
        ("lag", "3", "yellow"),
        ("lag", "-", "dim"),
        ("role", "dead", "red"),
        ("status", "Error: no", "red"),
        ("error", "UNKNOWN", "red"),
        ("topic", "orders", ""),
    ],
)
def test_styles_show_trouble(key: str, text: str, style: str):
    assert style_of(key, text) == style


class Ended(Exception):
    """Ctrl-C, after some looks."""


def pauses(count: int) -> Callable[[float], None]:
    left = iter(range(count))

    def pause(seconds: float) -> None:
        assert seconds == INTERVAL_S
        if next(left, None) is None:
            raise Ended

    return pause


def test_a_watch_prints_each_look_without_a_terminal(stdout):
    file = stdout(io.StringIO())
    looks = iter("abc")
    with pytest.raises(Ended):
        repeat(lambda: print(next(looks)) or 0, pauses(2))
    assert file.getvalue() == "a\nb\nc\n"


def test_a_watch_redraws_a_terminal(stdout):
    terminal = stdout(Frame())
    looks = iter(["first", "second"])
    with pytest.raises(Ended):
        repeat(lambda: print(next(looks)) or 0, pauses(1))
    shown = terminal.getvalue()
    assert "first" in shown
    assert "\x1b[2K" in shown[shown.index("first") : shown.index("second")]


def test_watch_shows_a_failure_and_continues(stdout):
    terminal = stdout(Frame())
    looks = iter(["first", CommandError("cannot reach a broker"), "third"])

    def look() -> int:
        found = next(looks)
        if isinstance(found, CommandError):
            raise found
        print(found)
        return 0

    with pytest.raises(Ended):
        repeat(look, pauses(2))
    shown = ESCAPES.sub("", terminal.getvalue())
    assert shown.index("cannot reach a broker") < shown.index("third")


def test_a_watch_ends_when_the_first_look_fails(stdout):
    stdout(Frame())

    def look() -> int:
        raise CommandError("cannot reach a broker")

    with pytest.raises(CommandError):
        repeat(look, pauses(1))


def test_a_frame_has_colours():
    def look() -> int:
        show(ROWS, COLUMNS, None)
        return 0

    assert "\x1b[1m" in drawn(look)
