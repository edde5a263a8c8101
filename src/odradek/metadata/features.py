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

METADATA_VERSION: Final = "metadata.version"
"""What the records of KRaft's metadata log may hold (KIP-778); 7 is 3.3-IV3, 30 is that of Kafka 4.3."""

KRAFT_VERSION: Final = "kraft.version"
"""1: voters are in the metadata log (KIP-853). Control records finalize it, and never a FeatureLevelRecord."""

FEATURES: Final = (Feature(GROUP_VERSION, 0, 1, 1), Feature(TRANSACTION_VERSION, 0, 2, 2))

_KRAFT: Final = Feature(KRAFT_VERSION, 0, 1, 0)

CONTROLLER_METADATA: Final = Feature(METADATA_VERSION, 17, 30, 30)
"""The levels at which controllers decide; 17 (3.7-IV2) is the first one with log directories."""

CONTROLLER_FEATURES: Final = (*FEATURES, CONTROLLER_METADATA, _KRAFT)
"""The features of a controller of a quorum."""

ELR_VERSION: Final = "eligible.leader.replicas.version"
"""1: eligible leader replicas outside the ISR (KIP-966)."""

BROKER_METADATA: Final = Feature(METADATA_VERSION, 7, 30, 30)
"""The levels at which brokers read and write records."""

BROKER_FEATURES: Final = (*FEATURES, BROKER_METADATA, _KRAFT, Feature(ELR_VERSION, 0, 1, 1))
"""The features that a broker of a KRaft cluster supports: with ELRs, only controllers do what is different."""

_INITIAL: Final = {feature.name: feature.initial for feature in FEATURES}


class Finalized(NamedTuple):
    """The levels in force, those of level 0 left out as in Kafka; `epoch` grows with every change of one."""

    epoch: int
    levels: dict[str, int]


def finalized(image: ClusterImage) -> Finalized:
    """The finalized levels of an image; on records all of its levels, also of features that this version lacks."""
    chosen = image.features or {}
    if is_on_records(image):
        return Finalized(image.features_epoch + 1, {name: level for name, level in chosen.items() if level > 0})
    levels = {feature.name: chosen.get(feature.name, feature.initial) for feature in FEATURES}
    return Finalized(image.features_epoch + 1, {name: level for name, level in levels.items() if level > 0})


def level_in_force(image: ClusterImage, name: str) -> int:
    """What `finalized` says of one feature; 0 where it says nothing."""
    if image.features and name in image.features:
        return image.features[name]
    return 0 if is_on_records(image) else _INITIAL.get(name, 0)


def metadata_level(image: ClusterImage) -> int:
    """The finalized metadata.version of an image on records; 0 of another one."""
    return (image.features or {}).get(METADATA_VERSION, 0)


def is_on_records(image: ClusterImage) -> bool:
    """Whether the image was replayed from KRaft's records: these finalize a metadata.version before all else.

    There, a feature without a level has level 0, as in Kafka.
    """
    return METADATA_VERSION in (image.features or {})
