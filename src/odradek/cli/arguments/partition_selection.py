"""The partitions that options name, looked up in the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.cli.arguments.errors import CommandError

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.records.topic_partition import TopicPartition


async def partitions_of(admin: Admin, wanted: dict[str, list[int] | None]) -> list[TopicPartition]:
    """Partitions by name; None stands for all of a topic. Raises CommandError for one that does not exist.

    To ask a broker for what does not exist would be to ask again until `--timeout`: it might be about to be made.
    """
    from odradek.client.network.metadata import TopicInfo
    from odradek.records.topic_partition import TopicPartition

    described = await admin.describe_topics(list(wanted)) if wanted else {}
    found: list[TopicPartition] = []
    for name, numbers in wanted.items():
        info = described[name]
        if not isinstance(info, TopicInfo):
            raise CommandError(str(info), info.code.name)
        there = [each.partition for each in info.partitions]
        for missing in set(numbers or ()).difference(there):
            raise CommandError(f"there is no {name}-{missing}", "UNKNOWN_TOPIC_OR_PARTITION")
        found += [TopicPartition(name, each) for each in (there if numbers is None else numbers)]
    return found
