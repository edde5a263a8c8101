"""Changes of the levels of features (KIP-584, KIP-1022). Pure decisions over the cluster image.

Source: Kafka's `FeatureControlManager`, messages included.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from odradek.controller.outcome import Decision, Failure
from odradek.metadata.features import FEATURES, finalized
from odradek.metadata.image import ClusterImage
from odradek.metadata.nodes import FEATURES as PATH
from odradek.metadata.nodes import FeatureNode
from odradek.ports.store import Create, Operation, Put
from odradek.wire.errors import ErrorCode, KafkaError

_KNOWN = {feature.name: feature for feature in FEATURES}


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
    """All updates or none: one that is refused refuses the others, whose replies have no failure of their own."""
    current = finalized(image).levels
    levels = {feature.name: current.get(feature.name, 0) for feature in FEATURES}
    replies = []
    for update in updates:
        try:
            _check(image, update, levels.get(update.name, 0))
        except KafkaError as error:
            replies.append(UpdatedFeature(update.name, Failure(error.code, error.message)))
        else:
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
    feature = _KNOWN.get(name)
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


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
