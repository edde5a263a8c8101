"""The package in a session of Spark Connect: what the client sends, and how processes of the server find it."""

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkFiles, cloudpickle

from odradek.spark import artifacts

PACKAGE = {"odradek/__init__.py": "place = __file__", "odradek/part.py": "", artifacts.BUILD: artifacts.build()}


class Session:
    """Notes what a client sends."""

    def __init__(self) -> None:
        self.archives: list[str] = []
        self.modules: dict[str, str] = {}
        self.registered: Any = None
        self.dataSource = self

    def addArtifacts(self, path: str, *, archive: bool = False, pyfile: bool = False) -> None:
        if archive:
            self.archives.append(path)
        if pyfile:
            self.modules[Path(path).name] = Path(path).read_text()

    def register(self, source: Any) -> None:
        self.registered = source


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "odradek-connect.zip"
    with zipfile.ZipFile(path, "w") as content:
        for name, text in PACKAGE.items():
            content.writestr(name, text)
    return path


def unpack(folder: Path, **changed: str) -> None:
    for name, text in {**PACKAGE, **changed}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run_python(program: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Without site-packages, where this package is."""
    command = [sys.executable, "-S", "-B", "-c", program]
    return subprocess.run(command, env={"PYTHONPATH": str(cwd)}, capture_output=True, text=True, check=False)


def test_client_sends_the_archive_and_a_module_that_finds_it(archive: Path) -> None:
    session = Session()
    artifacts.attach(session, archive)
    (sent,) = session.archives
    path, folder = sent.split("#")
    assert path == str(archive)
    assert folder.startswith(f"{artifacts.FOLDER}-")
    assert repr(folder) in session.modules["odradek.py"]
    assert session.registered.name() == "odradek"


def test_archives_of_other_content_have_other_folders(archive: Path) -> None:
    session = Session()
    artifacts.attach(session, archive)
    with zipfile.ZipFile(archive, "a") as content:
        content.writestr("more", "")
    artifacts.attach(session, archive)
    assert len({each.split("#")[1] for each in session.archives}) == 2


def test_registered_format_unpickles_as_the_data_source(archive: Path) -> None:
    session = Session()
    artifacts.attach(session, archive)
    found = cloudpickle.loads(cloudpickle.dumps(session.registered))
    assert found.name() == "odradek"
    assert "offset bigint" in found({}).schema()


def test_missing_archive_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="pack --connect"):
        artifacts.attach(Session(), tmp_path / "nothing.zip")


def test_stand_in_puts_the_package_of_the_archive_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "odradek.py").write_text(artifacts.stand_in("folder"))
    unpack(tmp_path / "folder")
    program = "import os, subprocess, sys, odradek, odradek.part; print(odradek.place, os.environ['PYTHONPATH'])"
    place, path = run_python(program, tmp_path).stdout.split()
    assert place == str(tmp_path / "folder" / "odradek" / "__init__.py")
    assert path == f"{tmp_path}:{tmp_path / 'folder'}"


def test_archive_of_another_python_is_an_error_that_names_both(tmp_path: Path) -> None:
    (tmp_path / "odradek.py").write_text(artifacts.stand_in("folder"))
    unpack(tmp_path / "folder", **{artifacts.BUILD: "Python 3.1 on a toaster"})
    found = run_python("import odradek", tmp_path)
    assert f"packed for Python 3.1 on a toaster; this is {artifacts.build()}" in found.stderr


@pytest.mark.parametrize("files", [".", "session", "streaming_job"])
def test_archive_is_found_beside_the_files_of_any_session(
    files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack(tmp_path / "session" / "folder")
    (tmp_path / "half" / "folder").mkdir(parents=True)  # without the archive's last file: it is being unpacked
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path / files))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    artifacts._make_importable("folder")
    assert sys.path[-1] == str(tmp_path / "session" / "folder")


def test_archive_that_is_not_unpacked_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path / "files"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="has not unpacked folder here"):
        artifacts._make_importable("folder")


def test_writer_pickles_as_the_plain_writer() -> None:
    from odradek.spark.sink import AtLeastOnceStreamWriter

    writer = AtLeastOnceStreamWriter("options")  # type: ignore[arg-type]
    attached = artifacts._attached_writer(writer, "folder")
    assert isinstance(attached, AtLeastOnceStreamWriter)
    found = cloudpickle.loads(cloudpickle.dumps(attached))
    assert type(found) is AtLeastOnceStreamWriter
    assert vars(found) == vars(writer)
