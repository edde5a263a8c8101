"""Regular expressions over topic names, in RE2's syntax and with RE2 itself.

They come from clients. Python's own engine would read the same pattern differently here and there, and can be made to
take exponential time, which would stop every client of the broker; RE2 is linear in what it is given.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from odradek.wire.errors import ErrorCode, KafkaError


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """Raises KafkaError INVALID_REGULAR_EXPRESSION. Source: KIP-848, RE2/J in Kafka."""
    import re2  # takes a moment to load, and most brokers never see a pattern

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {text}.",
        ) from error


def matching_topics(pattern: str, topics: Iterable[str]) -> frozenset[str]:
    """The names that match as a whole."""
    match = compiled(pattern).fullmatch
    return frozenset(topic for topic in topics if match(topic) is not None)
