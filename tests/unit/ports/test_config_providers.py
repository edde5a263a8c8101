"""References to secrets: the three providers, what they may read, and errors that show nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.config_errors import ConfigError
from odradek.ports.config_providers import ProviderError, Resolved, resolve_references

CLASSES = "org.apache.kafka.common.config.provider."
PROVIDERS = {
    "config.providers": "file,dir,env",
    "config.providers.file.class": f"{CLASSES}FileConfigProvider",
    "config.providers.dir.class": f"{CLASSES}DirectoryConfigProvider",
    "config.providers.env.class": f"{CLASSES}EnvVarConfigProvider",
}


def resolve(settings: Mapping[str, str]) -> Resolved:
    return resolve_references(PROVIDERS | dict(settings), lambda path: Path(path).read_bytes())


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "file.properties").write_text("key=hunter2\nother = x y \n")
    (folder / "password").write_text("hunter3")
    return folder


def test_providers_supply_values(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED", "hunter4")
    found = resolve(
        {
            "a": f"${{file:{secrets}/file.properties:key}}",
            "b": f"x ${{dir:{secrets}:password}} y ${{env:PLANTED}}",
            "c": "plain ${other:text} $",
        }
    )
    assert found.settings == {"a": "hunter2", "b": "x hunter3 y hunter4", "c": "plain ${other:text} $"}
    assert "hunter" not in repr(found)


def test_values_are_not_resolved_again(secrets: Path) -> None:
    (secrets / "password").write_text("${env:HOME}")
    assert resolve({"a": f"${{dir:{secrets}:password}}"}).settings == {"a": "${env:HOME}"}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"a": "${file:FOLDER/file.properties:none}"}, "a: .*: the file has no such key"),
        ({"a": "${file:FOLDER/none:key}"}, "a: .*: No such file"),
        ({"a": "${file:key}"}, "a: .*: a path is expected"),
        ({"a": "${dir:FOLDER:../password}"}, "a: .*: the name of a file in the folder"),
        ({"a": "${env:NO_SUCH_VARIABLE}"}, "a: .*: the environment variable is not set"),
        ({"a": "${env:x:HOME}"}, "an environment variable has no path"),
        ({"config.providers": "vault"}, "config.providers.vault.class=: one of FileConfigProvider"),
        ({"config.providers.file.class": "com.evil.Provider"}, "class=com.evil.Provider: one of"),
        ({"config.providers.vault.param.token": "hunter2"}, "vault is not in config.providers"),
        ({"config.providers.file.param.token": "hunter2"}, "param.allowed.paths and param.allowlist.pattern"),
        ({"config.providers.env.param.allowlist.pattern": "("}, "allowlist.pattern="),
        ({"config.providers.env.param.allowlist.pattern": "A_.*", "a": "${env:HOME}"}, "does not match the name"),
        (
            {"config.providers.file.param.allowed.paths": "/elsewhere", "a": "${file:FOLDER/file.properties:key}"},
            "does not allow the path",
        ),
    ],
)
def test_unusable_references_are_errors(settings: dict[str, str], text: str, secrets: Path) -> None:
    with pytest.raises(ProviderError, match=text) as raised:
        resolve({name: value.replace("FOLDER", str(secrets)) for name, value in settings.items()})
    assert "hunter" not in str(raised.value)


def test_allowed_paths_are_compared_after_links(secrets: Path, tmp_path: Path) -> None:
    link = tmp_path / "allowed"
    link.mkdir()
    (link / "password").symlink_to(secrets / "password")
    allowed = {"config.providers.dir.param.allowed.paths": str(link)}
    with pytest.raises(ProviderError, match="does not allow the path"):
        resolve(allowed | {"a": f"${{dir:{link}:password}}"})


def test_broker_resolves_references_of_its_file_only(secrets: Path, tmp_path: Path) -> None:
    lines = [f"{name}={value}" for name, value in PROVIDERS.items()]
    file = tmp_path / "server.properties"
    file.write_text("\n".join([*lines, f"sasl.jaas.config=${{dir:{secrets}:password}}", "broker.rack=${env:HOME}"]))
    with pytest.raises(ConfigError) as raised:
        BrokerConfig.load(str(file), {"log.dirs": "${env:HOME}"})
    assert "hunter" not in str(raised.value)
    file.write_text("\n".join([*lines, f"broker.rack=${{dir:{secrets}:password}}"]))
    config = BrokerConfig.load(str(file), {"log.dirs": "${env:HOME}"})
    assert config.text("broker.rack") == "hunter3"
    assert config.log_dirs == ["${env:HOME}"]


def test_errors_do_not_show_resolved_values(secrets: Path, tmp_path: Path) -> None:
    lines = [f"{name}={value}" for name, value in PROVIDERS.items()]
    file = tmp_path / "server.properties"
    file.write_text("\n".join([*lines, f"num.partitions=${{dir:{secrets}:password}}"]))
    with pytest.raises(ConfigError, match=r"num\.partitions") as raised:
        BrokerConfig.load(str(file))
    assert "hunter" not in str(raised.value)
