"""Names and effects of settings by the resource that they belong to, for tools that complete or explain them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from odradek.metadata.configs.catalog import BROKER, GROUP, TOPIC
from odradek.metadata.configs.definitions import Scope
from odradek.metadata.configs.effect_rules import group_without_effect, topic_without_effect, without_effect

DYNAMIC_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "topics": tuple(TOPIC),
    "brokers": tuple(name for name, each in BROKER.items() if each.scope != Scope.READ_ONLY),
    "groups": tuple(GROUP),
}
"""Settings that can change while brokers run, by the type of resource."""

BROKER_SETTINGS: Final = tuple(BROKER)
"""All settings of a broker's properties file."""

_EFFECTS: Final[Mapping[str, Callable[[str], str | None]]] = {
    "topics": topic_without_effect,
    "brokers": without_effect,
    "groups": group_without_effect,
}


_SECRETS: Final = tuple(name for name, each in BROKER.items() if each.is_sensitive)


def is_secret(name: str) -> bool:
    """Whether the value of a broker's setting is a secret, also behind the name of a listener or a mechanism."""
    return any(name == secret or name.endswith(f".{secret}") for secret in _SECRETS)


def purpose_without_effect(kind: str, name: str) -> str | None:
    """What a setting that has no effect in this version does in Apache Kafka; None for one that has an effect.

    `kind` is a key of `DYNAMIC_SETTINGS` or any other type of resource, all of whose settings have an effect.
    """
    judge = _EFFECTS.get(kind)
    return None if judge is None else judge(name)
