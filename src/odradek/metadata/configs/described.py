"""What DescribeConfigs and CreateTopics say of configurations: values, where they come from, what they mean.

Source: Kafka's `ConfigHelper`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from odradek.metadata.configs.catalog import (
    BROKER,
    GROUP,
    GROUP_SYNONYMS,
    TOPIC,
    TOPIC_SYNONYMS,
    base_name,
    broker_definition,
    topic_default,
)
from odradek.metadata.configs.definitions import ConfigDefinition, ConfigSource, Scope, SetValue, Value, plain_text

_OWN: Final = "odradek."
UNKNOWN_TYPE = 0


class BrokerValues(Protocol):
    """The configuration of the broker that answers."""

    def value(self, name: str) -> Value:
        """The value of a configuration in its own type."""
        ...

    def set_values(self, name: str) -> list[SetValue]:
        """Places where the configuration is set, by precedence."""
        ...

    def set_names(self) -> set[str]:
        """Names of the configurations that are set."""
        ...


class Described(NamedTuple):
    """One configuration of a topic, broker or group. A sensitive one has no value."""

    name: str
    value: str | None
    read_only: bool
    source: ConfigSource
    is_sensitive: bool
    synonyms: list[SetValue]
    type: int
    documentation: str | None


def _from_own_name(name: str, values: list[SetValue]) -> list[SetValue]:
    # Kafka drops what stands before the first entry of the very name; what follows are its weaker synonyms.
    for index, value in enumerate(values):
        if value.name == name:
            return values[index:]
    return []


def _documentation(name: str) -> str | None:
    # Only those who ask pay for loading the texts.
    from odradek.metadata.configs.documentation import DOCUMENTATION

    return DOCUMENTATION.get(name)


def _wanted(names: Iterable[str], keys: Iterable[str] | None) -> list[str]:
    if keys is None:
        return sorted(names)
    chosen = set(keys)
    return sorted(name for name in names if name in chosen)


def describe_topic(
    overrides: Mapping[str, str],
    broker: BrokerValues,
    keys: Iterable[str] | None = None,
    *,
    documentation: bool = False,
) -> list[Described]:
    """All configurations of a topic, or those of `keys`; `overrides` are set for the topic itself.

    Our own are among all of them where they are set only: tools of Apache Kafka compare what a topic has.
    """
    described = []
    names = (n for n, d in TOPIC.items() if d.listed and (keys is not None or n in overrides or not n.startswith(_OWN)))
    for name in _wanted(names, keys):
        definition = TOPIC[name]
        synonyms: list[SetValue] = []
        if name in TOPIC_SYNONYMS:
            server_name = TOPIC_SYNONYMS[name][0].name
            synonyms = _from_own_name(server_name, broker.set_values(server_name))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
        text = overrides.get(name)
        if text is None:
            text = plain_text(topic_default(definition, broker.value))
        else:
            source = ConfigSource.DYNAMIC_TOPIC_CONFIG
            synonyms = [SetValue(name, text, source), *synonyms]
        described.append(_described(definition, text, source, synonyms, documentation=documentation, read_only=False))
    return described


def describe_broker(
    broker: BrokerValues, keys: Iterable[str] | None = None, *, documentation: bool = False
) -> list[Described]:
    """All configurations of a broker, or those of `keys`, by name."""
    names = {name for name, definition in BROKER.items() if definition.listed} | broker.set_names()
    described = []
    for name in _wanted(names, keys):
        values = _from_own_name(name, broker.set_values(name))
        source = values[0].source if values else ConfigSource.DEFAULT_CONFIG
        definition = broker_definition(name)
        if definition is None:
            # A plugin's: it may be a secret.
            described.append(Described(name, None, False, source, True, _hidden(values), UNKNOWN_TYPE, None))
            continue
        text = values[0].text if values and values[0].name == name else plain_text(definition.parse_default())
        base = BROKER.get(base_name(name))
        read_only = base is None or base.scope is Scope.READ_ONLY
        described.append(_described(definition, text, source, values, documentation=documentation, read_only=read_only))
    return described


def describe_broker_default(
    configs: Mapping[str, str], keys: Iterable[str] | None = None, *, documentation: bool = False
) -> list[Described]:
    """What holds for all brokers by a dynamic setting."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    described = []
    for name in _wanted(configs, keys):
        values = [SetValue(name, configs[name], source)]
        definition = broker_definition(name)
        if definition is None:
            described.append(Described(name, None, False, source, True, _hidden(values), UNKNOWN_TYPE, None))
        else:
            described.append(
                _described(definition, configs[name], source, values, documentation=documentation, read_only=False)
            )
    return described


def describe_group(
    overrides: Mapping[str, str],
    broker: BrokerValues,
    keys: Iterable[str] | None = None,
    *,
    documentation: bool = False,
) -> list[Described]:
    """All configurations of a group, or those of `keys`; `overrides` are set for the group itself."""
    described = []
    for name in _wanted((n for n, d in GROUP.items() if d.listed), keys):
        definition = GROUP[name]
        server_name = GROUP_SYNONYMS.get(name)
        synonyms = [] if server_name is None else broker.set_values(server_name)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
        text = overrides.get(name)
        if text is not None:
            source = ConfigSource.DYNAMIC_GROUP_CONFIG
            synonyms = [SetValue(name, text, source), *synonyms]
        else:
            text = definition.default if server_name is None else plain_text(broker.value(server_name))
        described.append(_described(definition, text, source, synonyms, documentation=documentation, read_only=False))
    return described


def _hidden(values: list[SetValue]) -> list[SetValue]:
    return [value._replace(text=None) for value in values]


def _described(
    definition: ConfigDefinition,
    text: str | None,
    source: ConfigSource,
    synonyms: list[SetValue],
    *,
    documentation: bool,
    read_only: bool,
) -> Described:
    sensitive = definition.is_sensitive
    return Described(
        definition.name,
        None if sensitive else text,
        read_only,
        source,
        sensitive,
        _hidden(synonyms) if sensitive else synonyms,
        definition.type,
        _documentation(base_name(definition.name)) if documentation else None,
    )
