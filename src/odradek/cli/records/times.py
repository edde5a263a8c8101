"""Points in time as people write them, as ms since the epoch."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from odradek.cli.arguments.errors import UsageError

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_ISO_DURATION: Final = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<w>\d+)W)?(?:(?P<d>[-+]?\d+)D)?"
    r"(?:T(?:(?P<h>[-+]?\d+)H)?(?:(?P<m>[-+]?\d+)M)?(?:(?P<s>[-+]?\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)


def duration_ms(text: str) -> int:
    """`PT1H30M`, `P7D` (ISO 8601, as Apache's tools take it) or `1h30m`, `7d`. Raises UsageError."""
    found = _ISO_DURATION.fullmatch(text)
    if found is not None and any(found[unit] for unit in "wdhms"):
        total = sum(float(found[unit]) * _UNITS_MS[unit] for unit in "wdhms" if found[unit])
        return round(-total if found["sign"] == "-" else total)
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise UsageError(f"{text}: a duration such as PT1H30M or 1h30m expected")
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in parts))


def timestamp_ms(text: str, now_ms: int) -> int:
    """Milliseconds since the epoch, ISO 8601 (UTC unless it says otherwise), or `-1h` before now. Raises UsageError."""
    if text.isdecimal() and len(text) > 4:
        return int(text)
    if text.startswith("-"):
        return now_ms - duration_ms(text[1:])
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text}: a time such as 2026-01-31T12:00:00, 1769860800000 or -1h expected") from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return round(found.timestamp() * 1000)
