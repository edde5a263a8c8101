"""`odradek migrate check`: what stands in the way of moving a running cluster of Apache Kafka, broker by broker."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from odradek.broker.migration.cluster_check import Finding, findings
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import add_admin
from odradek.cli.session import run_admin
from odradek.cli.terminal.output import Column, show

if TYPE_CHECKING:
    from odradek.client.admin import Admin, ConfigEntry

COLUMNS: Final = (Column("SEVERITY", "severity"), Column("SUBJECT", "subject", 24), Column("FINDING", "text", 100))
EXAMPLES: Final = """
odradek migrate check -b kafka:9092
odradek migrate check -b kafka:9092 -o json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("action", choices=("check",), help="check: read the cluster, change nothing")
    add_admin(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Print the findings; 1 where there is an obstacle."""
    found = run_admin(arguments, _read)
    show([each._asdict() for each in found], COLUMNS, arguments.output)
    return int(any(each.severity == "obstacle" for each in found))


async def _read(admin: Admin) -> list[Finding]:
    from odradek.client.admin import ConfigResource, ConfigResourceType

    features = await admin.features.describe()
    levels = {name: span.max_version for name, span in features.finalized.items()}
    brokers = [each.node_id for each in (await admin.describe_cluster()).brokers]
    topics = await admin.list_topics()
    resources = [ConfigResource(ConfigResourceType.BROKER, str(broker)) for broker in brokers]
    resources += [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]
    described = await admin.describe_configs(resources)
    of_brokers: dict[int, Mapping[str, str | None]] = {}
    of_topics: dict[str, Mapping[str, str]] = {}
    for resource, entries in described.items():
        if not isinstance(entries, dict):
            raise entries
        if resource.type is ConfigResourceType.BROKER:
            of_brokers[int(resource.name)] = {each.name: each.value for each in _set_here(entries)}
        else:
            of_topics[resource.name] = {each.name: each.value or "" for each in entries.values() if _is_of_topic(each)}
    return findings(levels, of_brokers, of_topics)


def _set_here(entries: Mapping[str, ConfigEntry]) -> list[ConfigEntry]:
    """What the file of a broker sets."""
    from odradek.client.admin import ConfigSource

    return [each for each in entries.values() if each.source is ConfigSource.STATIC_BROKER_CONFIG]


def _is_of_topic(entry: ConfigEntry) -> bool:
    from odradek.client.admin import ConfigSource

    return entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
