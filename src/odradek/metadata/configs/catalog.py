"""All configurations by name, what topics take from their broker, and validation with Kafka's messages.

Sources: Kafka's `LogConfig`, `AbstractKafkaConfig`, `GroupConfig`, `ServerTopicConfigSynonyms`, `DynamicBrokerConfig`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from odradek.metadata.configs.broker_configs import BROKER_CONFIGS
from odradek.metadata.configs.definitions import (
    ConfigDefinition,
    ConfigType,
    InvalidConfig,
    Scope,
    Value,
    by_name,
    split_list,
)
from odradek.metadata.configs.group_configs import GROUP_CONFIGS
from odradek.metadata.configs.own_configs import LEGACY_CONFIGS, ODRADEK_CONFIGS
from odradek.metadata.configs.topic_configs import TOPIC_CONFIGS
from odradek.ports.hosts import is_address, normalized

TOPIC: Mapping[str, ConfigDefinition] = by_name(TOPIC_CONFIGS)
GROUP: Mapping[str, ConfigDefinition] = by_name(GROUP_CONFIGS)
BROKER: Mapping[str, ConfigDefinition] = by_name(BROKER_CONFIGS + ODRADEK_CONFIGS + LEGACY_CONFIGS)

_HOUR_MS = 60 * 60 * 1000
_MINUTE_MS = 60 * 1000


class Synonym(NamedTuple):
    """A broker configuration that gives a topic's default; its number times `factor` is the topic's."""

    name: str
    factor: int = 1


# The first one set wins.
TOPIC_SYNONYMS: Mapping[str, tuple[Synonym, ...]] = {
    "segment.bytes": (Synonym("log.segment.bytes"),),
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
    "segment.jitter.ms": (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR_MS)),
    "segment.index.bytes": (Synonym("log.index.size.max.bytes"),),
    "flush.messages": (Synonym("log.flush.interval.messages"),),
    "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    "retention.bytes": (Synonym("log.retention.bytes"),),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", _MINUTE_MS),
        Synonym("log.retention.hours", _HOUR_MS),
    ),
    "max.message.bytes": (Synonym("message.max.bytes"),),
    "index.interval.bytes": (Synonym("log.index.interval.bytes"),),
    "delete.retention.ms": (Synonym("log.cleaner.delete.retention.ms"),),
    "min.compaction.lag.ms": (Synonym("log.cleaner.min.compaction.lag.ms"),),
    "max.compaction.lag.ms": (Synonym("log.cleaner.max.compaction.lag.ms"),),
    "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms"),),
    "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
    "cleanup.policy": (Synonym("log.cleanup.policy"),),
    "unclean.leader.election.enable": (Synonym("unclean.leader.election.enable"),),
    "min.insync.replicas": (Synonym("min.insync.replicas"),),
    "compression.type": (Synonym("compression.type"),),
    "compression.gzip.level": (Synonym("compression.gzip.level"),),
    "compression.lz4.level": (Synonym("compression.lz4.level"),),
    "compression.zstd.level": (Synonym("compression.zstd.level"),),
    "preallocate": (Synonym("log.preallocate"),),
    "message.timestamp.type": (Synonym("log.message.timestamp.type"),),
    "message.timestamp.before.max.ms": (Synonym("log.message.timestamp.before.max.ms"),),
    "message.timestamp.after.max.ms": (Synonym("log.message.timestamp.after.max.ms"),),
    "local.retention.ms": (Synonym("log.local.retention.ms"),),
    "local.retention.bytes": (Synonym("log.local.retention.bytes"),),
}

GROUP_SYNONYMS: Mapping[str, str] = {
    name: f"group.{name}"
    for name in GROUP
    if name not in ("share.renew.acknowledge.enable", "share.isolation.level", "share.auto.offset.reset")
}

_CHAINS: Mapping[str, tuple[str, ...]] = {
    synonym.name: tuple(s.name for s in synonyms)
    for synonyms in TOPIC_SYNONYMS.values()
    if len(synonyms) > 1
    for synonym in synonyms
}

LISTENER_PREFIX = "listener.name."


def broker_definition(name: str) -> ConfigDefinition | None:
    """Also of `listener.name.NAME.CONFIG`, which means CONFIG for one listener."""
    found = BROKER.get(name)
    if found is None and name.startswith(LISTENER_PREFIX):
        inner = BROKER.get(inner_name(name))
        if inner is not None:
            return inner._replace(name=name)
    return found


def inner_name(name: str) -> str:
    """As `base_name`, also without a SASL mechanism: `listener.name.NAME.scram-sha-256.sasl.jaas.config`."""
    base = base_name(name)
    without_mechanism = base.partition(".")[2]
    return without_mechanism if base != name and base not in BROKER and without_mechanism in BROKER else base


def base_name(name: str) -> str:
    """The configuration that `listener.name.NAME.` qualifies; any other name as it is."""
    if not name.startswith(LISTENER_PREFIX):
        return name
    return name[len(LISTENER_PREFIX) :].partition(".")[2]


def broker_synonyms(name: str) -> tuple[str, ...]:
    """The names under which this is set, the strongest first."""
    chain = _CHAINS.get(name)
    if chain is not None:
        return chain
    base = base_name(name)
    return (name,) if base == name or base not in BROKER else (name, base)


def topic_settings(overrides: Mapping[str, str], broker_value: Callable[[str], Value]) -> dict[str, Value]:
    """Every topic configuration, typed: what the topic has set, else what its broker says, else Kafka's default.

    `overrides` were validated when they were set; InvalidConfig is raised if they are not valid all the same.
    """
    settings: dict[str, Value] = {}
    for name, definition in TOPIC.items():
        text = overrides.get(name)
        settings[name] = topic_default(definition, broker_value) if text is None else definition.parse(text)
    return settings


def topic_default(definition: ConfigDefinition, broker_value: Callable[[str], Value]) -> Value:
    """The value of a topic that does not set the configuration: the broker's, else the default."""
    for synonym in TOPIC_SYNONYMS.get(definition.name, ()):
        value = broker_value(synonym.name)
        if value is not None:
            if synonym.factor != 1 and isinstance(value, int):
                return value * synonym.factor if value >= 0 else -1
            return value
    return definition.parse(definition.default)


def validate_topic_configs(
    configs: Mapping[str, str | None],
    broker_value: Callable[[str], Value],
    *,
    existing: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Answer the overrides of a topic as they are to be kept. Raises InvalidConfig with Kafka's messages.

    Names in `existing` that a newer or older version knew are let through unchanged.
    """
    nulls = sorted(name for name, value in configs.items() if value is None)
    if nulls:
        raise InvalidConfig(f"Null value not supported for topic configs: {','.join(nulls)}")
    kept = {name: value for name, value in configs.items() if value is not None}
    for name in kept:
        if name not in TOPIC and (existing is None or name not in existing):
            raise InvalidConfig(f"Unknown topic config name: {name}")
    settings = topic_settings(kept, broker_value)
    shortest, longest = settings["min.compaction.lag.ms"], settings["max.compaction.lag.ms"]
    if isinstance(shortest, int) and isinstance(longest, int) and shortest > longest:
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"
        )
    if settings["remote.storage.enable"]:
        raise InvalidConfig(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    return kept


def rejected_topic_settings(configs: Mapping[str, str]) -> dict[str, InvalidConfig]:
    """Why this version rejects stored settings of a topic, by name; names that it does not know are none of them."""
    found = {}
    for name, text in configs.items():
        try:
            if name in TOPIC:
                TOPIC[name].parse(text)
        except InvalidConfig as error:
            found[name] = error
    return found


def validate_group_configs(configs: Mapping[str, str], broker_value: Callable[[str], Value]) -> None:
    """Raises InvalidConfig; limits of the broker (`group.consumer.min.session.timeout.ms` ...) hold too."""
    for name, text in configs.items():
        definition = GROUP.get(name)
        if definition is None:
            raise InvalidConfig(f"Unknown group config name: {name}")
        value = definition.parse(text)
        kind, _, rest = name.partition(".")
        for bound, word in (("min", "greater"), ("max", "less")):
            limit_name = f"group.{kind}.{bound}.{rest}"
            if limit_name not in BROKER or not isinstance(value, int):
                continue
            limit = broker_value(limit_name)
            if isinstance(limit, int) and (value < limit if bound == "min" else value > limit):
                raise InvalidConfig(f"{name} must be {word} than or equal to {limit_name}")
    _ensure_heartbeats_fit(configs, broker_value)


def _ensure_heartbeats_fit(configs: Mapping[str, str], broker_value: Callable[[str], Value]) -> None:
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = (
            GROUP[name].parse(configs[name]) if name in configs else broker_value(GROUP_SYNONYMS[name])
            for name in (f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms")
        )
        if isinstance(session, int) and isinstance(heartbeat, int) and session <= heartbeat:
            raise InvalidConfig(f"{kind}.session.timeout.ms must be greater than {kind}.heartbeat.interval.ms")


def validate_dynamic_broker_configs(configs: Mapping[str, str], *, per_broker: bool) -> None:
    """What may be set while a broker runs (KIP-226). Unknown names are kept for plugins. Raises InvalidConfig."""
    fixed = [name for name in configs if (d := BROKER.get(name)) is not None and d.scope is Scope.READ_ONLY]
    if fixed:
        raise InvalidConfig(f"Cannot update these configs dynamically: [{', '.join(sorted(fixed))}]")
    if not per_broker:
        single = [
            name
            for name in configs
            if (d := BROKER.get(base_name(name))) is not None and (d.scope is Scope.PER_BROKER or d.name != name)
        ]
        if single:
            raise InvalidConfig(
                f"Cannot update these configs at default cluster level, broker id must be specified: "
                f"[{', '.join(sorted(single))}]"
            )
    for name, text in configs.items():
        definition = broker_definition(name)
        if definition is not None:
            check_broker_value(definition, text)


def check_broker_value(definition: ConfigDefinition, text: str) -> Value:
    """Parse and check what Kafka checks outside of its definitions. Raises InvalidConfig."""
    value = definition.parse(text)
    name = definition.name
    if name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours") and isinstance(value, int):
        if value < -1 or value == 0:
            raise InvalidConfig(f"requirement failed: {name} must be unlimited (-1) or, greater than or equal to 1")
    elif name == "log.roll.ms" and isinstance(value, int) and value < 1:
        raise InvalidConfig("requirement failed: log.roll.ms must be greater than or equal to 1")
    elif name == "log.roll.jitter.ms" and isinstance(value, int) and value < 0:
        raise InvalidConfig("requirement failed: log.roll.jitter.ms must be greater than or equal to 0")
    elif name == "max.connections.per.ip.overrides" and isinstance(value, str):
        for part in split_list(value):
            address_limit(part)
    return value


def address_limit(text: str) -> tuple[str, int]:
    """The address and its limit of an element of `max.connections.per.ip.overrides`, the address as `normalized` is.

    Raises InvalidConfig for an element that would limit no address. Kafka resolves names of hosts; we do not.
    """
    name, _, most = text.rpartition(":")
    address = name.strip("[] ")
    if not is_address(address) or not most.strip().isdecimal():
        raise InvalidConfig(
            f"Invalid value {text} for configuration max.connections.per.ip.overrides: ADDRESS:NUMBER expected"
        )
    return normalized(address), int(most)


def is_list(definition: ConfigDefinition | None) -> bool:
    """Whether the values are lists, which may be appended to and subtracted from."""
    return definition is not None and definition.type is ConfigType.LIST
