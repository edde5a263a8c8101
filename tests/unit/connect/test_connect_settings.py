"""Configurations of connectors: settings, kinds, placeholders, files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek.cli.main import main
from odradek.connect.errors import ConfigInvalid
from odradek.connect.placeholders import resolve
from odradek.connect.plugins import PLUGINS, check_config, find
from odradek.connect.settings import Checked
from odradek.connect.specification import SpecificationError, read
from odradek.connect.worker import Worker, WorkerSettings

SQL = {
    "name": "db",
    "connector.class": "SqlSink",
    "topics": "orders",
    "connection.url": "sqlite:///orders.db",
}


def checked(config: dict[str, str]) -> Checked:
    plugin = find(config["connector.class"])
    assert plugin is not None
    return check_config(plugin, config)


def test_valid_configuration_has_all_defaults() -> None:
    values, errors = checked(SQL)
    assert not errors
    assert values["topics"] == ["orders"]
    assert values["tasks.max"] == 1
    assert values["errors.tolerance"] == "none"
    assert values["insert.mode"] == "insert"


@pytest.mark.parametrize(
    ("change", "setting", "part"),
    [
        ({"tasks.maxx": "2"}, "tasks.maxx", "did you mean tasks.max"),
        ({"tasks.max": "0"}, "tasks.max", "at least 1"),
        ({"tasks.max": "two"}, "tasks.max", "whole number"),
        ({"auto.create": "yes"}, "auto.create", "true or false"),
        ({"insert.mode": "merge"}, "insert.mode", "insert, upsert"),
        ({"insert.mode": "upsert"}, "pk.mode", "upsert needs"),
        ({"delete.enabled": "true"}, "delete.enabled", "record_key"),
        ({"connection.url": "oracle://db/orders"}, "connection.url", "postgresql"),
        ({"connection.url": "mysql://db"}, "connection.url", "mysql://HOST:PORT/NAME expected"),
        ({"connection.url": "mysql://u:hun/ter2@db/o"}, "connection.url", "in place of / and @ in a password"),
        ({"connection.url": "postgresql://u:hun/ter2@db/o"}, "connection.url", "in place of / and @ in a password"),
        ({"connection.url": "postgresql://u:hun#ter2@db/o"}, "connection.url", "in place of / and @ in a password"),
        ({"connection.url": "mysql://db/o?useSSL=true"}, "connection.url", "useSSL: one of user, password, ssl_ca"),
        ({"connection.url": "mysql://db/o?ssl_key=k"}, "connection.url", "need ssl_ca"),
        ({"topics.regex": "o.*"}, "topics", "either topics or topics.regex"),
        ({"topics": "", "topics.regex": "("}, "topics.regex", "unterminated"),
        ({"value.converter": "xml"}, "value.converter", "json, string, bytes, avro, protobuf, json-schema"),
        ({"value.converter": "avro"}, "value.converter", "schema.registry.url is missing"),
        ({"value.converter": "avro", "value.converter.schema.registry.url": "r:1"}, "value.converter", "http://HOST"),
        ({"value.converter.schemas.enable": "maybe"}, "value.converter", "true or false"),
        ({"transforms": "a"}, "transforms", "MaskField"),
        ({"transforms.a.type": "DropTombstones"}, "transforms", "does not name a"),
        ({"consumer.override.max.pol.records": "5"}, "consumer.override.*", "max_pol_records"),
        ({"errors.deadletterqueue.topic.name": "orders"}, "errors.deadletterqueue.topic.name", "reads this topic"),
        (
            {"topics": "", "topics.regex": "orders.*", "errors.deadletterqueue.topic.name": "orders-bad"},
            "errors.deadletterqueue.topic.name",
            "reads this topic",
        ),
    ],
)
def test_wrong_setting_is_named_with_what_is_accepted(change: dict[str, str], setting: str, part: str) -> None:
    errors = checked({**SQL, **change}).errors
    assert list(errors) == [setting]
    assert part in errors[setting][0]


HTTP: Mapping[str, Mapping[str, str]] = {
    "HttpSink": {"topics": "orders", "http.url": "http://h/"},
    "HttpSource": {"topic": "orders", "http.url": "http://h/"},
}


@pytest.mark.parametrize("kind", HTTP)
@pytest.mark.parametrize(
    "change",
    [
        {"http.url": "http://[h"},
        {"http.url": "http://h:99999/"},
        {"http.url": "http://h:0/"},
        {"http.url": "http://user:hunter2@h/"},
        {"http.url": "http://h/a b"},
        {"http.url": "http://h/ü"},
        {"http.headers.authorization": "Bearer hunter2\nX: y"},
        {"http.headers.authorization": "Bearer hunter2€"},
    ],
)
def test_url_or_header_that_no_request_can_have_is_named(kind: str, change: dict[str, str]) -> None:
    """Requests raised errors that showed the header, or that looked as if the service were away."""
    (name,) = change
    config = {"name": "c", "connector.class": kind, **HTTP[kind]}
    assert checked(config).errors == {}
    errors = checked({**config, **change}).errors
    assert list(errors) == [name]
    assert "hunter2" not in str(errors)


def test_missing_setting_is_named() -> None:
    config = {name: text for name, text in SQL.items() if name != "connection.url"}
    assert "connection.url is missing" in checked(config).errors["connection.url"][0]


def test_wrong_password_is_not_shown() -> None:
    plugin = find("HttpSink")
    assert plugin is not None
    errors = check_config(plugin, {"name": "x", "connector.class": "HttpSink", "topics": "t", "http.url": "ftp://h/"})
    assert "ftp" not in str(errors.errors)


@pytest.mark.parametrize("name", ["SqlSink", "JdbcSinkConnector", "io.confluent.connect.jdbc.JdbcSinkConnector"])
def test_kind_is_found_by_names_of_other_connectors(name: str) -> None:
    found = find(name)
    assert found is not None
    assert found.name == "SqlSink"


def test_kinds_have_distinct_names_and_documented_settings() -> None:
    names = [name for each in PLUGINS for name in (each.name, *each.other_names)]
    assert len(set(names)) == len(names)
    for plugin in PLUGINS:
        settings = [each.name for each in plugin.all_settings()]
        assert len(set(settings)) == len(settings)
        assert all(each.documentation for each in plugin.all_settings())


@pytest.mark.parametrize("name", ["", "a/b", "a\nb", " a"])
def test_worker_rejects_names_that_do_not_fit_a_path(name: str) -> None:
    with pytest.raises(ConfigInvalid):
        Worker(WorkerSettings(clients={})).check(name, {**SQL, "name": name})


def test_unknown_class_is_an_error_of_the_configuration() -> None:
    with pytest.raises(ConfigInvalid, match="no connector class Nope"):
        Worker(WorkerSettings(clients={})).check("db", {**SQL, "connector.class": "Nope"})


# --- placeholders ---


def test_placeholder_becomes_the_secret_of_an_allowed_file(tmp_path: Path) -> None:
    (tmp_path / "db.properties").write_text("password=s3cret\n")
    (tmp_path / "token").write_text("abc\n")
    config = {
        "connection.password": f"${{file:{tmp_path}/db.properties:password}}",
        "authorization": f"Bearer ${{directory:{tmp_path}:token}}",
        "table.name.format": "${topic}",
    }
    assert resolve(config, tmp_path) == {
        "connection.password": "s3cret",
        "authorization": "Bearer abc",
        "table.name.format": "${topic}",
    }


def test_error_shows_the_placeholder_instead_of_the_secret(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2\n")
    worker = Worker(WorkerSettings({}, secrets=tmp_path))
    wrong = f"${{directory:{tmp_path}:password}}"
    _, (_, errors) = worker.validate_own({**SQL, "batch.size": wrong, "connection.url": f"mysql://u:{wrong}/@db"})
    assert errors["batch.size"] == [f"batch.size={wrong}: a whole number expected"]
    assert "hunter2" not in str(errors)


def test_placeholder_of_another_folder_is_rejected(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (tmp_path / "other").write_text("password=s3cret\n")
    with pytest.raises(ValueError, match="allowed"):
        resolve({"connection.password": f"${{file:{allowed}/../other:password}}"}, allowed)


def test_placeholder_is_rejected_without_a_folder() -> None:
    with pytest.raises(ValueError, match="--secrets"):
        resolve({"connection.password": "${file:/etc/passwd:root}"}, None)


def test_configuration_cannot_bring_providers_of_its_own(tmp_path: Path) -> None:
    config = {"config.providers": "env", "config.providers.env.class": "EnvVarConfigProvider", "a": "${env:PATH}"}
    assert resolve(config, tmp_path) == {"a": "${env:PATH}"}


# --- files ---


def test_properties_file_describes_one_connector(tmp_path: Path) -> None:
    path = tmp_path / "lines.properties"
    path.write_text("name=lines\nconnector.class=FileStreamSource\nfile=a.txt\ntopic=lines\n")
    assert read([path]) == {
        "lines": {"name": "lines", "connector.class": "FileStreamSource", "file": "a.txt", "topic": "lines"}
    }


def test_json_file_has_the_form_of_the_rest_interface(tmp_path: Path) -> None:
    path = tmp_path / "db.json"
    path.write_text(json.dumps({"name": "db", "config": {"tasks.max": 2, "auto.create": True, "topics": ["a", "b"]}}))
    assert read([path]) == {"db": {"tasks.max": "2", "auto.create": "true", "topics": "a,b"}}


def test_yaml_file_describes_several_connectors(tmp_path: Path) -> None:
    path = tmp_path / "all.yml"
    path.write_text("connectors:\n  a:\n    topics: x\n  b:\n    topics: [y, z]\n")
    assert read([path]) == {"a": {"topics": "x"}, "b": {"topics": "y,z"}}


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("a.json", "{", "Expecting"),
        ("a.json", "[]", "settings of a connector expected"),
        ("a.json", '{"topics": "x"}', "name is missing"),
        ("a.json", '{"name": "a", "topics": {"x": 1}}', "topics: a text expected"),
        ("a.yml", "a: [", "while parsing"),
        ("a.txt", "", ".properties, .json"),
    ],
)
def test_file_that_describes_no_connector_is_named(tmp_path: Path, name: str, text: str, part: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(SpecificationError, match=part) as caught:
        read([path])
    assert str(path) in str(caught.value)


def test_runner_beside_connectors_is_one_that_the_command_can_be(tmp_path: Path) -> None:
    path = tmp_path / "a.yml"
    text = "connectors: {a: {topics: x}}\nrunner: "
    path.write_text(f"{text}local")
    assert read([path], runners=("local",)) == {"a": {"topics": "x"}}
    path.write_text(f"{text}spark")
    assert read([path]) == {"a": {"topics": "x"}}
    with pytest.raises(SpecificationError, match=r"a\.yml: runner: spark needs `odradek pipeline run`"):
        read([path], runners=("local",))


@pytest.mark.parametrize("runner", ["cloud", "[local]", "true", ""])
def test_unknown_runner_is_rejected(tmp_path: Path, runner: str) -> None:
    path = tmp_path / "a.yml"
    path.write_text(f"connectors: {{a: {{topics: x}}}}\nrunner: {runner}\n")
    with pytest.raises(SpecificationError, match=r"runner=.*: one of local, spark expected"):
        read([path])


@pytest.mark.parametrize(("action", "runner"), [("run", "spark"), ("check", "cloud")])
def test_unfit_runner_ends_the_command_with_status_two(
    tmp_path: Path, action: str, runner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.yml"
    path.write_text(f"runner: {runner}\nconnectors: {{}}\n")
    assert main(["connect", action, str(path)]) == 2
    assert f"{path}: runner" in capsys.readouterr().err


def test_connector_in_two_files_is_rejected(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text('{"name": "db", "topics": "x"}')
    with pytest.raises(SpecificationError, match="described twice"):
        read([tmp_path / "a.json", tmp_path / "b.json"])
