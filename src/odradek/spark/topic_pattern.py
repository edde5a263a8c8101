"""`subscribePattern`: Java's regular expressions, as far as Python has them, found anywhere in a topic's name."""

from __future__ import annotations

import re
import warnings
from typing import Final


class PatternError(ValueError):
    """The expression is malformed, or Python's regular expressions have no such construct."""


_PART: Final = re.compile(r"\\.|\[\^?\]?|\]|&&|.", re.DOTALL)
"""An escape, the beginning of a class (in which `]` may come first), its end, an intersection, or one character."""


def compile_pattern(text: str) -> re.Pattern[str]:
    """The expression, to be searched for in names. Raises PatternError.

    Python reads nested classes and intersections, `[a[bc]]` and `[a-z&&[^b]]`, as plain characters, and has no
    `\\p{...}`, `\\Q...\\E` and `(?<name>...)`: all of them are errors here, never other matches than Java's.
    """
    in_class = False
    for part in _PART.findall(text):
        if in_class and (part[0] == "[" or part == "&&"):
            raise _unknown(text, "it has a class within a class, or an intersection of classes")
        in_class = part[0] == "[" or (in_class and part != "]")
    try:
        with warnings.catch_warnings():
            # of `--`, `||` and `~~` in classes, which Java, too, reads as plain characters
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(text)
    except re.error as error:
        raise _unknown(text, str(error)) from None


def _unknown(text: str, reason: str) -> PatternError:
    return PatternError(f"{text!r} is no regular expression that both Java and Python have: {reason}")
