"""Levels of a worker's loggers, read and changed as `/admin/loggers` of Kafka Connect (KIP-495). Nothing is stored."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from odradek.broker.log_levels import LEVELS, ROOT, existing_loggers, level_name
from odradek.connect.errors import ConnectError

OFF: Final = "OFF"
_OFF_LEVEL: Final = logging.CRITICAL + 1


class UnknownLogger(ConnectError):
    """There is no logger, or no level, of that name."""


class Loggers:
    """The loggers of this process. Names are Python's; `root` is all of Odradek."""

    def __init__(self) -> None:
        self._changed_ms: dict[str, int] = {}

    def all(self) -> dict[str, dict[str, Any]]:
        """The documents of the loggers that have a level of their own, by name."""
        found = existing_loggers()
        return {name: self._document(name, each) for name, each in sorted(found.items()) if each.level}

    def one(self, name: str) -> dict[str, Any]:
        """The document of a logger. Raises UnknownLogger."""
        found = existing_loggers().get(name)
        if found is None:
            raise UnknownLogger(f"Logger {name} not found.")
        return self._document(name, found)

    def set_level(self, name: str, level: str) -> list[str]:
        """Set the level of a logger, which may come into being later, and of those below it; their names.

        Raises UnknownLogger for a level that does not exist.
        """
        number = _OFF_LEVEL if level.upper() == OFF else LEVELS.get(level.upper())
        if number is None:
            raise UnknownLogger(f"invalid log level '{level}': one of {', '.join((*LEVELS, OFF))} expected")
        existing = existing_loggers()
        top = existing[ROOT].name if name == ROOT else name
        chosen = {each: found for each, found in existing.items() if each == name or each.startswith(f"{top}.")}
        chosen.setdefault(name, logging.getLogger(name))
        for each, found in chosen.items():
            found.setLevel(number)
            self._changed_ms[each] = int(time.time() * 1000)
        return sorted(chosen)

    def _document(self, name: str, found: logging.Logger) -> dict[str, Any]:
        level = OFF if found.getEffectiveLevel() >= _OFF_LEVEL else level_name(found)
        return {"level": level, "last_modified": self._changed_ms.get(name)}
