import shutil
import subprocess

import pytest

from odradek.cli.catalog import COMMANDS
from odradek.cli.commands import completion
from odradek.cli.commands.completion import candidates
from odradek.cli.main import main


def test_commands():
    assert candidates(["to"]) == ["tokens", "top", "topics"]
    assert set(COMMANDS) < set(candidates([""]))


def test_options_that_are_not_on_the_line_yet(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(completion, "asked", lambda words, question: [])
    assert candidates(["topics", "--list", "--under-m"]) == ["--under-min-isr-partitions"]
    found = candidates(["topics", "--list", "--config", "a=b", ""])
    assert "--list" not in found
    assert "--config" in found


def test_old_names_are_not_offered():
    assert "--property" not in candidates(["produce", "--prop"])


def test_values_of_options():
    assert candidates(["topics", "--output", "js"]) == ["json", "jsonl"]
    assert candidates(["consume", "--isolation-level", ""]) == ["read_uncommitted", "read_committed"]
    assert candidates(["configs", "--entity-type", "top"]) == ["topics"]
    assert candidates(["topics", "--command-config", "x"]) == [":"]
    assert candidates(["topics", "--partitions", ""]) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("topics --create --config retention.m", ["retention.ms="]),
        ("configs --alter --topic t --add-config retention.m", ["retention.ms="]),
        ("configs --alter --topic t --add-config a=1,retention.m", ["a=1,retention.ms="]),
        ("configs --alter --entity-type topics --entity-name t --delete-config retention.m", ["retention.ms"]),
        ("configs --alter --broker 1 --add-config log.retention.m", ["log.retention.ms="]),
        ("configs --alter --group g --add-config consumer.session", ["consumer.session.timeout.ms="]),
        ("configs --alter --user u --add-config x", []),
        ("serve --set log.retention.h", ["log.retention.hours="]),
    ],
)
def test_names_of_settings_are_completed(line: str, expected: list[str]):
    assert candidates(line.split()) == expected


def test_positional_arguments():
    assert candidates(["completion", "f"]) == ["fish"]
    assert candidates(["serve", ""]) == [":"]


def test_an_unknown_command_has_nothing_to_offer():
    assert candidates(["nonsense", "--"]) == []


def test_topics_and_groups_are_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(completion, "asked", lambda words, question: [question.__name__, "other"])
    assert candidates(["topics", "--describe", "--topic", "to"]) == ["topics"]
    assert candidates(["groups", "--group", "g"]) == ["groups"]
    assert candidates(["topics", "to"]) == ["topics"]
    assert candidates(["groups", "gr"]) == ["groups"]


def test_a_cluster_that_cannot_be_reached_has_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(completion, "_CONNECT_MS", 50)
    assert candidates(["topics", "--bootstrap-server", "127.0.0.1:1", "--topic", ""]) == []


def test_a_shell_must_be_named(capsys: pytest.CaptureFixture[str]):
    assert main(["completion"]) == 2
    assert "bash" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_valid_for_their_shell(shell: str, capsys: pytest.CaptureFixture[str]):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "completion --complete" in script
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here to read the script")
    subprocess.run([program, "-n"], input=script, text=True, check=True, timeout=30)


def test_bash_completes_words_with_colons(tmp_path):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    (tmp_path / "odradek").write_text('#!/bin/sh\nprintf "<%s>\\n" "$@"\n')
    (tmp_path / "odradek").chmod(0o755)
    line = 'COMP_LINE="odradek topics --bootstrap-server h:1 --topic "; COMP_POINT=${#COMP_LINE}'
    call = f'PATH="{tmp_path}:$PATH"; {line}; _odradek; echo "${{COMPREPLY[@]}}"\n'
    script = completion._SCRIPTS["bash"] + call
    found = subprocess.run([bash], input=script, capture_output=True, text=True, check=True, timeout=30).stdout
    assert found == "<completion> <--complete> <topics> <--bootstrap-server> <h:1> <--topic> <>\n"
