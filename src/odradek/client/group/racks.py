"""Racks of members and of partitions, by which assignors let members read from replicas nearby (KIP-881). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

from odradek.records.topic_partition import TopicPartition

PartitionRacks = Mapping[str, Sequence[Collection[str]]]
"""By topic, for each of its partitions, the racks of its replicas."""


class Racks:
    """Which members are near which partitions."""

    __slots__ = ("_of_members", "_of_partitions")

    def __init__(self, members: Mapping[str, str | None], partitions: PartitionRacks) -> None:
        """`members` are racks by member id; None or an empty text for a member without a rack."""
        self._of_members = {member_id: rack for member_id, rack in members.items() if rack}
        self._of_partitions = partitions

    def are_near(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether a replica of the partition is in the member's rack."""
        racks = self._of_partitions.get(partition.topic, ())
        rack = self._of_members.get(member_id)
        return rack is not None and partition.partition < len(racks) and rack in racks[partition.partition]

    def matter(self, members: Iterable[str], topics: Iterable[str]) -> bool:
        """Whether the racks make a difference: a member is near some partitions of these topics and not near others.

        As Kafka's assignors, which compare all racks of the partitions with those of each one.
        """
        own = {rack for member_id in members if (rack := self._of_members.get(member_id)) is not None}
        partitions = [set(racks) for topic in topics for racks in self._of_partitions.get(topic, ())]
        every = set(chain.from_iterable(partitions))
        return not own.isdisjoint(every) and any(racks != every for racks in partitions)
