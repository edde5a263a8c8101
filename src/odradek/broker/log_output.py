"""The broker's own log on standard error: one line an event, for people or as JSON."""

from __future__ import annotations

import json
import logging
import sys


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def configure_logging(level: str, form: str) -> None:
    """Send the log of all parts to standard error. `form` is "text" or "json"."""
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(_JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    # ZooKeeper's client would write its warnings by itself, in a form of its own.
    for name, lowest in (("odradek", level.upper()), ("kazoo", "WARNING")):
        root = logging.getLogger(name)
        root.handlers[:] = [handler]
        root.setLevel(lowest)
        root.propagate = False
