"""The state of a cluster at a moment: brokers, what they lead and hold, how far their followers are behind."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.network.metadata import TopicInfo


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
