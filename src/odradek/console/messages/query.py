"""What a person asks of a topic's records: where to begin, how many, which ones."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

FROM: Final = ("newest", "oldest", "offset", "time", "live")
FILTERS: Final = ("text", "path", "cel")
FORMS: Final = ("auto", "text", "json", "hex")
MAX_RECORDS: Final = 500
"""Most records of one answer."""
MAX_EXPRESSION: Final = 2_000


class QueryError(ValueError):
    """A field of the form is wrong."""


class MessageQuery(NamedTuple):
    """`partition` None means all. `offset` belongs to `offset`, `time_ms` to `time`."""

    start: str = "newest"
    partition: int | None = None
    offset: int = 0
    time_ms: int = 0
    limit: int = 50
    filter: str = "text"
    expression: str = ""
    form: str = "auto"
    committed: bool = False

    @property
    def is_stream(self) -> bool:
        """Whether records arrive over time: a search, or new records."""
        return bool(self.expression) or self.start == "live"

    @property
    def is_decoded(self) -> bool:
        """Whether schemas apply; text and hex show the stored bytes."""
        return self.form in ("auto", "json")

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> MessageQuery:
        """From the fields of the form. Raises QueryError."""
        start = fields.get("from", "newest")
        if start not in FROM:
            raise QueryError(f"from: {', '.join(FROM)} expected")
        kind = fields.get("filter", "text")
        if kind not in FILTERS:
            raise QueryError(f"filter: {', '.join(FILTERS)} expected")
        form = fields.get("form", "auto")
        if form not in FORMS:
            raise QueryError(f"form: {', '.join(FORMS)} expected")
        expression = fields.get("q", "").strip()
        if len(expression) > MAX_EXPRESSION:
            raise QueryError(f"The expression has more than {MAX_EXPRESSION} characters.")
        partition = fields.get("partition", "").strip()
        return cls(
            start,
            _whole(partition, "partition", 2**31 - 1) if partition else None,
            _whole(fields.get("offset", "").strip() or "0", "offset", 2**63 - 1) if start == "offset" else 0,
            time_of(fields.get("time", "")) if start == "time" else 0,
            min(MAX_RECORDS, max(1, _whole(fields.get("limit", "").strip() or "50", "limit", 2**31))),
            kind,
            expression,
            form,
            fields.get("committed", "") == "yes",
        )


def time_of(text: str) -> int:
    """Milliseconds since the epoch, or ISO 8601, which is UTC unless it says otherwise. Raises QueryError."""
    text = text.strip()
    if text.isascii() and text.isdecimal() and 4 < len(text) < 17:
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise QueryError(f"time: {text!r}: a time such as 2026-01-31T12:00 or 1769860800000 expected") from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def _whole(text: str, name: str, most: int) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or int(text) > most:
        raise QueryError(f"{name}: {text[:40]!r} is not a whole number from 0 to {most}")
    return int(text)
