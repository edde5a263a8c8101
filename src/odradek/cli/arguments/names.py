"""Names of topics on the command line: literal names, regular expressions, and `topic:0,1` with partitions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from odradek.cli.arguments.errors import UsageError

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def literal_topics(text: str, option: str = "topic") -> list[str]:
    """Names separated by commas, each once. Raises UsageError for an empty name."""
    names = [each.strip() for each in text.split(",")]
    if not all(names):
        raise UsageError(f"--{option} {text!r}: the name of a topic is empty")
    return list(dict.fromkeys(names))


def missing_topics(names: Iterable[str]) -> str:
    """The message for topics that do not exist; it mentions `--regex` where that was probably meant."""
    listed = list(names)
    subject = f"topic {listed[0]} does" if len(listed) == 1 else f"topics {', '.join(listed)} do"
    hint = "" if all(map(_LEGAL.fullmatch, listed)) else "; names are literal, --regex makes them regular expressions"
    return f"{subject} not exist{hint}"


def topic_pattern(text: str, option: str = "topic") -> re.Pattern[str]:
    """A regular expression for whole names, with commas as alternatives (Kafka's TopicFilter). Raises UsageError."""
    cleaned = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        return re.compile(cleaned)
    except re.error as error:
        raise UsageError(f"--{option} {text}: this is not a regular expression: {error}") from error


def topic_partitions(texts: Iterable[str], option: str = "topic") -> dict[str, list[int] | None]:
    """`topic` (all partitions: None) and `topic:0,1`, in order. Raises UsageError."""
    found: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        if not colon:
            found[topic] = None
            continue
        try:
            wanted = [int(each) for each in numbers.split(",")]
        except ValueError:
            raise UsageError(f"--{option} {text}: TOPIC:0,1 expected") from None
        if not topic or min(wanted) < 0:
            raise UsageError(f"--{option} {text}: TOPIC:0,1 expected")
        found[topic] = [*(found.get(topic) or []), *wanted]
    return found
