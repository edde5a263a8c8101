"""Speculation is refused where its setting can be known before tasks run."""

import os
from pathlib import Path

import pytest

from odradek.spark.option_names import OptionError
from odradek.spark.speculation import refuse_where_known


class Processes:
    """A /proc with this process, a daemon of Python workers and Java above it."""

    def __init__(self, folder: Path, *java: str) -> None:
        self.folder = folder
        self._add(os.getpid(), 71, "python", "-m", "pyspark.daemon")
        self._add(71, 70, "python3", "daemon")
        self._add(70, 1, "/usr/bin/java", *java)

    def _add(self, pid: int, parent: int, *arguments: str) -> None:
        place = self.folder / str(pid)
        place.mkdir(parents=True)
        (place / "cmdline").write_bytes(b"\0".join(each.encode() for each in arguments) + b"\0")
        (place / "stat").write_text(f"{pid} (a) b) S {parent} 0 0")


@pytest.mark.parametrize(
    "java",
    [
        ("org.apache.spark.deploy.SparkSubmit", "--conf", "spark.speculation=true", "pyspark-shell"),
        ("-Dspark.speculation=TRUE", "org.apache.spark.Whatever"),
        ("SparkSubmit", "--conf=spark.speculation=true"),
    ],
)
def test_javas_arguments(java: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"spark\.speculation"):
        refuse_where_known({}, Processes(tmp_path, *java).folder)


@pytest.mark.parametrize("value", ["false", "tru"])
def test_other_values_pass(value: str, tmp_path: Path) -> None:
    refuse_where_known({}, Processes(tmp_path, "--conf", f"spark.speculation={value}").folder)


def test_files_of_defaults(tmp_path: Path) -> None:
    conf = tmp_path / "spark" / "conf"
    conf.mkdir(parents=True)
    (conf / "spark-defaults.conf").write_text("# a comment\nspark.master local\nspark.speculation   true\n")
    processes = Processes(tmp_path / "proc", "SparkSubmit").folder
    refuse_where_known({}, processes)
    with pytest.raises(OptionError):
        refuse_where_known({"SPARK_HOME": str(tmp_path / "spark")}, processes)
    with pytest.raises(OptionError):
        refuse_where_known({"SPARK_CONF_DIR": str(conf)}, processes)


def test_an_argument_comes_before_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.conf"
    file.write_text("spark.speculation=true\n")
    named = ("SparkSubmit", "--properties-file", str(file))
    with pytest.raises(OptionError):
        refuse_where_known({}, Processes(tmp_path / "one", *named).folder)
    refuse_where_known({}, Processes(tmp_path / "two", *named, "--conf", "spark.speculation=false").folder)


def test_without_processes_to_look_at_nothing_is_known(tmp_path: Path) -> None:
    refuse_where_known({}, tmp_path)
