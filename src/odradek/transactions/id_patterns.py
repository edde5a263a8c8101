"""Patterns over transactional ids (KIP-1152), in RE2's syntax and with RE2 itself: linear in what it is given."""

from __future__ import annotations

from collections.abc import Callable

from odradek.wire.errors import ErrorCode, KafkaError


def id_matcher(pattern: str) -> Callable[[str], object]:
    """Answers something true for an id that matches as a whole. Raises KafkaError INVALID_REGULAR_EXPRESSION."""
    import re2  # takes a moment to load, and most brokers never see a pattern

    options = re2.Options()
    options.log_errors = False
    try:
        matcher: Callable[[str], object] = re2.compile(pattern, options).fullmatch
    except re2.error as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r} is no valid pattern of transactional ids"
        ) from error
    return matcher
