"""`did you mean …?` for a misspelled command or option."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_SIMILARITY: Final = 0.6


def suggestion(word: str, known: Iterable[str]) -> str:
    """`did you mean WORD?` with the most similar known word, or nothing."""
    from difflib import get_close_matches

    found = get_close_matches(word, list(known), 1, _SIMILARITY)
    return f"did you mean {found[0]}?" if found else ""
