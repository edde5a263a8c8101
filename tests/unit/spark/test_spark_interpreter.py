"""`odradek-python`: which archives leave the search path, and what becomes of the process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.spark import interpreter
from odradek.spark.interpreter import unpacked

PY4J = "py4j-0.10.9.9-src.zip"


def spark_home(at: Path, *, package: bool) -> Path:
    """An installed pyspark, or a distribution, with modules beside the archives."""
    for folder in ("python/lib", "python/pyspark", "jars"):
        (at / folder).mkdir(parents=True)
    ((at if package else at / "python" / "pyspark") / "worker.py").touch()
    for archive in ("pyspark.zip", PY4J):
        (at / "python" / "lib" / archive).touch()
    return at


def search_path(home: Path, *more: str) -> str:
    archives = [str(home / "python" / "lib" / name) for name in ("pyspark.zip", PY4J)]
    return os.pathsep.join([*archives, str(home / "jars" / "spark-core_2.13-4.3.0.jar"), *more])


def test_the_installed_package_needs_no_archives(tmp_path: Path) -> None:
    home = spark_home(tmp_path / "pyspark", package=True)
    (tmp_path / "py4j-0.10.9.9.dist-info").mkdir()
    assert unpacked(search_path(home, "/mine", "/mine"), [str(tmp_path)]) == "/mine"


def test_another_version_of_py4j_is_no_substitute(tmp_path: Path) -> None:
    home = spark_home(tmp_path / "pyspark", package=True)
    (tmp_path / "py4j-0.10.9.7.dist-info").mkdir()
    assert unpacked(search_path(home), [str(tmp_path)]) == str(home / "python" / "lib" / PY4J)


def test_a_package_that_this_python_does_not_see_is_left_to_its_archives(tmp_path: Path) -> None:
    home = spark_home(tmp_path / "pyspark", package=True)
    (tmp_path / "py4j-0.10.9.9.dist-info").mkdir()
    assert unpacked(search_path(home, "/mine"), ["/elsewhere"]) == search_path(home, "/mine")


def test_a_distribution_has_the_modules_in_a_folder(tmp_path: Path) -> None:
    home = spark_home(tmp_path / "spark-4.3.0", package=False)
    expected = [str(home / "python"), str(home / "python" / "lib" / PY4J), "/mine"]
    assert unpacked(search_path(home, "/mine"), [str(tmp_path)]) == os.pathsep.join(expected)


@pytest.mark.parametrize("path", ["", "/mine", "/a/files.zip", "/jars/spark-core_2.13-4.3.0.jar", "pyspark.zip"])
def test_what_is_not_sparks_stays(path: str) -> None:
    assert unpacked(path, sys.path) == path


def test_a_spark_with_nothing_unpacked_stays_as_it_is(tmp_path: Path) -> None:
    assert unpacked(search_path(tmp_path / "spark"), sys.path) == search_path(tmp_path / "spark")


def test_the_command_is_used_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python3"
    monkeypatch.setattr(sys, "executable", str(python))
    assert interpreter.launcher() == str(python)
    command = tmp_path / interpreter.COMMAND
    command.touch(mode=0o755)
    assert interpreter.launcher() == str(command)


def test_it_becomes_python_with_the_arguments_in_the_same_process(tmp_path: Path) -> None:
    home = spark_home(tmp_path / "spark", package=False)
    source = Path(interpreter.__file__).parents[2]
    become = [sys.executable, "-c", "from odradek.spark.interpreter import main; main()"]
    show = "import os, sys; print(os.getpid(), sys.argv[1:], os.environ['PYTHONPATH'])"
    environment = {**os.environ, "PYTHONPATH": search_path(home, str(source))}
    process = subprocess.Popen([*become, "-c", show, "a", "b c"], env=environment, stdout=subprocess.PIPE, text=True)
    said = process.communicate()[0].strip()
    path = os.pathsep.join([str(home / "python"), str(home / "python" / "lib" / PY4J), str(source)])
    assert (process.returncode, said) == (0, f"{process.pid} ['a', 'b c'] {path}")
