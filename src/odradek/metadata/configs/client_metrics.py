"""Subscriptions to clients' metrics (KIP-714): stored and described here; `broker.observability` asks clients for them.

Source: Kafka's `ClientMetricsConfigs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from odradek.metadata.configs.definitions import ConfigDefinition, ConfigSource, ConfigType, InvalidConfig, SetValue
from odradek.metadata.configs.described import Described

_c = ConfigDefinition
DEFINITIONS: Mapping[str, ConfigDefinition] = {
    definition.name: definition
    for definition in (
        _c("interval.ms", ConfigType.INT, "300000"),
        _c("match", ConfigType.LIST, ""),
        _c("metrics", ConfigType.LIST, ""),
    )
}
_DOCUMENTATION = {
    "interval.ms": "How often a client pushes its metrics.",
    "match": "Which clients: patterns of what is known of them.",
    "metrics": "Prefixes of the metrics wanted; * is all of them.",
}
MIN_INTERVAL_MS = 100
MAX_INTERVAL_MS = 3_600_000
_SELECTORS = frozenset(
    (
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    )
)


def validate_client_metrics(configs: Mapping[str, str]) -> None:
    """Raises InvalidConfig with Kafka's messages."""
    for name, text in configs.items():
        definition = DEFINITIONS.get(name)
        if definition is None:
            raise InvalidConfig(f"Unknown client metrics configuration: {name}")
        value = definition.parse(text)
        if isinstance(value, int) and not MIN_INTERVAL_MS <= value <= MAX_INTERVAL_MS:
            raise InvalidConfig(
                f"Invalid value {value} for interval.ms, interval must be between {MIN_INTERVAL_MS} and "
                f"{MAX_INTERVAL_MS} (1 hour)"
            )
        if name == "match" and isinstance(value, tuple):
            for selector in value:
                _check_selector(selector)


def _check_selector(selector: str) -> None:
    name, equals, pattern = selector.partition("=")
    if not equals or name.strip() not in _SELECTORS:
        raise InvalidConfig(f"Illegal client matching pattern: {selector}")
    try:
        re.compile(pattern.strip())
    except re.error as error:
        raise InvalidConfig(f"Illegal client matching pattern: {selector}") from error


def describe_client_metrics(
    configs: Mapping[str, str], keys: Iterable[str] | None = None, *, documentation: bool = False
) -> list[Described]:
    """All configurations of a subscription, or those of `keys`, by name."""
    chosen = None if keys is None else set(keys)
    described = []
    for name, definition in sorted(DEFINITIONS.items()):
        if chosen is not None and name not in chosen:
            continue
        default = SetValue(name, definition.default, ConfigSource.DEFAULT_CONFIG)
        own = [SetValue(name, configs[name], ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG)] if name in configs else []
        first, *_ = synonyms = [*own, default]
        text = _DOCUMENTATION[name] if documentation else None
        described.append(Described(name, first.text, False, first.source, False, synonyms, definition.type, text))
    return described
