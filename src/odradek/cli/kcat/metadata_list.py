"""`odradek -L`: brokers, topics and partitions in the form of kcat's metadata list."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from odradek.cli.arguments.errors import CommandError
from odradek.cli.session import run_admin
from odradek.client.network.metadata import TopicInfo

if TYPE_CHECKING:
    from odradek.client.admin import Admin


def list_metadata(topic: str | None, arguments: argparse.Namespace) -> int:
    """Print the metadata of one topic or of all. Raises CommandError for a topic that does not exist."""

    async def work(admin: Admin) -> list[str]:
        cluster = await admin.describe_cluster()
        topics = await admin.describe_topics(None if topic is None else [topic])
        servers = admin.cluster.options["bootstrap_servers"]
        lines = [f"Metadata for {topic or 'all topics'} (from {servers}):", f" {len(cluster.brokers)} brokers:"]
        for broker in cluster.brokers:
            note = " (controller)" if broker.node_id == cluster.controller_id else ""
            lines.append(f"  broker {broker.node_id} at {broker.host}:{broker.port}{note}")
        found = [each for _, each in sorted(topics.items()) if isinstance(each, TopicInfo)]
        if topic is not None and not found:
            raise CommandError(f"topic {topic} does not exist", "UNKNOWN_TOPIC_OR_PARTITION")
        lines.append(f" {len(found)} topics:")
        for each in found:
            lines.append(f'  topic "{each.name}" with {len(each.partitions)} partitions:')
            for partition in each.partitions:
                replicas, isrs = (",".join(map(str, ids)) for ids in (partition.replicas, partition.isr))
                place = f"    partition {partition.partition}, leader {partition.leader}"
                lines.append(f"{place}, replicas: {replicas}, isrs: {isrs}")
        return lines

    print("\n".join(run_admin(arguments, work)))
    return 0
