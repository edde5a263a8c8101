"""`odradek -L`: brokers, topics and partitions in the form of kcat's metadata list."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from odradek.cli.arguments.errors import CommandError
from odradek.cli.session import run_admin
from odradek.client.network.metadata import TopicInfo

if TYPE_CHECKING:
    from odradek.client.admin import Admin, ClusterDescription


def list_metadata(
    topic: str | None, arguments: argparse.Namespace, given: Mapping[str, str], *, as_json: bool = False
) -> int:
    """Print the metadata of one topic or of all; `given` are the client's settings.

    Raises CommandError for a topic that does not exist.
    """

    async def work(admin: Admin) -> str:
        cluster = await admin.describe_cluster()
        topics = await admin.describe_topics(None if topic is None else [topic])
        found = [each for _, each in sorted(topics.items()) if isinstance(each, TopicInfo)]
        if topic is not None and not found:
            raise CommandError(f"topic {topic} does not exist", "UNKNOWN_TOPIC_OR_PARTITION")
        if as_json:
            return json.dumps(document_of(topic, cluster, found), separators=(",", ":"))
        servers = admin.cluster.options["bootstrap_servers"]
        return "\n".join([f"Metadata for {topic or 'all topics'} (from {servers}):", *lines_of(cluster, found)])

    print(run_admin(arguments, work, given))
    return 0


def lines_of(cluster: ClusterDescription, topics: Sequence[TopicInfo]) -> list[str]:
    """As `kcat -L` prints them."""
    lines = [f" {len(cluster.brokers)} brokers:"]
    for broker in cluster.brokers:
        note = " (controller)" if broker.node_id == cluster.controller_id else ""
        lines.append(f"  broker {broker.node_id} at {broker.host}:{broker.port}{note}")
    lines.append(f" {len(topics)} topics:")
    for each in topics:
        lines.append(f'  topic "{each.name}" with {len(each.partitions)} partitions:')
        for partition in each.partitions:
            replicas, isrs = (",".join(map(str, ids)) for ids in (partition.replicas, partition.isr))
            place = f"    partition {partition.partition}, leader {partition.leader}"
            lines.append(f"{place}, replicas: {replicas}, isrs: {isrs}")
    return lines


def document_of(topic: str | None, cluster: ClusterDescription, topics: Sequence[TopicInfo]) -> dict[str, Any]:
    """As `kcat -L -J` prints it, without the broker that has answered."""
    return {
        "query": {"topic": topic or "*"},
        "controllerid": cluster.controller_id,
        "brokers": [{"id": each.node_id, "name": f"{each.host}:{each.port}"} for each in cluster.brokers],
        "topics": [
            {
                "topic": each.name,
                "partitions": [
                    {
                        "partition": partition.partition,
                        "leader": partition.leader,
                        "replicas": [{"id": replica} for replica in partition.replicas],
                        "isrs": [{"id": replica} for replica in partition.isr],
                    }
                    for partition in each.partitions
                ],
            }
            for each in topics
        ],
    }
