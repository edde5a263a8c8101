"""Pack what executors need to read and write topics, for a cluster whose Python has PySpark only.

The archive holds this package and its dependencies with their native code as they are installed here: executors need
the same platform and the same minor version of Python. Spark unpacks it beside each executor (`--archives`), which
finds it by PYTHONPATH.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from odradek.spark import artifacts

FOLDER: Final = "odradek-env"
"""The name under which executors find the archive unpacked."""

_OWN: Final = ("odradek", "pyspark_odradek")
_THERE: Final = frozenset({"pyspark", "py4j"})
"""What every executor has."""
_OF_CONNECT: Final = frozenset({"pyarrow", "numpy"})
"""What servers of Spark Connect have: Spark imports both before anything that a session brings."""
_EXTRAS: Final = ("", "spark", "arrow", "formats")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_MARKER: Final = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")


class PackingError(RuntimeError):
    """A part of the package is not installed here, or the archive cannot be written."""


def settings(archive: str) -> dict[str, str]:
    """Spark's settings for executors that use the archive."""
    return {"spark.archives": f"{archive}#{FOLDER}", "spark.executorEnv.PYTHONPATH": FOLDER}


def pack(path: Path, *, connect: bool = False) -> int:
    """Write the archive; its files. With `connect` it is one for `attach` of sessions. Raises PackingError."""
    written: set[str] = set()
    partial = path.with_name(f"{path.name}.partial")
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for file, name in _files(_THERE | _OF_CONNECT if connect else _THERE):
                if name not in written and not name.endswith(".pyc"):
                    written.add(name)
                    archive.write(file, name)
            if connect:
                written |= {artifacts.CLIENT_MODULE, artifacts.BUILD}
                archive.write(artifacts.__file__, artifacts.CLIENT_MODULE)
                archive.writestr(artifacts.BUILD, f"{artifacts.build()}\n")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise PackingError(f"{error.filename or path}: {error.strerror or error}") from error
    return len(written)


def _files(there: frozenset[str]) -> Iterator[tuple[Path, str]]:
    """Each file with its name in the archive."""
    for name in _OWN:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise PackingError(f"{name} cannot be found")
        origin = Path(spec.origin)
        if origin.name != "__init__.py":
            yield origin, origin.name
            continue
        for each in sorted(origin.parent.rglob("*")):
            if each.is_file():
                yield each, str(each.relative_to(origin.parent.parent))
    for distribution in _dependencies(there):
        for file in distribution.files or ():
            located = Path(str(distribution.locate_file(file)))
            if ".." not in file.parts and located.is_file():
                yield located, os.fspath(file)


def _dependencies(there: frozenset[str] = _THERE) -> list[importlib.metadata.Distribution]:
    """The distributions that the package needs on executors beyond those there, and theirs. Raises PackingError."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting: list[tuple[str, tuple[str, ...]]] = [("odradek", _EXTRAS)]
    while waiting:
        name, extras = waiting.pop()
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if extras == _EXTRAS:
                raise PackingError(f"{name} is not installed as a package") from None
            continue  # of another platform, or an extra that is not installed
        for requirement in distribution.requires or ():
            needed = _NAME.match(requirement)
            extra = _MARKER.search(requirement)
            if needed is None or (extra[1] if extra else "") not in extras:
                continue
            key = needed[0].lower().replace("_", "-")
            if key not in found and key not in there and key != "odradek":
                waiting.append((key, ("",)))
        if name != "odradek":
            found[name] = distribution
    return [found[name] for name in sorted(found)]
