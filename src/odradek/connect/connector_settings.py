"""Settings that all connectors have, with the names of Kafka Connect's ConnectorConfig, SinkConnectorConfig and
SourceConnectorConfig.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from odradek.connect.settings import REQUIRED, Importance, Setting, Type

CONVERTER_PREFIXES: Final = ("key.converter.", "value.converter.")
CLIENT_PREFIXES: Final = ("consumer.override.", "producer.override.")
TRANSFORM_PREFIX: Final = "transforms."

COMMON: Final = (
    Setting("name", Type.STRING, REQUIRED, "a name that no other connector has", Importance.HIGH),
    Setting("connector.class", Type.CLASS, REQUIRED, "the kind of connector", Importance.HIGH),
    Setting("tasks.max", Type.INT, 1, "most tasks that work at the same time", Importance.HIGH, minimum=1),
    Setting("key.converter", Type.CLASS, "string", "converter of keys: string, json, bytes, avro, protobuf "
            "or json-schema", Importance.LOW),
    Setting("value.converter", Type.CLASS, "json", "converter of values: json, string, bytes, avro, "
            "protobuf or json-schema", Importance.LOW),
    Setting("transforms", Type.LIST, [], "names of transforms, applied in this order", Importance.LOW,
            group="Transforms"),
    Setting("errors.tolerance", Type.STRING, "none", "none: a record that cannot be converted or written fails the "
            "task; all: it is skipped", choices=("none", "all"), group="Error Handling"),
    Setting("errors.retry.timeout", Type.LONG, -1, "ms for which a task tries again while the other system is away; "
            "-1: without limit", group="Error Handling", minimum=-1),
    Setting("errors.retry.delay.max.ms", Type.LONG, 60_000, "longest pause between two attempts",
            group="Error Handling", minimum=1),
    Setting("errors.log.enable", Type.BOOLEAN, False, "log each record that was skipped", group="Error Handling"),
)  # fmt: skip
SINK: Final = (
    Setting("topics", Type.LIST, [], "topics to read", Importance.HIGH),
    Setting("topics.regex", Type.STRING, "", "regular expression of topics to read: the complete name matches",
            Importance.HIGH),
    Setting("errors.deadletterqueue.topic.name", Type.STRING, "", "topic for records that were skipped",
            group="Error Handling"),
    Setting("errors.deadletterqueue.context.headers.enable", Type.BOOLEAN, True,
            "describe the failure in headers of dead letters", group="Error Handling"),
)  # fmt: skip
SOURCE: Final = (
    Setting("exactly.once.support", Type.STRING, "requested", "accepted for configurations of Kafka Connect: every "
            "source writes exactly once", Importance.LOW, choices=("requested", "required")),
    Setting("poll.interval.ms", Type.LONG, 5_000, "pause after a look that found nothing", minimum=1),
)  # fmt: skip


QUERY: Final = ("name", "connector.class", "tasks.max", "topics", "topics.regex")
"""Names of the settings that a query in Spark has of those above."""


class ErrorPolicy(NamedTuple):
    """What a task does about failures."""

    tolerates_records: bool
    """Whether records that cannot be processed are skipped."""
    retry_s: float
    """How long an absent system is tried again."""
    longest_pause_s: float
    logs_records: bool
    dead_letters: str
    """Topic for skipped records of a sink; empty for none."""
    describes_failures: bool
    """Whether dead letters have headers that describe the failure."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ErrorPolicy:
        """The policy in a configuration's values."""
        retry_ms = values["errors.retry.timeout"]
        return cls(
            tolerates_records=values["errors.tolerance"] == "all",
            retry_s=math.inf if retry_ms < 0 else retry_ms / 1000,
            longest_pause_s=values["errors.retry.delay.max.ms"] / 1000,
            logs_records=values.get("errors.log.enable", False),
            dead_letters=values.get("errors.deadletterqueue.topic.name", ""),
            describes_failures=values.get("errors.deadletterqueue.context.headers.enable", True),
        )


def subset(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The settings that begin with the prefix, without it."""
    return {name.removeprefix(prefix): text for name, text in config.items() if name.startswith(prefix)}
