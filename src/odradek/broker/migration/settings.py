"""Which settings of Apache Kafka hold here as well; the others are named, with what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from odradek.metadata.configs.catalog import (
    broker_definition,
    validate_dynamic_broker_configs,
    validate_group_configs,
    validate_topic_configs,
)
from odradek.metadata.configs.definitions import InvalidConfig, Value
from odradek.metadata.configs.effect_rules import ensure_not_refused
from odradek.metadata.features import FEATURES
from odradek.metadata.image import DEFAULT_BROKER, ClusterImage

BrokerValue = Callable[[str], Value]
REMOTE_STORAGE = "remote.storage.enable"
_ENCRYPTED = "encryptedPassword:"
"""In passwords that Apache Kafka keeps in ZooKeeper, encrypted with `password.encoder.secret` (PasswordEncoder)."""


def topic_settings_kept(
    topic: str, configs: Mapping[str, str], broker_value: BrokerValue, notes: list[str]
) -> dict[str, str]:
    """The overrides of a topic that this version accepts; a note for each of the others."""
    kept = {name: value for name, value in configs.items() if name != REMOTE_STORAGE}
    return _accepted(
        f"topic {topic}", kept, lambda found: validate_topic_configs(found, broker_value, existing={}), notes
    )


def settings_kept(image: ClusterImage, node_id: int, broker_value: BrokerValue, notes: list[str]) -> ClusterImage:
    """The image with the settings of all brokers, of this one and of groups that this version accepts.

    A note for each of the others. The features are those that this version has, at the level of the source.
    """
    result = image
    for broker, configs in image.broker_configs.items():
        if broker not in (DEFAULT_BROKER, str(node_id)):
            result = result.with_broker_configs(broker, {})
            if configs:
                notes.append(f"settings of broker {broker} are left out: it is not part of the new cluster")
            continue
        each = broker != DEFAULT_BROKER
        what = f"broker {broker}" if each else "all brokers"
        kept = _accepted(what, configs, partial(_check_broker_settings, per_broker=each), notes)
        result = result.with_broker_configs(broker, kept)
    for group, configs in image.group_configs.items():
        kept = _accepted(f"group {group}", configs, lambda found: validate_group_configs(found, broker_value), notes)
        result = result.with_group_configs(group, kept)
    if image.features:
        levels = {
            feature.name: min(max(image.features.get(feature.name, 0), feature.min_level), feature.max_level)
            for feature in FEATURES
        }
        result = result.with_features(levels, 0)
    return result


def _check_broker_settings(configs: Mapping[str, str], *, per_broker: bool) -> None:
    for name, value in configs.items():
        definition = broker_definition(name)
        if definition is not None and definition.is_sensitive and _ENCRYPTED in value:
            raise InvalidConfig("it is encrypted with password.encoder.secret, which has no effect here: set it again")
    ensure_not_refused(configs)
    validate_dynamic_broker_configs(configs, per_broker=per_broker)


def _accepted(
    what: str, configs: Mapping[str, str], check: Callable[[dict[str, str]], object], notes: list[str]
) -> dict[str, str]:
    """The settings that pass the check together, without those that fail it alone."""
    kept = {}
    for name, value in configs.items():
        try:
            check({name: value})
        except InvalidConfig as error:
            # Without its value, which may be a secret.
            notes.append(f"{what}: {name} is left out: {error}")
        else:
            kept[name] = value
    try:
        check(kept)
    except InvalidConfig as error:
        notes.append(f"{what}: {', '.join(kept)} are left out: {error}")
        return {}
    return kept
