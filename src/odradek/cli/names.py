"""Names of topics as the command line gives them: patterns, and `topic:0,1` with partitions."""

from __future__ import annotations

import re
from collections.abc import Iterable

from odradek.cli.errors import UsageError


def topic_pattern(text: str, option: str = "topic") -> re.Pattern[str]:
    """What `--topic` matches in whole names: a regular expression, commas as alternatives (Kafka's TopicFilter)."""
    cleaned = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        return re.compile(cleaned)
    except re.error as error:
        raise UsageError(f"--{option} {text}: not a regular expression: {error}") from error


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
