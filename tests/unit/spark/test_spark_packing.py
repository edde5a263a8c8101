"""The archive for executors: what is in it, and that it is enough for a Python without the package."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from odradek.cli.main import main
from odradek.spark import artifacts, packing


def test_archive_has_the_package_and_is_found_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the dependencies, whose compression takes seconds: tests/spark runs a cluster with all of it."""
    monkeypatch.setattr(packing, "_dependencies", lambda there: [])
    archive = tmp_path / "odradek-env.zip"
    count = packing.pack(archive)
    with zipfile.ZipFile(archive) as content:
        names = content.namelist()
        content.extractall(tmp_path / packing.FOLDER)
    assert len(set(names)) == count
    assert {"pyspark_odradek.py", "odradek/__init__.py", "odradek/spark/reading.py", "odradek/py.typed"} <= set(names)
    # without site-packages: what is imported comes from the archive
    program = "import odradek.spark.option_names as found; print(found.__file__)"
    command = [sys.executable, "-S", "-B", "-c", program]
    done = subprocess.run(
        command, env={"PYTHONPATH": packing.FOLDER}, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert packing.FOLDER in done.stdout


def test_dependencies_are_those_of_the_data_source_without_spark() -> None:
    names = {each.metadata["Name"].lower() for each in packing._dependencies()}
    assert {"pyarrow", "numpy", "cramjam", "lz4"} <= names
    assert not {"pyspark", "py4j", "deltalake", "starlette", "odradek"} & names


def test_archive_that_cannot_be_written_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_dependencies", lambda there: [])
    with pytest.raises(packing.PackingError, match="No such file or directory"):
        packing.pack(tmp_path / "nowhere" / "odradek-env.zip")


def test_archive_has_to_be_a_zip_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "pack", "odradek-env.tar"]) == 2
    assert capsys.readouterr().err == "odradek pipeline: odradek-env.tar: the name of a .zip file expected\n"


def test_pack_prints_the_settings_of_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(packing, "_dependencies", lambda there: [])
    archive = tmp_path / "a.zip"
    assert main(["pipeline", "pack", str(archive)]) == 0
    expected = f"--conf spark.archives={archive}#odradek-env --conf spark.executorEnv.PYTHONPATH=odradek-env"
    assert expected in capsys.readouterr().out


def test_archive_for_connect_has_the_client_module_and_ends_with_its_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(packing, "_dependencies", lambda there: [])
    archive = tmp_path / "odradek-connect.zip"
    assert main(["pipeline", "pack", "--connect", str(archive)]) == 0
    assert "from odradek_connect import attach; attach(spark)" in capsys.readouterr().out
    with zipfile.ZipFile(archive) as content:
        *others, last = content.namelist()
        assert last == artifacts.BUILD
        assert content.read(last).decode().strip() == artifacts.build()
    assert {artifacts.CLIENT_MODULE, "odradek/__init__.py"} <= set(others)


def test_dependencies_for_connect_are_without_those_of_spark() -> None:
    names = {each.metadata["Name"].lower() for each in packing._dependencies(packing._THERE | packing._OF_CONNECT)}
    assert "cramjam" in names
    assert not {"pyarrow", "numpy"} & names


def test_connect_option_goes_with_pack_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "run", "--connect", "views.py"]) == 2
    assert "--connect goes with pack only" in capsys.readouterr().err
