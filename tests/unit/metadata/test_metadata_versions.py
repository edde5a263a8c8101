"""Names of releases and levels of metadata.version, as Kafka 4.3's `kafka-storage version-mapping` has them."""

from __future__ import annotations

import pytest

from odradek.metadata.features import BROKER_FEATURES, METADATA_VERSION
from odradek.metadata.metadata_versions import (
    METADATA_VERSIONS,
    levels_of_release,
    metadata_version_of,
    name_of_metadata_version,
)


@pytest.mark.parametrize(
    ("name", "level", "group", "transaction"),
    [
        ("3.3-IV3", 7, 0, 0), ("3.5-IV2", 11, 0, 0), ("3.7-IV4", 19, 0, 0), ("3.9-IV0", 21, 0, 0),
        ("4.0-IV0", 22, 1, 0), ("4.0-IV2", 24, 1, 2), ("4.0-IV3", 25, 1, 2), ("4.2-IV1", 29, 1, 2),
        ("4.3-IV0", 30, 1, 2),
    ],
)  # fmt: skip
def test_version_has_the_level_and_features_that_kafka_maps_it_to(
    name: str, level: int, group: int, transaction: int
) -> None:
    assert (metadata_version_of(name), name_of_metadata_version(level)) == (level, name)
    assert levels_of_release(level) == {"group.version": group, "transaction.version": transaction}


@pytest.mark.parametrize(
    ("release", "level"), [("3.3", 7), ("3.5", 11), ("4.0", 25), ("4.0.1", 25), ("4.3", 30), ("4", None), ("9.9", None)]
)
def test_release_means_its_highest_level(release: str, level: int | None) -> None:
    assert metadata_version_of(release) == level


def test_names_cover_the_levels_that_are_supported() -> None:
    (feature,) = (each for each in BROKER_FEATURES if each.name == METADATA_VERSION)
    assert list(METADATA_VERSIONS.values()) == list(range(feature.min_level, feature.max_level + 1))


def test_levels_without_a_choice_are_the_initial_ones() -> None:
    initial = {each.name: each.initial for each in BROKER_FEATURES}
    for name, level in levels_of_release(initial[METADATA_VERSION]).items():
        assert level == initial[name]
