"""The form of log lines: one line an event, for people or as JSON, whatever clients sent.

Client ids, names of topics, groups and users, and messages of exceptions reach the log as they were received. A line
break in one of them would forge a line, an escape sequence would change what a terminal shows. The formatters escape
such characters, so that no logging call has to.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from typing import Final

TEXT_FORM: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_EXCEPTION_INDENT: Final = "    "
_OURS: Final = ("odradek", "kafka.authorizer")
"""Loggers of the product: of all parts, and of decisions, which has the name that Kafka's authorizer uses."""
_LOWEST_LEVELS: Final = {"kazoo": "WARNING", "asyncio": "WARNING"}
"""Libraries that write warnings of their own, in another form, unless they have a handler."""
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # control characters, line breaks and ESC among them
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # other line breaks, and marks that reverse the order of characters
    "\ud800-\udfff]"  # halves of characters, which cannot be encoded
)


def escaped(text: str) -> str:
    """The text in one line: what a terminal or a reader of lines would act on as `\\n`, `\\x1b`, `\\u2028`."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode("ascii"), text)


class LineFormatter(logging.Formatter):
    """An event in one line; lines of a traceback follow it, indented."""

    def format(self, record: logging.LogRecord) -> str:
        """The lines of the event, without a line break at the end."""
        record.message = escaped(record.getMessage())
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        lines = [self.formatMessage(record)]
        details = [self.formatException(record.exc_info)] if record.exc_info else []
        if record.stack_info:
            details.append(self.formatStack(record.stack_info))
        lines += [_EXCEPTION_INDENT + escaped(line) for detail in details for line in detail.split("\n")]
        return "\n".join(lines)


class JsonFormatter(logging.Formatter):
    """An event as a JSON object in one line.

    What a logging call passes as `extra={"fields": {...}}` becomes fields of the object.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The object's text; its strings have their characters back when they are parsed."""
        entry: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields: dict[str, object] | None = getattr(record, "fields", None)
        if fields is not None:
            entry.update(fields)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        # JSON itself escapes only what is below U+0020.
        text = json.dumps(entry, ensure_ascii=False)
        return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def configure_logging(level: str, form: str) -> None:
    """Send the log of all parts to standard error. `form` is "text" or "json"."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else LineFormatter(TEXT_FORM))
    for name, lowest in {**dict.fromkeys(_OURS, level.upper()), **_LOWEST_LEVELS}.items():
        root = logging.getLogger(name)
        root.handlers[:] = [handler]
        root.setLevel(lowest)
        root.propagate = False
