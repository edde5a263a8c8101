"""The files of a checkpoint, wherever they are: on the driver's disk, or in a store that Hadoop or pyarrow can read."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any, Final, Protocol

_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]+):/")
# Hadoop's names of stores, as pyarrow calls them.
_ARROW_SCHEMES: Final = {"s3a": "s3", "s3n": "s3", "wasbs": "abfss"}
_ARROW: Final = frozenset({"s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"})


class CheckpointError(RuntimeError):
    """The checkpoint folder cannot be read from here, is not one, or has a form that is not known."""


class CheckpointFiles(Protocol):
    """Reads the files of one checkpoint."""

    def read(self, name: str) -> str:
        """The text of a file, named from the checkpoint's folder on. Raises CheckpointError."""
        ...


class LocalFiles:
    """A folder of the driver's file system."""

    def __init__(self, location: str) -> None:
        self._folder = Path(re.sub(r"^file:/*", "/", location))

    def read(self, name: str) -> str:
        """The text of a file. Raises CheckpointError."""
        path = self._folder / name
        try:
            return path.read_text()
        except (OSError, ValueError) as error:
            raise CheckpointError(f"cannot read {path} of Spark's checkpoint: {error}") from error


class HadoopFiles:
    """A folder that Spark's Java reads for the driver's Python, with the settings that Spark itself has."""

    def __init__(self, location: str, session: Any) -> None:
        self._location = location.rstrip("/")
        self._session = session

    def read(self, name: str) -> str:
        """The text of a file. Raises CheckpointError."""
        from py4j.protocol import Py4JError

        jvm = self._session._jvm
        try:
            path = jvm.org.apache.hadoop.fs.Path(f"{self._location}/{name}")
            files = path.getFileSystem(self._session._jsparkSession.sessionState().newHadoopConf())
            stream = files.open(path)
            try:
                return bytes(stream.readAllBytes()).decode()
            finally:
                stream.close()
        except Py4JError as error:
            reason = getattr(error, "java_exception", error)
            text = f"cannot read {self._location}/{name} of Spark's checkpoint through Hadoop: {reason}"
            raise CheckpointError(text.split("\n", 1)[0]) from error


class ArrowFiles:
    """A folder of an object store or HDFS, for Python processes without a Java; pyarrow finds the credentials."""

    def __init__(self, location: str) -> None:
        self._location = location.rstrip("/")
        self._files: Any = None
        self._folder = ""

    def read(self, name: str) -> str:
        """The text of a file. Raises CheckpointError."""
        import pyarrow as pa

        try:
            if self._files is None:
                self._files, self._folder = _arrow_files(self._location)
            with self._files.open_input_stream(f"{self._folder}/{name}") as stream:
                return bytes(stream.read()).decode()
        except (OSError, ValueError, pa.ArrowException) as error:
            text = f"cannot read {self._location}/{name} of Spark's checkpoint: {error}"
            raise CheckpointError(text.split("\n", 1)[0]) from error


def _arrow_files(location: str) -> tuple[Any, str]:
    """pyarrow's file system and the folder in it; fsspec's where pyarrow has none. Raises CheckpointError, OSError."""
    from pyarrow import fs

    scheme, _, rest = location.partition(":")
    known = _ARROW_SCHEMES.get(scheme, scheme)
    if known in _ARROW:
        files, folder = fs.FileSystem.from_uri(f"{known}:{rest}")
        return files, folder.rstrip("/")
    try:
        fsspec = importlib.import_module("fsspec")
    except ImportError:
        raise CheckpointError(
            f"{location}: Spark's Python processes read checkpoints on local disks and in {', '.join(sorted(_ARROW))}; "
            "the package fsspec adds others"
        ) from None
    # fsspec takes Hadoop's short form, dbfs:/cp, for a path on the local disk
    url = location if rest.startswith("//") else f"{scheme}://{rest}"
    try:
        files, folder = fsspec.core.url_to_fs(url)
    except (ImportError, TypeError) as error:
        raise CheckpointError(f"{location}: fsspec cannot open such a store here: {error}") from error
    return fs.PyFileSystem(fs.FSSpecHandler(files)), str(folder).rstrip("/")


def open_files(location: str, session: Any = None) -> CheckpointFiles:
    """The files of a checkpoint. With `session`, the driver's, a remote one is read by its Java."""
    scheme = _SCHEME.match(location)
    if scheme is None or scheme[1] == "file":
        return LocalFiles(location)
    if getattr(session, "_jvm", None) is not None:
        return HadoopFiles(location, session)
    return ArrowFiles(location)
