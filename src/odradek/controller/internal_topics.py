"""The topics that brokers make for themselves: how many partitions, how many copies, which settings."""

from __future__ import annotations

from typing import Protocol

from odradek.controller.outcome import Settings
from odradek.controller.topics import NewTopic
from odradek.metadata.configs.definitions import plain_text
from odradek.metadata.image import AUDIT_TOPIC, GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

_PREFIXES = {
    GROUP_METADATA_TOPIC: "offsets.topic.",
    TRANSACTION_STATE_TOPIC: "transaction.state.log.",
    AUDIT_TOPIC: "odradek.audit.topic.",
}


class GivenSettings(Settings, Protocol):
    """Settings that distinguish given values from defaults."""

    def given(self, name: str) -> str | None:
        """What the properties file or the command line says; None for nothing."""
        ...


def creatable(name: str, settings: GivenSettings, live_brokers: int) -> NewTopic:
    """A topic as its automatic creation asks for it; an internal one as the configuration says.

    Kafka's default of three copies is what a cluster wants. Where no other number is set, fewer brokers than
    that get as many copies as there are brokers: a single broker must have its groups without any configuration. A
    number that was set holds, so that the first broker of a cluster to be up makes no topic with one copy.
    """
    prefix = _PREFIXES.get(name)
    if prefix is None:
        return NewTopic(name)
    factor = f"{prefix}replication.factor"
    copies = settings.number(factor)
    if copies > live_brokers > 0 and settings.given(factor) is None:
        copies = live_brokers
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": plain_text(settings.value(f"{prefix}segment.bytes")),
    }
    if name == GROUP_METADATA_TOPIC:
        configs["compression.type"] = "producer"
    elif name == AUDIT_TOPIC:
        configs["cleanup.policy"] = "delete"
        configs["retention.ms"] = plain_text(settings.value("odradek.audit.topic.retention.ms"))
        configs["min.insync.replicas"] = str(min(copies, settings.number("odradek.audit.topic.min.isr")))
    else:
        in_sync = min(copies, settings.number("transaction.state.log.min.isr"))
        configs["compression.type"] = "uncompressed"
        configs["min.insync.replicas"] = str(in_sync)
        configs["unclean.leader.election.enable"] = "false"
    return NewTopic(name, settings.number(f"{prefix}num.partitions"), copies, (), tuple(configs.items()))
