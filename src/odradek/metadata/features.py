"""Features of the cluster (KIP-584): which levels this broker supports, and which one all brokers have agreed on."""

from __future__ import annotations

from typing import Final, NamedTuple

from odradek.metadata.image import ClusterImage


class Feature(NamedTuple):
    """Levels as in Kafka; `initial` is in force until another is chosen, as in a new cluster of Kafka's."""

    name: str
    min_level: int
    max_level: int
    initial: int


TRANSACTION_VERSION: Final = "transaction.version"
"""1: flexible records of the transaction log; 2: epochs that grow with every transaction (KIP-890)."""

GROUP_VERSION: Final = "group.version"
"""1: consumer groups of KIP-848."""

# Levels that say what KRaft's own log may hold (metadata.version, kraft.version) have no meaning here and are left out.
FEATURES: Final = (Feature(GROUP_VERSION, 0, 1, 1), Feature(TRANSACTION_VERSION, 0, 2, 2))

_INITIAL: Final = {feature.name: feature.initial for feature in FEATURES}


class Finalized(NamedTuple):
    """The levels in force, those of level 0 left out as in Kafka; `epoch` grows with every change of one."""

    epoch: int
    levels: dict[str, int]


def finalized(image: ClusterImage) -> Finalized:
    """The finalized levels of an image."""
    chosen = image.features or {}
    levels = {feature.name: chosen.get(feature.name, feature.initial) for feature in FEATURES}
    return Finalized(image.features_epoch + 1, {name: level for name, level in levels.items() if level > 0})


def level_in_force(image: ClusterImage, name: str) -> int:
    """What `finalized` says of one feature; 0 where it says nothing."""
    if image.features and name in image.features:
        return image.features[name]
    return _INITIAL.get(name, 0)
