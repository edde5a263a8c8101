import argparse
from pathlib import Path

import pytest

from odradek.cli.arguments.errors import UsageError
from odradek.cli.arguments.names import topic_partitions, topic_pattern
from odradek.cli.arguments.options import (
    ANSWER_MS,
    CONNECT_MS,
    Parser,
    add_admin,
    client_settings,
    connect_ms,
    pairs,
    read_properties,
    renamed,
    servers_of,
)
from odradek.client.config import ADMIN_DEFAULTS, CONSUMER_DEFAULTS


def parsed(*words: str) -> argparse.Namespace:
    parser = Parser()
    add_admin(parser)
    return parser.parse_args(words)


def test_servers_come_from_the_option_then_the_file_then_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ODRADEK_BOOTSTRAP_SERVER", raising=False)
    assert servers_of(parsed()) == "127.0.0.1:9092"
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVER", "env:1")
    assert servers_of(parsed()) == "env:1"
    assert servers_of(parsed(), {"bootstrap.servers": "file:2"}) == "file:2"
    assert servers_of(parsed("--bootstrap-server", "option:3"), {"bootstrap.servers": "file:2"}) == "option:3"


def test_settings_of_the_file_that_no_client_has_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "client.properties"
    file.write_text("request.timeout.ms = 5\nclient.id: me\ngroup.id=g\ninterceptor.classes=X\n")
    arguments = parsed("--command-config", str(file), "--bootstrap-server", "h:1")
    settings = client_settings(arguments, ADMIN_DEFAULTS)
    assert settings == {
        "request_timeout_ms": "5",
        "client_id": "me",
        "bootstrap_servers": "h:1",
        "socket_connection_setup_timeout_ms": CONNECT_MS,
    }
    assert capsys.readouterr().err == "not supported and ignored: interceptor.classes\n"
    assert client_settings(arguments, CONSUMER_DEFAULTS, {"group.id": "other"})["group_id"] == "other"


@pytest.mark.parametrize("setting", ["ssl.provider", "sasl.kerberos.kinit.cmd", "security.providers"])
def test_settings_that_protect_are_rejected(setting: str):
    with pytest.raises(UsageError, match=f"{setting} is not implemented"):
        client_settings(parsed("--bootstrap-server", "h:1"), ADMIN_DEFAULTS, {setting: "x"})


def test_references_to_secrets_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text(
        "config.providers=dir\nconfig.providers.dir.class=DirectoryConfigProvider\n"
        f"ssl.key.password=${{dir:{tmp_path}:password}}\n"
    )
    (tmp_path / "password").write_text("hunter2")
    assert read_properties(str(tmp_path / "client.properties"), "command-config") == {"ssl.key.password": "hunter2"}


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(UsageError, match="No such file"):
        read_properties(str(tmp_path / "none"), "command-config")


def test_how_long_to_look_for_a_broker():
    assert connect_ms(parsed()) == CONNECT_MS < ANSWER_MS
    assert connect_ms(parsed("--timeout", "9000")) == 9000
    assert connect_ms(parsed("--timeout", "9000", "--connect-timeout", "10")) == 10


def test_old_names_warn_and_exclude_the_new(capsys: pytest.CaptureFixture[str]):
    given = argparse.Namespace(property=["a=1"], reader_property=[], producer_config=None, command_config="f")
    assert renamed(given, "property", "reader-property") == ["a=1"]
    assert "--property is deprecated" in capsys.readouterr().err
    assert renamed(given, "producer.config", "command-config") == "f"
    assert capsys.readouterr().err == ""
    both = argparse.Namespace(property=["a=1"], reader_property=["b=2"])
    with pytest.raises(UsageError, match="only one"):
        renamed(both, "property", "reader-property")


def test_pairs():
    assert pairs(["a=1", "b=", "c=x=y"], "config") == {"a": "1", "b": "", "c": "x=y"}
    for wrong in ("a", "=1", " =1"):
        with pytest.raises(UsageError, match="--config"):
            pairs([wrong], "config")


def test_commas_are_alternatives_in_patterns_of_topics():
    pattern = topic_pattern('"a, b.*"')
    assert [each for each in ("a", "b", "bc", "ab") if pattern.fullmatch(each)] == ["a", "b", "bc"]
    with pytest.raises(UsageError, match="regular expression"):
        topic_pattern("(")


def test_topics_with_partitions():
    assert topic_partitions(["a", "b:0,2", "b:1"]) == {"a": None, "b": [0, 2, 1]}
    for wrong in ("a:", "a:x", ":1", "a:-1"):
        with pytest.raises(UsageError, match="TOPIC:0,1"):
            topic_partitions([wrong])


def test_repeated_lists_of_settings_add_up() -> None:
    from odradek.cli.commands import configs

    parser = argparse.ArgumentParser()
    configs.configure(parser)
    words = ["--add-config", "a=1,b=[x,y]", "--add-config", "c=3", "--delete-config", "d", "--delete-config", "e,f"]
    arguments = parser.parse_args(words)
    assert configs.added(arguments) == {"a": "1", "b": "x,y", "c": "3"}
    assert configs.deleted(arguments) == ["d", "e", "f"]
