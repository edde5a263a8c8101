import argparse
import io
import json
import logging
import os
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from odradek.cli import main as program
from odradek.cli.arguments.errors import CommandError, UsageError, client_session
from odradek.cli.arguments.options import Parser
from odradek.cli.catalog import COMMANDS, load
from odradek.cli.main import joined, main
from odradek.cli.terminal.watching import repeat
from odradek.version import __version__


def failing(error: Exception) -> types.SimpleNamespace:
    def run(arguments: argparse.Namespace) -> int:
        raise error

    def configure(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("-o", "--output")

    return types.SimpleNamespace(configure=configure, run=run)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch):
    def install(error: Exception) -> None:
        monkeypatch.setattr(program, "load", lambda name: failing(error))

    return install


def test_no_command_is_a_mistake_that_shows_them(capsys: pytest.CaptureFixture[str]):
    assert main([]) == 2
    assert main(["--help"]) == 0
    assert "topics" in capsys.readouterr().out


def test_the_version(capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"odradek {__version__}\n"


def test_an_unknown_command_names_the_nearest_one(capsys: pytest.CaptureFixture[str]):
    assert main(["topcs"]) == 2
    assert capsys.readouterr().err == "odradek: unknown command 'topcs'; did you mean topics?\n"


def test_an_unknown_command_like_no_other_names_the_help(capsys: pytest.CaptureFixture[str]):
    assert main(["xyzzy"]) == 2
    assert capsys.readouterr().err == "odradek: unknown command 'xyzzy'; `odradek --help` lists the commands\n"


def test_an_unknown_option_names_the_nearest_one(capsys: pytest.CaptureFixture[str]):
    assert main(["topics", "--descibe=1"]) == 2
    assert "(did you mean --describe?)" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["--help", "topics --help", "help topics", "completion bash"])
def test_output_into_a_closed_pipe_is_not_an_error(line: str):
    reader, writer = os.pipe()
    os.close(reader)
    program = [sys.executable, "-m", "odradek.cli.main", *line.split()]
    done = subprocess.run(program, stdout=writer, stderr=subprocess.PIPE, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.fixture(params=["buffered", "unbuffered"])
def lose_reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes standard output a pipe whose reader has gone. Within a test: pytest replaces it before."""

    def lose() -> None:
        reader, writer = os.pipe()
        os.close(reader)
        if request.param == "buffered":
            made: Any = os.fdopen(writer, "w")
        else:
            raw: Any = os.fdopen(writer, "wb", 0)
            made = io.TextIOWrapper(raw, write_through=True)
        monkeypatch.setattr(sys, "stdout", made)

    return lose


def printing(result: Callable[[], int], **more: object) -> types.SimpleNamespace:
    """A command that prints much and ends with a result."""

    def run(arguments: argparse.Namespace) -> int:
        for number in range(10_000):
            print(number)
        return result()

    return types.SimpleNamespace(configure=failing(Exception()).configure, run=run, **more)


def test_command_is_completed_when_its_output_has_no_reader(
    lose_reader: Callable[[], None], monkeypatch: pytest.MonkeyPatch
):
    """The status is the result of `cluster health`, `verify` and others."""
    monkeypatch.setattr(program, "load", lambda name: printing(lambda: 3))
    lose_reader()
    assert main(["topics"]) == 3


def test_failure_is_status_1_when_the_output_has_no_reader(
    lose_reader: Callable[[], None], monkeypatch: pytest.MonkeyPatch
):
    def fail() -> int:
        raise CommandError("it failed")

    monkeypatch.setattr(program, "load", lambda name: printing(fail))
    lose_reader()
    assert main(["topics", "-o", "json"]) == 1


def test_command_that_prints_for_long_ends_with_its_reader(
    lose_reader: Callable[[], None], monkeypatch: pytest.MonkeyPatch
):
    def fail() -> int:
        raise AssertionError("it had to end before")

    monkeypatch.setattr(program, "load", lambda name: printing(fail, ENDS_WITH_ITS_READER=True))
    lose_reader()
    assert main(["topics"]) == 0


def test_command_that_repeats_ends_when_its_output_has_no_reader(
    lose_reader: Callable[[], None], monkeypatch: pytest.MonkeyPatch
):
    def fail(_seconds: float) -> None:
        raise AssertionError("it had to end before")

    monkeypatch.setattr(program, "load", lambda name: printing(lambda: repeat(lambda: print("a look") or 0, fail)))
    lose_reader()
    assert main(["topics"]) == 0


def test_output_has_escapes_for_characters_that_the_locale_lacks():
    program = [sys.executable, "-m", "odradek.cli.main", "consume", "--help"]
    done = subprocess.run(program, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u2026" in done.stdout


def test_format_and_output_exclude_each_other(capsys: pytest.CaptureFixture[str]):
    assert main(["consume", "t", "-o", "json", "-f", "%v"]) == 2
    assert "--format and --output exclude each other" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["produce", "consume"])
def test_json_of_streams_is_described_as_one_object_per_line(name: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main([name, "--help"])
    assert "json and jsonl: one object per line" in " ".join(capsys.readouterr().out.split())


def test_a_mistake_is_one_line_and_status_2(command, capsys: pytest.CaptureFixture[str]):
    command(UsageError("no such thing"))
    assert main(["topics"]) == 2
    assert capsys.readouterr().err == "odradek topics: no such thing\n"


def test_an_unknown_option_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]):
    assert main(["topics", "--nonsense"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("odradek topics: unrecognized arguments: --nonsense")
    assert captured.err.count("\n") == 1


def test_a_failure_is_one_line_and_status_1(command, capsys: pytest.CaptureFixture[str]):
    command(CommandError("CODE: it failed", "CODE"))
    assert main(["topics"]) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "odradek topics: CODE: it failed\n")


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_who_asks_for_json_gets_failures_as_json(form: str, command, capsys: pytest.CaptureFixture[str]):
    command(CommandError("CODE: it failed", "CODE"))
    assert main(["topics", "-o", form]) == 1
    assert json.loads(capsys.readouterr().out) == {"error": {"code": "CODE", "message": "it failed"}}


def test_an_interrupt_is_status_130(command):
    command(KeyboardInterrupt())
    assert main(["topics"]) == 130


def test_negative_values_are_no_options():
    assert joined(["--offset", "-10:end", "-n", "-1", "--shift-by", "-5"]) == [
        "--offset=-10:end",
        "-n",
        "-1",
        "--shift-by=-5",
    ]
    assert joined(["--offset=1", "-2", "--describe"]) == ["--offset=1", "-2", "--describe"]


@pytest.mark.parametrize("name", [each for each in COMMANDS if each != "demo"])
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"odradek {name}" in capsys.readouterr().out


CLIENTS = ("topics", "produce", "consume", "groups", "configs", "offsets", "delete-records", "cluster")


@pytest.mark.parametrize("name", CLIENTS)
def test_every_client_command_takes_the_connection_options(name: str):
    parser = Parser()
    load(name).configure(parser)
    options = {each for action in parser._actions for each in action.option_strings}
    assert {"--bootstrap-server", "--command-config", "--connect-timeout", "-o", "--version"} <= options


def test_warnings_of_the_client_are_lines_of_a_long_command(capsys: pytest.CaptureFixture[str]):
    with client_session("consume"):
        logging.getLogger("odradek.client.network.cluster").warning("topic t: no leader; retrying")
    assert capsys.readouterr().err == "odradek consume: topic t: no leader; retrying\n"


def test_warnings_of_the_client_do_not_join_an_error(capsys: pytest.CaptureFixture[str]):
    def fail() -> None:
        with client_session():
            logging.getLogger("odradek.client.network.cluster").warning("topic t: no leader; retrying")
            raise CommandError("it failed")

    with pytest.raises(CommandError):
        fail()
    assert capsys.readouterr().err == ""


def in_shell(redirected: str) -> subprocess.CompletedProcess[str]:
    """`odradek --help` with these redirections."""
    line = f'"$0" -m odradek.cli.main --help {redirected}'
    return subprocess.run(["sh", "-c", line, sys.executable], stderr=subprocess.PIPE, text=True, timeout=60)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_output_to_a_full_disk_fails_in_one_line():
    done = in_shell("> /dev/full")
    assert (done.returncode, done.stderr) == (
        1,
        "odradek: cannot write the output: No space left on device\n",
    )


@pytest.mark.parametrize("closed", [">&-", "<&-", "<&- >&-"])
def test_closed_streams_are_like_the_null_device(closed: str):
    done = in_shell(f"{closed} {'' if '>' in closed else '> /dev/null'}")
    assert (done.returncode, done.stderr) == (0, "")
