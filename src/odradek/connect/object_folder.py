"""A folder of an object store, `s3://BUCKET/PREFIX`, by obstore (extra `objects`).

Options have the names that DeltaSink's have (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and so on); what is not given comes
from the environment or the machine's role.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from odradek.connect.errors import ConnectError, TargetAway
from odradek.ports.installation import install_hint
from odradek.spark.stores.object_stores import is_away
from odradek.spark.stores.patience import first_line

STORAGE_PREFIX: Final = "storage."
_SCHEMES: Final = ("s3://", "s3a://")
_CLIENT_OPTIONS: Final = ("allow_http", "connect_timeout", "timeout", "proxy_url")
"""Options of HTTP; deltalake has them also behind `aws_`."""
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_RETRIES: Final = 3
_RETRY_TIMEOUT: Final = timedelta(seconds=20)
_BUFFER_BYTES: Final = 1 << 20


class ObjectAt(NamedTuple):
    """An object of a folder."""

    name: str
    """Path below the folder."""
    size: int
    etag: str


def is_url(directory: str) -> bool:
    """Whether a setting names a folder of an object store, or tries to."""
    return "://" in directory


def check_folder(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """What is wrong with the settings `directory` and `storage.…`."""
    directory, options = values["directory"], values[STORAGE_PREFIX]
    if not is_url(directory):
        name = next(iter(options), None)
        return {} if name is None else {"directory": [f"directory: {STORAGE_PREFIX}{name} needs s3://BUCKET/PREFIX"]}
    if find_spec("obstore") is None:
        return {"directory": [f"directory: the library is not installed (obstore): {install_hint('objects')}"]}
    try:
        ObjectFolder(directory, options)
    except ValueError as error:
        return {"directory": [f"directory: {error}"]}
    return {}


class ObjectFolder:
    """The objects below a URL. Blocks: use it in a thread. Methods raise TargetAway, ConnectError."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        """Connects to nothing yet. Raises ValueError for a URL or options that no store has."""
        from obstore.exceptions import BaseError
        from obstore.store import S3Store

        if not url.startswith(_SCHEMES) or url in _SCHEMES:
            raise ValueError("a folder or s3://BUCKET/PREFIX expected")
        self.url = url.rstrip("/")
        """The folder, without a slash at its end."""
        config: dict[str, Any] = {}
        client: dict[str, Any] = {}
        for name, text in options.items():
            plain = name.lower().removeprefix("aws_")
            if plain in _CLIENT_OPTIONS:
                client[plain] = text
            else:
                config[name.lower()] = text
        try:
            self._store: Any = S3Store.from_url(
                self.url,
                config=config,  # type: ignore[arg-type]
                client_options=client,  # type: ignore[arg-type]
                retry_config={"max_retries": _RETRIES, "retry_timeout": _RETRY_TIMEOUT},
            )
        except BaseError as error:
            raise ValueError(f"{STORAGE_PREFIX}*: {first_line(error)}") from error

    def names(self, below: str) -> Iterator[str]:
        """Paths of all objects below a folder of this folder."""
        import obstore

        with _failures(self.url):
            for page in obstore.list(self._store, prefix=below):
                for each in page:
                    yield each["path"]

    def objects(self) -> list[ObjectAt]:
        """The objects in this folder itself."""
        import obstore

        with _failures(self.url):
            found = obstore.list_with_delimiter(self._store)["objects"]
            return [ObjectAt(each["path"], each["size"], each["e_tag"] or "") for each in found]

    def attributes(self, name: str) -> dict[str, str]:
        """The metadata of an object."""
        import obstore

        with _failures(f"{self.url}/{name}"):
            return {str(key): str(text) for key, text in obstore.get(self._store, name).attributes.items()}

    def create(self, name: str, data: bytes, attributes: Mapping[str, str]) -> bool:
        """Write an object, unless there is one of that name: False then."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with _failures(f"{self.url}/{name}"):
            try:
                obstore.put(self._store, name, data, mode="create", attributes=dict(attributes), use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

    def open(self, at: ObjectAt) -> io.BufferedReader:
        """An object as a file."""
        return io.BufferedReader(_ObjectReader(self, at), _BUFFER_BYTES)

    def read(self, at: ObjectAt, start: int, end: int) -> bytes:
        """A part of an object, which is still the one that was listed."""
        import obstore

        with _failures(f"{self.url}/{at.name}"):
            options: Any = {"range": (start, end), "if_match": at.etag}
            return bytes(obstore.get(self._store, at.name, options=options).bytes())


class _ObjectReader(io.RawIOBase):
    """Reads an object in parts."""

    def __init__(self, folder: ObjectFolder, at: ObjectAt) -> None:
        self._folder = folder
        self._at = at
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._at.size}[whence]
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        end = min(self._position + len(buffer), self._at.size)
        if self._position >= end:
            return 0
        data = self._folder.read(self._at, self._position, end)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


@contextmanager
def _failures(where: str) -> Iterator[None]:
    """Raise failures of the store as TargetAway or ConnectError; one that has no such bucket is there."""
    from obstore.exceptions import BaseError, PreconditionError

    try:
        yield
    except PreconditionError as error:
        raise TargetAway(f"{where}: it was replaced while it was read") from error
    except FileNotFoundError as error:
        raise ConnectError(f"{where}: {_said(error)}") from error
    except (BaseError, OSError) as error:
        kind = TargetAway if is_away(error) else ConnectError
        raise kind(f"{where}: {_said(error)}") from error


def _said(error: Exception) -> str:
    """The first line of an error, and the code in the document that the store has answered with."""
    code = _CODE.search(str(error))
    return first_line(error).partition("<?xml")[0].rstrip(": ") + (f": {code[1]}" if code else "")
