"""Releases of Apache Kafka as levels of `metadata.version`, and the levels of other features at each (KIP-778).

Source: Kafka's `MetadataVersion`, `GroupVersion`, `TransactionVersion`.
"""

from __future__ import annotations

from typing import Final

from odradek.metadata.features import GROUP_VERSION, TRANSACTION_VERSION

_NAMES: Final = (
    "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV1",
    "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0",
    "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0",
)  # fmt: skip
_FIRST_LEVEL: Final = 7

METADATA_VERSIONS: Final = {name: level for level, name in enumerate(_NAMES, _FIRST_LEVEL)}
"""The level of each version by its name, in ascending order."""

SCRAM_SINCE: Final = METADATA_VERSIONS["3.5-IV2"]
"""The first level whose metadata log may hold SCRAM credentials."""

_LEVELS: Final = {GROUP_VERSION: ("4.0-IV0", 1), TRANSACTION_VERSION: ("4.0-IV2", 2)}
"""Feature -> the first metadata.version that has it from the beginning, and its level there."""


def metadata_version_of(release: str) -> int | None:
    """The level of a version such as `4.0-IV1`, or the highest of a release such as `4.0`; None if it is unknown."""
    if release in METADATA_VERSIONS:
        return METADATA_VERSIONS[release]
    short = ".".join(release.split(".")[:2])
    return max((level for name, level in METADATA_VERSIONS.items() if name.partition("-")[0] == short), default=None)


def name_of_metadata_version(level: int) -> str:
    """`4.3-IV0` for 30. KeyError for a level that this version does not know."""
    return {known: name for name, known in METADATA_VERSIONS.items()}[level]


def levels_of_release(metadata_version: int) -> dict[str, int]:
    """The levels that group.version and transaction.version have in a new cluster at a metadata.version."""
    return {
        name: level if metadata_version >= METADATA_VERSIONS[since] else 0 for name, (since, level) in _LEVELS.items()
    }
