"""`odradek cluster status`: brokers, what they lead and hold, how far their followers are behind."""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.output import DOCUMENTS, Column, show, show_document
from odradek.cli.session import run_admin
from odradek.cli.watching import repeat
from odradek.client.model import TopicPartition

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.metadata import TopicInfo

COLUMNS: Final = (
    Column("BROKER", "broker", 6),
    Column("HOST", "address", 20),
    Column("RACK", "rack"),
    Column("ROLE", "role", 10),
    Column("LEADS", "leads"),
    Column("PREFERRED", "preferred"),
    Column("REPLICAS", "replicas"),
    Column("OUT-OF-SYNC", "out_of_sync"),
    Column("LAG", "lag"),
)


async def look(admin: Admin) -> dict[str, Any]:
    """The state of the cluster at a moment. `lag` is in records, of all partitions that a broker follows."""
    found = await admin.describe_cluster()
    topics = await topics_of(admin)
    held: dict[int, list[TopicPartition]] = defaultdict(list)
    leads: Counter[int] = Counter()
    preferred: Counter[int] = Counter()
    out_of_sync: Counter[int] = Counter()
    leaders: dict[TopicPartition, int] = {}
    for topic in topics:
        for each in topic.partitions:
            place = TopicPartition(topic.name, each.partition)
            leaders[place] = each.leader
            leads[each.leader] += 1
            preferred[each.replicas[0]] += 1
            for broker in each.replicas:
                held[broker].append(place)
                out_of_sync[broker] += broker not in each.isr
    live = {each.node_id for each in found.brokers}
    offsets = await admin.replicas.all_end_offsets({broker: held[broker] for broker in live if held[broker]})
    brokers = [
        {
            "broker": each.node_id,
            "address": f"{each.host}:{each.port}",
            "rack": each.rack,
            "role": "controller" if each.node_id == found.controller_id else "broker",
            "leads": leads[each.node_id],
            "preferred": preferred[each.node_id],
            "replicas": len(held[each.node_id]),
            "out_of_sync": out_of_sync[each.node_id],
            "lag": _lag(each.node_id, leaders, offsets),
        }
        for each in found.brokers
    ]
    dead = [
        {"broker": broker, "role": "dead", "leads": 0, "preferred": preferred[broker], "replicas": len(held[broker]),
         "out_of_sync": out_of_sync[broker]}
        for broker in sorted(held.keys() - live)
    ]  # fmt: skip
    partitions = [each for topic in topics for each in topic.partitions]
    return {
        "cluster_id": found.cluster_id,
        "controller_id": found.controller_id,
        "partitions": len(partitions),
        "under_replicated": sum(len(each.isr) < len(each.replicas) for each in partitions),
        "leaderless": sum(each.leader not in live for each in partitions),
        "brokers": sorted([*brokers, *dead], key=lambda broker: broker["broker"]),
    }


async def topics_of(admin: Admin) -> list[TopicInfo]:
    """All topics that can be described."""
    from odradek.wire.errors import KafkaError

    return [topic for topic in (await admin.describe_topics(None)).values() if not isinstance(topic, KafkaError)]


def _lag(broker: int, leaders: dict[TopicPartition, int], offsets: dict[int, dict[TopicPartition, int]]) -> int | None:
    own = offsets.get(broker)
    if own is None:
        return None
    behind = 0
    for place, end in own.items():
        leader = leaders.get(place, -1)
        ahead = offsets.get(leader, {}).get(place)
        if leader != broker and ahead is not None:
            behind += max(0, ahead - end)
    return behind


def status(arguments: argparse.Namespace) -> int:
    """Exit status 1 when partitions have no leader or too few replicas in sync."""

    def once() -> int:
        found = run_admin(arguments, look)
        _show(found, arguments.output)
        return 1 if found["under_replicated"] or found["leaderless"] else 0

    return repeat(once) if arguments.watch else once()


def _show(found: dict[str, Any], output: str | None) -> None:
    if output in DOCUMENTS:
        show_document(found, output)
        return
    if output != "tsv":
        print(
            f"Cluster {found['cluster_id']}: {found['partitions']} partitions, "
            f"{found['under_replicated']} under-replicated, {found['leaderless']} without a leader"
        )
    show(found["brokers"], COLUMNS, output)
