"""Which failures of a table in an object store may pass: the same write may succeed later."""

from __future__ import annotations

import re
from typing import Final

_AWAY: Final = re.compile(
    r"error sending request|connection (?:refused|reset|closed|aborted|error)|operation timed out|dns error"
    r"|temporarily unavailable|\b50[0234] (?:internal|bad gateway|service|gateway)",
    re.IGNORECASE,
)
"""Phrases of the `object_store` crate, of HTTP and of the operating system; never a word that a column may be named."""


def is_away(error: BaseException) -> bool:
    """Whether the store cannot be reached, or cannot answer now: an OSError, or the text of one in another error."""
    return isinstance(error, OSError) or _AWAY.search(str(error)) is not None
