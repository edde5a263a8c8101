"""A line of JSON about each change that a user makes through the console."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

logger = logging.getLogger(__name__)


class Audit:
    """Writes to a file, which is flushed with each line, or to the log."""

    __slots__ = ("_file",)

    def __init__(self, path: str | None) -> None:
        """Raises OSError if the file cannot be opened."""
        self._file: TextIO | None = None
        if path is not None:
            self._file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 - open as long as the console runs

    def write(self, **fields: Any) -> None:
        """Add a line. JSON escapes line ends, so that a name cannot forge a line."""
        line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **fields})
        if self._file is None:
            logger.info("%s", line)
        else:
            self._file.write(line + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
