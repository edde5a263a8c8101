"""Changes of the positions of a sink whose tasks have ended (KIP-875): in its target where that holds them, and in the
group."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from odradek.client.admin.admin import Admin
from odradek.client.network.metadata import TopicInfo
from odradek.connect.errors import Conflict
from odradek.connect.group_positions import set_positions
from odradek.connect.sinks.sink import MovableSink, Sink
from odradek.records.topic_partition import TopicPartition


async def move(admin: Admin, group: str, sink: Sink, wanted: Mapping[TopicPartition, int | None]) -> None:
    """Set positions; None removes one. Raises Conflict, KafkaError, ClientError, and as the methods of sinks.

    The target comes first: if the group's fail, the same request completes them.
    """
    try:
        await sink.open()
        held = sorted(await sink.positions(wanted))
        if held:
            if not isinstance(sink, MovableSink):
                raise Conflict(
                    f"the names of what {group} has written are its positions ({', '.join(map(str, held))}): remove "
                    "what is to be written again, or use a connector of another name and another place"
                )
            await sink.move({each: wanted[each] for each in held})
    finally:
        await sink.close()
    known = await admin.groups.offsets(group)
    await set_positions(
        admin, group, {each: offset for each, offset in wanted.items() if offset is not None or each in known}
    )


async def reset(admin: Admin, group: str, sink: Sink, values: Mapping[str, Any]) -> None:
    """Remove all positions. `values` are those of the connector. Raises as `move`."""
    known = await admin.groups.offsets(group)
    await move(admin, group, sink, dict.fromkeys({*known, *await _subscribed(admin, values)}))


async def _subscribed(admin: Admin, values: Mapping[str, Any]) -> list[TopicPartition]:
    """The partitions of the connector's topics. The target may hold positions that the group has no longer."""
    pattern = values["topics.regex"]
    topics = await admin.describe_topics(None if pattern else values["topics"])
    return [
        TopicPartition(name, each.partition)
        for name, found in topics.items()
        if isinstance(found, TopicInfo) and (not pattern or re.fullmatch(pattern, name))
        for each in found.partitions
    ]
