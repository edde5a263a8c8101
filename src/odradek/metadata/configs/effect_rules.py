"""Whether a setting is implemented, harmless, refused or a plug-in's, by `odradek.metadata.configs.effects`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from odradek.metadata.configs.catalog import BROKER, LISTENER_PREFIX, base_name, broker_definition, inner_name
from odradek.metadata.configs.definitions import InvalidConfig, RefusedConfig, Value
from odradek.metadata.configs.effects import (
    DYNAMIC_TLS_SETTINGS,
    FILE_ONLY,
    FILE_SETTINGS,
    GROUP_HARMLESS,
    HARMLESS,
    LISTENER_ONLY,
    QUORUM_SETTINGS,
    REFUSED,
    TOPIC_HARMLESS,
    TOPIC_REFUSED,
    Harmless,
    Refused,
)


class Effect(StrEnum):
    """How this version treats a setting."""

    IMPLEMENTED = "implemented"
    HARMLESS = "harmless"
    REFUSED = "refused"
    PLUGIN = "plug-in"


def _by_name(groups: Iterable[Harmless]) -> dict[str, str]:
    return {name: group.purpose for group in groups for name in group.names}


_HARMLESS: Mapping[str, str] = _by_name(HARMLESS)
_REFUSED: Mapping[str, Refused] = {name: refused for refused in REFUSED for name in refused.names}
_TOPIC_HARMLESS: Mapping[str, str] = _by_name(TOPIC_HARMLESS)
_TOPIC_REFUSED: Mapping[str, Refused] = {name: refused for refused in TOPIC_REFUSED for name in refused.names}
_GROUP_HARMLESS: Mapping[str, str] = _by_name(GROUP_HARMLESS)

_PLUGIN_PURPOSE = "settings of plug-ins, which this version does not load"
_SINGLE_LISTENER = "settings of a single listener are not read; set {inner} for all listeners"
_REFUSED_PREFIXES = (
    ("ssl.", "ssl.engine.factory.class"),
    ("sasl.", "sasl.client.callback.handler.class"),
    ("config.providers.", "config.providers"),
)
"""A prefix of names that plug-ins of Kafka's security define, and the setting that refuses them."""
_FIRST_WORDS = frozenset(name.partition(".")[0] for name in BROKER)


def effect_of(name: str) -> Effect | None:
    """How a broker setting is treated; None for a name that neither Kafka nor a plug-in has."""
    inner = inner_name(name)
    if inner in FILE_SETTINGS or name in QUORUM_SETTINGS:
        return Effect.IMPLEMENTED
    if inner in _HARMLESS:
        return Effect.HARMLESS
    if inner in _REFUSED or inner.startswith(tuple(prefix for prefix, _ in _REFUSED_PREFIXES)):
        return Effect.REFUSED
    if inner in BROKER:
        # Kafka's settings of one listener are read for all listeners only.
        return Effect.IMPLEMENTED if inner == name else Effect.REFUSED
    return Effect.PLUGIN if name.startswith(LISTENER_PREFIX) or _is_plugins(name) else None


def without_effect(name: str) -> str | None:
    """What a broker setting that has no effect here does elsewhere; None for one that is implemented or refused."""
    effect = effect_of(name)
    if effect is Effect.HARMLESS:
        return _HARMLESS[inner_name(name)]
    return _PLUGIN_PURPOSE if effect is Effect.PLUGIN else None


def topic_without_effect(name: str) -> str | None:
    """The same for a topic's setting."""
    return _TOPIC_HARMLESS.get(name)


def group_without_effect(name: str) -> str | None:
    """The same for a group's setting."""
    return _GROUP_HARMLESS.get(name)


def topic_effect(name: str) -> Effect:
    """How a topic's setting is treated."""
    if name in _TOPIC_REFUSED:
        return Effect.REFUSED
    return Effect.HARMLESS if name in _TOPIC_HARMLESS else Effect.IMPLEMENTED


def refusal(name: str, text: str) -> str | None:
    """Why this value of a broker setting is an error; None where it is accepted.

    Settings whose value is judged beside others (`Refused.accepted_if`) are left to
    `odradek.broker.configuration.refusals`.
    """
    if effect_of(name) is not Effect.REFUSED:
        return None
    inner = inner_name(name)
    refused = _refused(inner)
    if refused is None:
        return None if _is_default(name, text) else _shown(name, text, _SINGLE_LISTENER.format(inner=inner))
    if refused.accepted_if or text.strip().lower() in refused.accepted:
        return None
    if not refused.accepted and _is_default(name, text):
        return None
    return _shown(name, text, refused.reason)


def ensure_not_refused(configs: Mapping[str, str]) -> None:
    """Raise RefusedConfig if one of these dynamic settings of brokers restricts or protects and has no effect."""
    reasons = [reason for name, text in configs.items() if (reason := _dynamic_refusal(name, text)) is not None]
    if reasons:
        raise RefusedConfig("; ".join(reasons))


def _dynamic_refusal(name: str, text: str) -> str | None:
    inner = inner_name(name)
    if inner in DYNAMIC_TLS_SETTINGS:
        is_of_listener = name != inner and base_name(name) == inner
        return None if is_of_listener else _shown(name, text, LISTENER_ONLY.format(name=inner))
    if inner in FILE_SETTINGS:
        return _shown(name, text, FILE_ONLY)
    return refusal(name, text)


def _refused(inner: str) -> Refused | None:
    found = _REFUSED.get(inner)
    if found is None:
        found = next(
            (_REFUSED[stands_for] for prefix, stands_for in _REFUSED_PREFIXES if inner.startswith(prefix)), None
        )
    return found


def _is_default(name: str, text: str) -> bool:
    if not text.strip():
        return True
    definition = broker_definition(name)
    if definition is None:
        return False
    try:
        return _folded(definition.parse(text)) == _folded(definition.parse_default())
    except InvalidConfig:
        return False


def _folded(value: Value) -> Value:
    return value.lower() if isinstance(value, str) else value


def _shown(name: str, text: str, reason: str) -> str:
    # Of a plug-in's setting, or a password, only the name: the value may be a secret.
    definition = broker_definition(name)
    is_secret = definition is None or definition.is_sensitive
    return f"{name}{'' if is_secret else '=' + text.strip()} is refused: {reason}"


def _is_plugins(name: str) -> bool:
    """Whether an unknown name begins like no setting of Kafka and like no misspelt one."""
    first, dot, rest = name.partition(".")
    if not dot or not first or not rest or first in _FIRST_WORDS:
        return name.startswith(("rsm.config.", "rlmm.config."))
    import difflib

    return not difflib.get_close_matches(first, _FIRST_WORDS, 1, 0.75) and suggestion(name) is None


def suggestion(name: str) -> str | None:
    """The setting that a misspelt name resembles."""
    import difflib  # most starts need no suggestion

    near = difflib.get_close_matches(name, BROKER, 1, 0.85)
    return near[0] if near else None


def grouped(names: Iterable[str]) -> dict[str, list[str]]:
    """Purpose -> those of the broker settings that have no effect here, sorted."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        purpose = without_effect(name)
        if purpose is not None:
            found.setdefault(purpose, []).append(name)
    return found
