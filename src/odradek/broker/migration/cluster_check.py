"""What stands in the way of moving a KRaft cluster of Apache Kafka to Odradek, broker by broker. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.config_errors import ConfigError
from odradek.metadata.configs.catalog import rejected_topic_settings
from odradek.metadata.configs.effect_rules import Effect, topic_effect
from odradek.metadata.features import BROKER_FEATURES

_HIDDEN: Final = "hidden"
"""In the place of a password, which a broker does not show."""
_JAAS: Final = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p" user_u="p";'
"""In the place of a login, which a broker does not show either: its mechanism is checked, not its users."""


class Finding(NamedTuple):
    """One thing that an administrator has to know before."""

    severity: str
    """`obstacle`, or `note` for what works in another way."""
    subject: str
    """The cluster, a broker or a topic."""
    text: str


def findings(
    levels: Mapping[str, int],
    brokers: Mapping[int, Mapping[str, str | None]],
    topics: Mapping[str, Mapping[str, str]],
) -> list[Finding]:
    """All findings, the obstacles first.

    `levels` are finalized features; `brokers` and `topics` have what is set for each, None in the place of a secret.
    """
    found = [
        *_features(levels),
        *(each for broker, settings in sorted(brokers.items()) for each in _broker(broker, settings)),
        *(each for topic, settings in sorted(topics.items()) for each in _topic(topic, settings)),
    ]
    return sorted(found, key=lambda each: each.severity != "obstacle")


def _features(levels: Mapping[str, int]) -> Iterator[Finding]:
    known = {feature.name: feature.max_level for feature in BROKER_FEATURES}
    for name, level in sorted(levels.items()):
        highest = known.get(name, 0)
        if level > highest:
            way = f"`odradek features downgrade --feature {name}={highest}`"
            if not highest:
                way = f"`odradek features disable --feature {name}`"
            yield Finding("obstacle", "cluster", f"{name} is finalized at level {level}: {way} takes it back")


def _broker(broker: int, settings: Mapping[str, str | None]) -> Iterator[Finding]:
    subject = f"broker {broker}"
    roles = {each.strip() for each in (settings.get("process.roles") or "").split(",")}
    if "controller" in roles:
        text = "it is a controller, too: move the controllers to processes of their own first"
        yield Finding("obstacle", subject, text)
    if not roles - {""}:
        yield Finding("obstacle", subject, "it is not of a KRaft cluster: use `odradek import`")
        return
    shown = {name: _shown(name) if value is None else value for name, value in settings.items()}
    try:
        config = BrokerConfig({**shown, "process.roles": "broker"})
    except ConfigError as error:
        for line in str(error).splitlines():
            if not line.endswith("settings cannot be used:"):
                yield Finding("obstacle", subject, line.strip())
        return
    for purpose, names in config.without_effect().items():
        yield Finding("note", subject, f"without effect: {', '.join(names)} ({purpose})")


def _shown(name: str) -> str:
    return _JAAS if name.endswith("sasl.jaas.config") else _HIDDEN


def _topic(topic: str, settings: Mapping[str, str]) -> Iterator[Finding]:
    rejected = rejected_topic_settings(settings)
    for name, value in sorted(settings.items()):
        if name == "remote.storage.enable" and value == "true":
            yield Finding(
                "obstacle", f"topic {topic}", "its old segments are in tiered storage (remote.storage.enable)"
            )
        elif topic_effect(name) is Effect.REFUSED and value not in ("", "false"):
            yield Finding("obstacle", f"topic {topic}", f"{name}={value} is not supported")
        elif name in rejected:
            yield Finding("note", f"topic {topic}", f"ignored: {rejected[name]}")
