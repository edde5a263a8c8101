"""The command that adds an extra works from a clone, from a file, from a repository and from a release."""

import ast
import shutil
from importlib import metadata
from pathlib import Path

import pytest

from odradek.ports import installation
from odradek.ports.installation import install_hint, requirement
from tests.unit.house.sources import PACKAGE


def test_requirement_is_the_release_when_no_origin_is_recorded():
    assert requirement("spark", None) == "'odradek[spark]'"


def test_requirement_names_the_clone_when_it_was_installed_from_one(tmp_path: Path):
    clone = tmp_path / "my clone"
    clone.mkdir()
    assert requirement("spark", {"url": clone.as_uri(), "dir_info": {}}) == f"'{clone}[spark]'"


def test_requirement_stays_editable_when_the_clone_is(tmp_path: Path):
    origin = {"url": tmp_path.as_uri(), "dir_info": {"editable": True}}
    assert requirement("zookeeper", origin) == f"--editable '{tmp_path}[zookeeper]'"


def test_requirement_names_the_wheel_when_it_was_installed_from_one(tmp_path: Path):
    wheel = tmp_path / "odradek-1.0-py3-none-any.whl"
    wheel.touch()
    assert requirement("demo", {"url": wheel.as_uri(), "archive_info": {}}) == f"'{wheel}[demo]'"


def test_requirement_is_the_release_when_the_origin_was_removed(tmp_path: Path):
    assert requirement("demo", {"url": (tmp_path / "gone").as_uri(), "dir_info": {}}) == "'odradek[demo]'"


def test_requirement_names_repository_and_revision_when_installed_from_git():
    origin = {"url": "https://example.org/odradek", "vcs_info": {"vcs": "git", "requested_revision": "v1"}}
    assert requirement("java", origin) == "'odradek[java] @ git+https://example.org/odradek@v1'"


def test_requirement_names_the_address_when_installed_from_the_web():
    origin = {"url": "https://example.org/odradek-1.0.tar.gz", "archive_info": {}}
    assert requirement("java", origin) == "'odradek[java] @ https://example.org/odradek-1.0.tar.gz'"


def test_install_hint_of_a_development_environment_names_its_clone():
    assert install_hint("spark").endswith(f"pip install --editable '{PACKAGE.parents[1]}[spark]'")


def test_install_hint_names_the_folder_when_nothing_is_installed(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert install_hint("spark").endswith(f"pip install '{PACKAGE.parents[1]}[spark]'")


@pytest.mark.parametrize(("pip", "uv", "expected"), [(1, 1, "pip"), (0, 1, "uv pip"), (0, 0, "pip")])
def test_install_hint_uses_uv_when_the_environment_has_no_pip(
    monkeypatch: pytest.MonkeyPatch, pip: int, uv: int, expected: str
):
    monkeypatch.setattr(installation, "find_spec", lambda name: object() if pip else None)
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/uv" if uv else None)
    assert install_hint("spark").startswith(f"{expected} install ")


def test_messages_take_the_command_from_install_hint():
    """No module writes `pip install 'odradek[...]'` itself: from a clone that command fails."""
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        if path.name != "installation.py" and "messages" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "pip install" in node.value
    ]
    assert found == []
