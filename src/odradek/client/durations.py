"""Durations of ISO 8601 in options, as Java's `Duration.parse` reads them."""

from __future__ import annotations

import re
from typing import Final

_DURATION: Final = re.compile(
    r"P(?=.)(?:(?P<d>\d+)D)?(?:T(?=.)(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d{1,9})?)S)?)?", re.IGNORECASE
)
_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
BY_DURATION: Final = "by_duration:"
"""What `auto_offset_reset` begins with before a duration (KIP-1106)."""


def duration_ms(text: str) -> int | None:
    """Milliseconds of a duration such as `PT1H30M` or `P7D`; None for another text, and for negative durations."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    return round(sum(float(number) * _MS[unit] for unit, number in found.groupdict().items() if number))
