"""Named connections: their file, which one applies, and that secrets are never shown."""

import io
import json
import os
import stat
import sys
from pathlib import Path

import pytest

from odradek.cli.arguments import options, profile_file
from odradek.cli.arguments.errors import UsageError
from odradek.cli.arguments.options import Parser, add_admin, client_settings
from odradek.cli.arguments.variables import PROFILE_VARIABLE, SERVER_VARIABLE
from odradek.cli.commands import pipeline
from odradek.cli.commands.completion import candidates
from odradek.cli.main import main
from odradek.client.config import ADMIN_DEFAULTS


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the profiles of a test lie."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for each in (PROFILE_VARIABLE, SERVER_VARIABLE):
        monkeypatch.delenv(each, raising=False)
    return tmp_path / "odradek" / "profiles.toml"


def settings(*words: str) -> dict[str, object]:
    parser = Parser()
    add_admin(parser)
    return client_settings(parser.parse(words), ADMIN_DEFAULTS)


def servers(*words: str) -> object:
    return settings(*words)["bootstrap_servers"]


def test_the_first_profile_is_used(file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["profile", "create", "local", "-b", "a:1"]) == 0
    assert main(["profile", "create", "other", "bootstrap_servers=b:1", "client_id=me"]) == 0
    assert capsys.readouterr().out == "Created profile local, which is now used.\nCreated profile other.\n"
    assert servers() == "a:1"
    assert main(["profile", "use", "other"]) == 0
    assert settings()["client_id"] == "me"
    assert servers() == "b:1"


def test_any_text_is_read_again():
    text = 'ä \U0001f600 "\\ \x01\x7f'
    profile_file.write(profile_file.Profiles("p", {"p": {"client_id": text}}))
    assert profile_file.read().profiles["p"]["client_id"] == text


def test_only_the_owner_can_read_the_file(file: Path):
    main(["profile", "create", "local", "-b", "a:1"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_option_then_environment_then_profile_then_default(monkeypatch: pytest.MonkeyPatch):
    assert servers() == options.DEFAULT_SERVER
    main(["profile", "create", "local", "-b", "profile:1"])
    main(["profile", "create", "other", "-b", "other:1"])
    assert servers() == "profile:1"
    monkeypatch.setenv(PROFILE_VARIABLE, "other")
    assert servers() == "other:1"
    monkeypatch.setenv(SERVER_VARIABLE, "environment:1")
    assert servers() == "environment:1"
    assert servers("--profile", "local") == "profile:1"
    assert servers("--profile", "local", "-b", "option:1") == "option:1"


def test_an_empty_name_chooses_no_profile(monkeypatch: pytest.MonkeyPatch):
    main(["profile", "create", "local", "-b", "profile:1"])
    assert servers("--profile", "") == options.DEFAULT_SERVER
    monkeypatch.setenv(PROFILE_VARIABLE, "")
    assert servers() == options.DEFAULT_SERVER


def test_sasl_fields_are_options_of_the_client():
    fields = ["security_protocol=SASL_SSL", "sasl_mechanism=PLAIN", "sasl_username=me"]
    main(["profile", "create", "secure", "-b", "a:1", *fields])
    found = settings()
    assert [found[name] for name in ("security_protocol", "sasl_mechanism", "sasl_plain_username")] == [
        "SASL_SSL",
        "PLAIN",
        "me",
    ]


def test_tls_fields_are_options_of_the_client():
    fields = ["security_protocol=SSL", "tls_ca=/ca.pem", "tls_certificate=/me.crt", "tls_key=/me.key"]
    main(["profile", "create", "secure", "-b", "a:1", *fields])
    found = settings()
    assert [found[name] for name in ("security_protocol", "ssl_cafile", "ssl_certfile", "ssl_keyfile")] == [
        "SSL",
        "/ca.pem",
        "/me.crt",
        "/me.key",
    ]


def test_the_current_profile_is_left_out_for_other_servers(monkeypatch: pytest.MonkeyPatch):
    main(["profile", "create", "secure", "-b", "a:1", "sasl_username=me"])
    assert servers("-b", "b:1") == "b:1"
    monkeypatch.setenv(SERVER_VARIABLE, "c:1")
    assert servers() == "c:1"
    assert "sasl_plain_username" not in settings("-b", "b:1")
    assert settings("--profile", "secure", "-b", "b:1")["sasl_plain_username"] == "me"


def test_an_unknown_profile_is_an_error(monkeypatch: pytest.MonkeyPatch):
    main(["profile", "create", "local", "-b", "a:1"])
    monkeypatch.setenv(PROFILE_VARIABLE, "prod")
    with pytest.raises(UsageError, match="there is no profile prod; profiles: local"):
        settings()


def test_secrets_are_read_from_standard_input_and_never_shown(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "stdin", io.StringIO('p"w\n'))
    assert main(["profile", "create", "secure", "-b", "a:1", "sasl_password=-"]) == 0
    assert profile_file.read().profiles["secure"]["sasl_password"] == 'p"w'
    for words in (["show"], ["show", "secure", "-o", "json"], ["list", "-o", "json"], ["list", "-o", "wide"]):
        assert main(["profile", *words]) == 0
    assert settings()["sasl_plain_password"] == 'p"w'
    captured = capsys.readouterr()
    assert 'p"w' not in captured.out + captured.err
    assert profile_file.HIDDEN in captured.out


def test_secrets_on_the_command_line_are_rejected(file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["profile", "create", "secure", "sasl_password=hunter2"]) == 2
    assert "hunter2" not in capsys.readouterr().err
    assert not file.exists()


def test_a_file_with_secrets_that_others_can_read_is_rejected(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("pw\n"))
    main(["profile", "create", "secure", "-b", "a:1", "sasl_password=-"])
    file.chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        profile_file.read()


def test_fields_are_set_and_removed():
    main(["profile", "create", "local", "-b", "a:1", "client_id=me"])
    assert main(["profile", "set", "local", "client_id=", "bootstrap_servers=b:1"]) == 0
    assert profile_file.read().profiles == {"local": {"bootstrap_servers": "b:1"}}
    assert main(["profile", "delete", "local"]) == 0
    assert profile_file.read() == profile_file.Profiles(None, {})


@pytest.mark.parametrize("text", ['"', "\\", "\x7f", "ä\n\t", "]"])
def test_any_text_survives_the_file(text: str):
    profile_file.write(profile_file.Profiles("p", {"p": {"client_id": text}}))
    assert profile_file.read().profiles["p"]["client_id"] == text


@pytest.mark.parametrize(
    "content",
    [
        "nonsense",
        "profiles = 1",
        "other = 1",
        'current = "p"',
        "[profiles.p]\nbootstrap_server = 'a:1'",
        "[profiles.p]\nbootstrap_servers = 1",
        "[profiles]\np = 1",
    ],
)
def test_a_file_that_is_wrong_is_named(content: str, file: Path):
    file.parent.mkdir()
    file.write_text(content)
    with pytest.raises(UsageError, match=str(file)):
        profile_file.read()


@pytest.mark.parametrize(
    "line",
    [
        "profile",
        "profile use",
        "profile use nothing",
        "profile delete nothing",
        "profile show",
        "profile show nothing",
        "profile list x",
        "profile use x client_id=y",
        "profile create a.b",
        "profile create a nothing=1",
        "profile create a client_id",
        "profile create a -b x:1 bootstrap_servers=y:1",
        "profile set a",
    ],
)
def test_mistakes_are_one_line_and_status_2(line: str, capsys: pytest.CaptureFixture[str]):
    assert main(line.split()) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)


def test_an_existing_profile_is_not_replaced():
    main(["profile", "create", "local", "-b", "a:1"])
    assert main(["profile", "create", "local", "-b", "b:1"]) == 2
    assert servers() == "a:1"


def test_names_of_profiles_are_completed():
    main(["profile", "create", "local", "-b", "a:1"])
    assert candidates(["topics", "--profile", "lo"]) == ["local"]
    assert "local" in candidates(["profile", "use", "lo"])


def test_profiles_are_listed_for_programs(capsys: pytest.CaptureFixture[str]):
    main(["profile", "create", "local", "-b", "a:1"])
    capsys.readouterr()
    assert main(["profile", "list", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"name": "local", "bootstrap_servers": "a:1", "current": True}]


def test_a_pipelines_program_gets_the_servers_of_the_profile(monkeypatch: pytest.MonkeyPatch):
    main(["profile", "create", "local", "-b", "a:1"])
    parser = Parser()
    pipeline.configure(parser)
    monkeypatch.setenv(SERVER_VARIABLE, "")
    pipeline.name_servers(parser.parse(["run", "x.py"]))
    assert os.environ[SERVER_VARIABLE] == "a:1"
    pipeline.name_servers(parser.parse(["--bootstrap-server", "b:1", "run", "x.py"]))
    assert os.environ[SERVER_VARIABLE] == "b:1"
