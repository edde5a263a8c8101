"""`odradek-python`: this Python, for PYSPARK_PYTHON, without the archives that Spark puts before everything else.

Spark makes its Python processes load PySpark from an archive, which keeps no bytecode: each process that is not
forked compiles some 150 modules again, about 0.7 s of processor time, and every streaming query starts such a process
before its first micro-batch. The same modules lie unpacked beside the archive; from there they are compiled once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

COMMAND: Final = "odradek-python"


def unpacked(path: str, search: Sequence[str]) -> str:
    """A PYTHONPATH where PySpark's archives are replaced by the same modules unpacked, as far as these are there.

    `search` is where Python looks without PYTHONPATH. Archives that are not PySpark's, and those of a Spark that has
    nothing unpacked, stay as they are.
    """
    found: list[str] = []
    homes: set[Path] = set()
    for entry in filter(None, path.split(os.pathsep)):
        place = Path(entry)
        home = place.parents[2] if len(place.parents) > 2 else place
        if place == home / "python" / "lib" / "pyspark.zip":
            instead = _instead_of(home, search)
            if instead is not None:
                homes.add(home)
                found += instead
                continue
        elif place.parent == home / "python" / "lib" and home in homes and _has_py4j(place.name, home, search):
            continue
        elif place.parent.parent in homes and place.match("jars/spark-core_*.jar"):
            continue  # has no Python in it, but would be searched for every module
        found.append(entry)
    return os.pathsep.join(dict.fromkeys(found))


def _instead_of(home: Path, search: Sequence[str]) -> list[str] | None:
    """The folders to search instead of a Spark home's archive of PySpark; None if there are none."""
    if (home / "worker.py").is_file() and home.name == "pyspark" and str(home.parent) in search:
        return []  # this Spark is the installed package
    if (home / "python" / "pyspark" / "worker.py").is_file():
        return [str(home / "python")]
    return None


def _has_py4j(archive: str, home: Path, search: Sequence[str]) -> bool:
    """Whether Python finds the archive's version of Py4J, which is named py4j-1.2.3-src.zip, without it."""
    installed = home.parent / f"{archive.removesuffix('-src.zip')}.dist-info"
    return archive.startswith("py4j-") and str(home.parent) in search and installed.is_dir()


def launcher() -> str:
    """The Python interpreter to name to Spark: the command if it is installed beside this Python."""
    command = Path(sys.executable).with_name(COMMAND)
    return str(command) if os.name == "posix" and os.access(command, os.X_OK) else sys.executable


def main() -> NoReturn:
    """Become Python, with the arguments given. The process stays the same one, so Spark can end it."""
    path = os.environ.get("PYTHONPATH", "")
    given = set(path.split(os.pathsep))
    os.environ["PYTHONPATH"] = unpacked(path, [each for each in sys.path if each not in given])
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606 - itself, with Spark's arguments
