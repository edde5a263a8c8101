"""The replicas that this broker follows, each with the fetcher that fetches it."""

from __future__ import annotations

from odradek.broker.replication.replica_fetcher import ReplicaFetcher
from odradek.records.topic_partition import PartitionKey, TopicIdPartition
from odradek.replication.follower import FollowedLog
from odradek.replication.partition import Partition


class FollowedReplicas:
    """Made before the partitions, which report to it, and filled by the `ReplicationRuntime`."""

    __slots__ = ("by_place",)

    def __init__(self) -> None:
        self.by_place: dict[TopicIdPartition, tuple[ReplicaFetcher, FollowedLog]] = {}
        """Topic id and partition -> the fetcher, and the log as it is followed under one leader epoch."""

    def start_persisted(self, partition: Partition) -> None:
        """Have the leader learn of a log start offset that is persisted."""
        place = partition.topic_id, partition.index
        found = self.by_place.get(place)
        if found is not None and found[1].partition is partition:
            found[0].start_persisted(place)

    def following(self) -> dict[PartitionKey, tuple[int, str]]:
        """Topic and partition -> its leader, and the reason for which it cannot be fetched, if there is one."""
        found = {}
        for place, (fetcher, followed) in self.by_place.items():
            partition = followed.partition
            problem = fetcher.problems().get(place, "")
            found[partition.topic, partition.index] = fetcher.leader_id, problem
        return found
