"""What `storage version-mapping` and `storage feature-dependencies` print of features of Apache Kafka 4.3 (KIP-1022).

Source: Kafka's `StorageTool`.
"""

from __future__ import annotations

from odradek.broker.storage.bootstrap_records import InvalidFormat
from odradek.metadata.features import METADATA_VERSION
from odradek.metadata.metadata_versions import (
    METADATA_VERSIONS,
    highest_level,
    kafka_levels_of_release,
    metadata_version_of,
    name_of_metadata_version,
    needed_metadata_version,
)


def version_mapping(release: str | None) -> list[str]:
    """A line for each feature, with its level in a release; of the newest for None. Raises InvalidFormat."""
    name = release or list(METADATA_VERSIONS)[-1]
    level = metadata_version_of(name)
    if level is None:
        known = ", ".join(METADATA_VERSIONS)
        raise InvalidFormat(f"--release-version {name}: not a release of Apache Kafka with one of the versions {known}")
    others = [f"{feature}={each}" for feature, each in kafka_levels_of_release(level).items()]
    return [f"{METADATA_VERSION}={level} ({name})", *others]


def feature_dependencies(text: str) -> list[str]:
    """What a level, as of `--feature`, needs. Raises InvalidFormat."""
    name, equals, digits = text.partition("=")
    if not equals or not digits.isascii() or not digits.isdecimal():
        raise InvalidFormat(f"--feature {text}: NAME=LEVEL expected, the level as a number")
    level, highest = int(digits), highest_level(name)
    if name == METADATA_VERSION:
        known = METADATA_VERSIONS.values()
        if level not in known:
            raise InvalidFormat(f"--feature {text}: there are the levels {min(known)} to {max(known)}")
        return [f"{name}={level} ({name_of_metadata_version(level)}) has no dependencies."]
    if highest is None:
        raise InvalidFormat(f"--feature {text}: Apache Kafka 4.3 has no such feature")
    if level > highest:
        raise InvalidFormat(f"--feature {text}: there are the levels 0 to {highest}")
    needed = needed_metadata_version(name, level)
    if needed is None:
        return [f"{name}={level} has no dependencies."]
    return [f"{name}={level} requires:", f"    {METADATA_VERSION}={needed} ({name_of_metadata_version(needed)})"]
