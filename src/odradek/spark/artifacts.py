"""Bring this package into a session of Spark Connect whose server and executors lack it.

`odradek pipeline pack --connect` writes this module into its archive as `odradek_connect.py`, where clients that have
PySpark alone import it. So it imports nothing of this package, but in processes of the server.

Spark unpacks the archive on the server and on every executor that runs tasks of the session, but puts only .py and
.zip artifacts on the path of Python. Hence a second artifact, `odradek.py`: it stands where Python finds it, beside the
unpacked archive, and puts the package of the archive in its place. The processes that plan streams and the tasks that
write them get no path of the session from Spark 4.3; what is pickled for them finds the archive by itself.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

FOLDER: Final = "odradek-connect"
"""The unpacked archive's name on the server and on executors, followed by a digest."""
CLIENT_MODULE: Final = "odradek_connect.py"
"""This module in the archive."""
BUILD: Final = "odradek_connect_build.txt"
"""The archive's last file: the Python and platform that it was packed for. If it is there, all of them are."""

_DIGEST_CHARACTERS: Final = 12
_STAND_IN: Final = """\
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path

_folder = Path(__file__).resolve().parent / {folder!r}
_packed = (_folder / {build!r}).read_text().strip()
_here = f"Python {{sys.version_info[0]}}.{{sys.version_info[1]}} on {{sysconfig.get_platform()}}"
if _packed != _here:
    raise ImportError(f"the archive of odradek was packed for {{_packed}}; this is {{_here}}")
sys.path.append(str(_folder))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(_folder))))
_package = _folder / "odradek"
_spec = importlib.util.spec_from_file_location(
    "odradek", _package / "__init__.py", submodule_search_locations=[str(_package)]
)
sys.modules["odradek"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sys.modules["odradek"])
"""


def build() -> str:
    """The Python and platform of this process, as an archive names them."""
    import sysconfig

    return f"Python {sys.version_info[0]}.{sys.version_info[1]} on {sysconfig.get_platform()}"


def stand_in(folder: str) -> str:
    """The text of `odradek.py`, which finds the package in a folder beside it."""
    return _STAND_IN.format(folder=folder, build=BUILD)


def attach(spark: Any, archive: str | Path | None = None) -> None:
    """Make `format("odradek")` known in a session of Spark Connect, from an archive on the client.

    Without `archive` it is the one that this module was imported from. Raises what Spark raises if the server has a
    data source of this name already.
    """
    from pyspark import cloudpickle

    path = Path(__file__).parent if archive is None else Path(archive)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no archive; `odradek pipeline pack --connect FILE.zip` writes one")
    with path.open("rb") as content:
        folder = f"{FOLDER}-{hashlib.file_digest(content, 'sha256').hexdigest()[:_DIGEST_CHARACTERS]}"
    spark.addArtifacts(f"{path.resolve()}#{folder}", archive=True)
    with tempfile.TemporaryDirectory() as temporary:
        module = Path(temporary) / "odradek.py"
        module.write_text(stand_in(folder))
        spark.addArtifacts(str(module), pyfile=True)
    # the server has no module of this name: its functions travel with their code
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(_Format())


class _Format:
    """Stands on the client for the data source's class, and becomes it on the server."""

    def name(self) -> str:
        """The format's name in `spark.read.format`."""
        return "odradek"

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return _data_source, ()


def _data_source() -> Any:
    """The class of the data source, in a process that finds the package."""
    import odradek
    from odradek.spark.data_source import OdradekDataSource

    folder = Path(str(odradek.__file__)).parents[1].name

    class AttachedDataSource(OdradekDataSource):
        """What other processes unpickle of it finds the package by itself."""

        def __reduce__(self) -> tuple[Any, tuple[str, Any]]:
            return _restored_source, (folder, self.options)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
            return _attached_writer(super().streamWriter(schema, overwrite), folder)

    return AttachedDataSource


def _attached_writer(writer: Any, folder: str) -> Any:
    """The same writer, of a class that pickles otherwise."""
    from pyspark import cloudpickle

    kind = type(writer)

    def reduce(self: Any) -> tuple[Any, tuple[str, bytes]]:
        return _restored_writer, (folder, cloudpickle.dumps((kind, self.__getstate__())))

    attached: Any = type("AttachedWriter", (kind,), {"__reduce__": reduce})
    found = attached.__new__(attached)
    found.__dict__.update(vars(writer))
    return found


def _restored_source(folder: str, options: Any) -> Any:
    """The data source in another process of the driver."""
    _make_importable(folder)
    return _data_source()(options)


def _restored_writer(folder: str, pickled: bytes) -> Any:
    """The writer in a task."""
    import pickle

    _make_importable(folder)
    kind, state = pickle.loads(pickled)  # noqa: S301 - from the driver, as all of a task
    found = kind.__new__(kind)
    found.__dict__.update(state)
    return found


def _make_importable(folder: str) -> None:
    """Put the unpacked archive on the path of Python. Raises ImportError without an archive."""
    import importlib.util
    import os

    from pyspark import SparkFiles

    if importlib.util.find_spec("odradek") is not None:
        return
    files = Path(SparkFiles.getRootDirectory())
    # beside the files of this process, or of another session
    places = (place for base in (files, files.parent) for place in (base / folder, *base.glob(f"*/{folder}")))
    found = next((each for each in places if (each / BUILD).is_file()), None)
    if found is None:
        raise ImportError(f"{files}: Spark has not unpacked {folder} here; attach it to the session again")
    sys.path.append(str(found))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(found))))
