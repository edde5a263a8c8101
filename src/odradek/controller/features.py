"""Changes of the levels of features (KIP-584, KIP-1022). Pure decisions over the cluster image.

Source: Kafka's `FeatureControlManager`, messages included.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from odradek.controller.outcome import Decision, Failure
from odradek.metadata.features import (
    CONTROLLER_FEATURES,
    FEATURES,
    KRAFT_VERSION,
    METADATA_VERSION,
    finalized,
    is_on_records,
)
from odradek.metadata.image import Broker, ClusterImage
from odradek.metadata.metadata_versions import have_same_records
from odradek.metadata.nodes import FEATURES as PATH
from odradek.metadata.nodes import FeatureNode
from odradek.ports.store import Create, Operation, Put
from odradek.wire.errors import ErrorCode, KafkaError

_KNOWN = {feature.name: feature for feature in FEATURES}
_KNOWN_ON_RECORDS = {feature.name: feature for feature in CONTROLLER_FEATURES}


class UpgradeType(IntEnum):
    """Directions in which UpdateFeatures may change a level, by Kafka's numbers (KIP-584)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A wish to finalize a feature at a level; level 0 removes it."""

    name: str
    level: int
    upgrade_type: int


class UpdatedFeature(NamedTuple):
    """The result for one feature."""

    name: str
    failure: Failure | None


def update_features(
    image: ClusterImage, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
) -> Decision[UpdatedFeature]:
    """All updates or none: one that is refused refuses the others, whose replies have no failure of their own.

    That of kraft.version is only checked: the voters finalize it.
    """
    current = finalized(image).levels
    levels = {feature.name: current.get(feature.name, 0) for feature in FEATURES}
    if is_on_records(image):
        # Records cannot remove a feature, and another controller may have finalized some that this one lacks.
        levels = dict(image.features or {})
    replies = []
    for update in updates:
        try:
            _check(image, update, levels.get(update.name, 0))
        except KafkaError as error:
            replies.append(UpdatedFeature(update.name, Failure(error.code, error.message)))
        else:
            if update.name != KRAFT_VERSION:
                levels[update.name] = update.level
            replies.append(UpdatedFeature(update.name, None))
    unchanged = {name: level for name, level in levels.items() if level > 0} == current
    if validate_only or unchanged or any(reply.failure for reply in replies):
        return Decision((), image, replies)
    data = FeatureNode.encode(levels)
    # The epoch counts the writes of the node, whose first one starts at version 0.
    operation: Operation = Create(PATH, data) if image.features is None else Put(PATH, data)
    return Decision([operation], image.with_features(levels, image.features_epoch + 1), replies)


def _check(image: ClusterImage, update: FeatureUpdate, current: int) -> None:
    name, level, upgrade_type = update
    if upgrade_type not in UpgradeType.__members__.values():
        raise _refused("The controller does not support the given upgrade type.")
    if level < 0:
        raise _refused(f"Invalid update version {level} for feature {name}. A feature version cannot be less than 0.")
    feature = (_KNOWN_ON_RECORDS if is_on_records(image) else _KNOWN).get(name)
    node = image.controller_id
    if feature is None:
        raise _refused(
            f"Invalid update version {level} for feature {name}. Local controller {node} does not support this feature."
        )
    if not feature.min_level <= level <= feature.max_level:
        raise _refused(
            f"Invalid update version {level} for feature {name}. Local controller {node} only supports versions "
            f"{feature.min_level}-{feature.max_level}"
        )
    if level < current and upgrade_type == UpgradeType.UPGRADE:
        raise _refused(
            f"Invalid update version {level} for feature {name}. Can't downgrade the version of this feature without "
            "setting the upgrade type to either safe or unsafe downgrade."
        )
    if level > current and upgrade_type != UpgradeType.UPGRADE:
        raise _refused(f"Invalid update version {level} for feature {name}. Can't downgrade to a newer version.")
    if is_on_records(image):
        _check_on_records(image, update, current)


def _check_on_records(image: ClusterImage, update: FeatureUpdate, current: int) -> None:
    name, level, upgrade_type = update
    if name == KRAFT_VERSION and level < current:
        raise _refused(
            f"Invalid upgrade of {name} from version {current} to {level} because the new version is a downgrade"
        )
    if name == METADATA_VERSION and level < current and not have_same_records(level, current):
        if upgrade_type == UpgradeType.UNSAFE_DOWNGRADE:
            raise _refused(
                f"Invalid metadata.version {level}. Unsafe metadata downgrade is not supported in this version."
            )
        raise _refused(
            f"Invalid metadata.version {level}. Refusing to perform the requested downgrade because it might delete "
            "metadata information."
        )
    if level == 0:
        return
    supported = [(f"Broker {node.id}", node.features) for node in image.brokers.values()]
    supported += [(f"Controller {node.id}", node.features) for node in image.controllers.values()]
    for node_name, ranges in supported:
        if name not in ranges:
            problem = f"{node_name} does not support this feature."
        elif not ranges[name][0] <= level <= ranges[name][1]:
            problem = f"{node_name} only supports versions {ranges[name][0]}-{ranges[name][1]}"
        else:
            continue
        raise _refused(f"Invalid update version {level} for feature {name}. {problem}")


def ensure_registrable(image: ClusterImage, broker: Broker) -> None:
    """Check that a broker that wants to register supports each finalized feature of an image on records.

    Raises KafkaError INVALID_REGISTRATION for a broker without a metadata.version, UNSUPPORTED_VERSION for a feature.
    """
    if METADATA_VERSION not in broker.features:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "The broker does not support any metadata.version.")
    for name, level in finalized(image).levels.items():
        lowest, highest = broker.features.get(name, (0, 0))
        if not lowest <= level <= highest:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. The "
                f"broker wants a version between {lowest} and {highest}, inclusive.",
            )


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
