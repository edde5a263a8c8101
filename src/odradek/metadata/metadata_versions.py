"""Releases of Apache Kafka as levels of `metadata.version`, and the levels of other features at each (KIP-778).

Source: Kafka's `MetadataVersion`, `Feature`, and what `kafka-storage version-mapping` of Kafka 4.3 prints.
"""

from __future__ import annotations

from typing import Final

from odradek.metadata.features import ELR_VERSION, FEATURES, GROUP_VERSION, KRAFT_VERSION, TRANSACTION_VERSION

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

DIRECTORIES_SINCE: Final = METADATA_VERSIONS["3.7-IV2"]
"""The first level whose records name log directories (KIP-858)."""

ELR_SINCE: Final = METADATA_VERSIONS["4.0-IV1"]
"""The first level whose records name eligible leader replicas (KIP-966)."""

CORDONED_SINCE: Final = METADATA_VERSIONS["4.3-IV0"]
"""The first level whose records name cordoned log directories (KIP-1066)."""

_OTHER_RECORDS: Final = tuple(
    METADATA_VERSIONS[name]
    for name in ("3.3-IV3", "3.4-IV0", "3.5-IV2", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV2", "4.0-IV1", "4.3-IV0")
)
"""The levels whose records are not those of the level before."""

_LEVELS: Final = {
    KRAFT_VERSION: ("3.9-IV0", 1),
    TRANSACTION_VERSION: ("4.0-IV2", 2),
    GROUP_VERSION: ("4.0-IV0", 1),
    ELR_VERSION: ("4.1-IV0", 1),
    "share.version": ("4.2-IV0", 1),
    "streams.version": ("4.2-IV1", 1),
}
"""Feature -> the first metadata.version that has it from the beginning, and its level there, which is its highest."""

_NEEDED: Final = {(ELR_VERSION, 1): ELR_SINCE}
"""Levels of features that need a metadata.version, with its level (KIP-1022)."""


def metadata_version_of(release: str) -> int | None:
    """The level of a version such as `4.0-IV1`, or the highest of a release such as `4.0`; None if it is unknown."""
    if release in METADATA_VERSIONS:
        return METADATA_VERSIONS[release]
    short = ".".join(release.split(".")[:2])
    return max((level for name, level in METADATA_VERSIONS.items() if name.partition("-")[0] == short), default=None)


def name_of_metadata_version(level: int) -> str:
    """`4.3-IV0` for 30. KeyError for a level that this version does not know."""
    return {known: name for name, known in METADATA_VERSIONS.items()}[level]


def have_same_records(lower: int, higher: int) -> bool:
    """Whether the records of two levels are the same, so that the level can be taken back."""
    return not any(lower < level <= higher for level in _OTHER_RECORDS)


def levels_of_release(metadata_version: int) -> dict[str, int]:
    """The levels that group.version and transaction.version have in a new cluster at a metadata.version."""
    levels = kafka_levels_of_release(metadata_version)
    return {feature.name: levels[feature.name] for feature in FEATURES}


def kafka_levels_of_release(metadata_version: int) -> dict[str, int]:
    """The levels that all features of Kafka 4.3 have in a new cluster of Apache Kafka at a metadata.version."""
    return {
        name: level if metadata_version >= METADATA_VERSIONS[since] else 0 for name, (since, level) in _LEVELS.items()
    }


def highest_level(feature: str) -> int | None:
    """The highest level of a feature in Kafka 4.3; None if it has no feature of that name."""
    return _LEVELS[feature][1] if feature in _LEVELS else None


def needed_metadata_version(feature: str, level: int) -> int | None:
    """The metadata.version that a level of another feature needs; None if any will do (KIP-1022)."""
    return _NEEDED.get((feature, level))
