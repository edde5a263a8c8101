"""The tables of `docs/SETTINGS.md`: `python -m odradek.metadata.configs.settings_page` prints them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from odradek.metadata.configs.catalog import GROUP, TOPIC
from odradek.metadata.configs.effects import (
    GROUP_HARMLESS,
    HARMLESS,
    IMPLEMENTED,
    REFUSED,
    TOPIC_HARMLESS,
    TOPIC_REFUSED,
    Harmless,
    Refused,
)

MARKER = "<!-- below: ./dev run python -m odradek.metadata.configs.settings_page -->"


def render() -> str:
    """All settings by effect, in Markdown."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield f"{MARKER}\n"
    yield "## Settings of brokers\n"
    yield from _implemented(IMPLEMENTED)
    yield from _harmless(HARMLESS)
    yield from _refused(REFUSED)
    for title, names, harmless, refused in (
        ("topics", TOPIC, TOPIC_HARMLESS, TOPIC_REFUSED),
        ("groups", GROUP, GROUP_HARMLESS, ()),
    ):
        others = {name for group in (*harmless, *refused) for name in group.names}
        yield f"## Settings of {title}\n"
        yield from _implemented(names.keys() - others)
        yield from _harmless(harmless)
        yield from _refused(refused)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _implemented(names: Iterable[str]) -> Iterator[str]:
    yield f"### Implemented\n\n{_quoted(names)}\n"


def _harmless(groups: Iterable[Harmless]) -> Iterator[str]:
    yield "### Harmless\n\n| settings | in Apache Kafka |\n|---|---|"
    for group in groups:
        yield f"| {_quoted(group.names)} | {group.purpose} |"
    yield ""


def _refused(groups: Iterable[Refused]) -> Iterator[str]:
    if not groups:
        return
    yield "### Refused\n\n| settings | accepted | why |\n|---|---|---|"
    for group in groups:
        accepted = group.accepted_if or ", ".join(f"`{text}`" for text in group.accepted) or "the default"
        yield f"| {_quoted(group.names)} | {accepted} | {group.reason} |"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(render())
