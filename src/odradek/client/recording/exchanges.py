"""The file of a recording: a line of JSON that describes it, then one for each request with its answer."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from odradek.client.errors import ClientError
from odradek.client.recording.documents import Document

FORMAT: Final = "odradek-recording"
VERSION: Final = 1


class RecordingError(ClientError, ValueError):
    """A recording cannot be read or written."""


class Exchange(NamedTuple):
    """A request and its answer."""

    number: int
    """Requests are numbered as they arrive."""
    connection: int
    """Connections are numbered as clients open them."""
    broker: int | None
    """The broker's id, None while no answer has named it."""
    sent_s: float
    """Seconds from the start of the recording to the request."""
    answered_s: float | None
    """Seconds to the answer; None without one."""
    api: str
    key: int
    version: int
    client_id: str | None
    request: Document | None
    """The decoded request; None where the proxy does not know its version."""
    response: Document | None
    request_bytes: bytes | None
    """The body without its header; None for messages that may hold secrets."""
    response_bytes: bytes | None


Sink = Callable[[Exchange], None]
"""Takes each exchange when it is complete."""


class RecordingFile:
    """Writes exchanges to a new file, which only its owner may read."""

    __slots__ = ("_file", "count")

    def __init__(self, path: Path) -> None:
        """Raises RecordingError if the file exists or cannot be made."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError as error:
            raise RecordingError(f"{path} exists already: choose another file") from error
        except OSError as error:
            raise RecordingError(f"{path}: {error.strerror}") from error
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")
        self.count = 0
        """Exchanges written."""
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._line({"format": FORMAT, "version": VERSION, "started": started})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, exchange: Exchange) -> None:
        """Append an exchange."""
        self.count += 1
        line = exchange._asdict()
        for name in ("request_bytes", "response_bytes"):
            data = line[name]
            line[name] = None if data is None else base64.b64encode(data).decode()
        self._line(line)

    def _line(self, document: dict[str, Any]) -> None:
        self._file.write(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n")
        self._file.flush()


def read_exchanges(path: Path) -> list[Exchange]:
    """All exchanges of a file, in the order of their requests. Raises RecordingError, naming the line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecordingError(f"{path} is not a recording: it is not UTF-8") from error
    exchanges: list[Exchange] = []
    for number, line in enumerate(lines, 1):
        try:
            document = json.loads(line)
            if number == 1:
                if document["format"] != FORMAT or document["version"] != VERSION:
                    raise RecordingError(f"{path} is not a recording of version {VERSION}")
                continue
            for name in ("request_bytes", "response_bytes"):
                if document[name] is not None:
                    document[name] = base64.b64decode(document[name], validate=True)
            exchanges.append(Exchange(**document))
        except RecordingError:
            raise
        except (ValueError, TypeError, KeyError) as error:
            raise RecordingError(f"{path}, line {number}: not an exchange of a recording ({error})") from error
    if not lines:
        raise RecordingError(f"{path} is empty")
    return sorted(exchanges)
