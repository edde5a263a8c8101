"""Which names a topic may have. Source: Kafka's `Topic`, messages included."""

from __future__ import annotations

import re
from collections.abc import Collection

MAX_NAME_LENGTH = 249
CLUSTER_METADATA_TOPIC = "__cluster_metadata"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def name_problem(name: str) -> str | None:
    """What is wrong with a name, or None."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _LEGAL.fullmatch(name):
        allowed = "ASCII alphanumerics, '.', '_' and '-'"
        return f"Topic name is invalid: '{name}' contains one or more characters other than {allowed}"
    return None


def colliding(name: str, existing: Collection[str]) -> str | None:
    """A topic whose metrics would be called as this one's: metric names turn '.' into '_'."""
    if "." not in name and "_" not in name:
        return None
    unified = name.replace(".", "_")
    for other in existing:
        # Equal length first: it rules out nearly all of many thousands.
        if len(other) == len(name) and other != name and other.replace(".", "_") == unified:
            return other
    return None
