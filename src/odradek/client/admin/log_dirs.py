"""Log directories of brokers: what lies in them, and moving replicas between them (KIP-113, KIP-827)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from odradek.client.admin.requests import AdminRequests, failure_of
from odradek.client.network.cluster import error_of
from odradek.client.offsets import by_topic
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import KafkaError
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
    AlterReplicaLogDirsResponse,
)
from odradek.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsRequestTopic,
    DescribeLogDirsResponse,
    DescribeLogDirsResponseLogDir,
)


class TopicPartitionReplica(NamedTuple):
    """A partition's replica on one broker."""

    topic: str
    partition: int
    broker_id: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


class ReplicaInfo(NamedTuple):
    """A replica in a log directory. `is_future`: it replaces the one in another directory once it has caught up.

    `offset_lag` is its distance in records from the high watermark, or from the current replica if it is a future one.
    """

    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDirDescription(NamedTuple):
    """A log directory. `error` is set when it is offline; bytes are None where the broker is too old to report them."""

    error: KafkaError | None
    replicas: dict[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool = False


class ReplicaLogDirs(NamedTuple):
    """Where a replica lies, and where it is moved to. None: there is no such directory, and no lag of it."""

    current: str | None = None
    current_offset_lag: int | None = None
    future: str | None = None
    future_offset_lag: int | None = None


class LogDirsAdmin:
    """`admin.log_dirs`.

    Example:

        for broker_id, directories in raise_first(await admin.log_dirs.describe()).items():
            for path, found in directories.items():
                print(broker_id, path, sum(each.size_bytes for each in found.replicas.values()), "bytes")
    """

    __slots__ = ("_requests",)

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def describe(
        self, broker_ids: Iterable[int] | None = None, partitions: Collection[TopicPartition] | None = None
    ) -> dict[int, dict[str, LogDirDescription] | KafkaError]:
        """Log directories by path of these brokers (None: all live ones), with their replicas of `partitions`."""
        wanted = await self._requests.broker_ids() if broker_ids is None else list(broker_ids)
        topics = None
        if partitions is not None:
            topics = [DescribeLogDirsRequestTopic(name, each) for name, each in by_topic(partitions).items()]
        found: dict[int, dict[str, LogDirDescription] | KafkaError] = {}
        for broker_id in wanted:
            response = await self._requests.to_broker(
                broker_id, DescribeLogDirsRequest(topics), DescribeLogDirsResponse
            )
            failed = response.error_code
            found[broker_id] = (
                error_of(failed) if failed else {each.log_dir: _described(each) for each in response.results}
            )
        return found

    async def describe_replicas(
        self, replicas: Collection[TopicPartitionReplica]
    ) -> dict[TopicPartitionReplica, ReplicaLogDirs | KafkaError]:
        """The log directories of replicas; a replica that its broker does not have has none."""
        by_broker: dict[int, list[TopicPartition]] = defaultdict(list)
        for each in replicas:
            by_broker[each.broker_id].append(each.topic_partition)
        found: dict[TopicPartitionReplica, ReplicaLogDirs | KafkaError] = {}
        for broker_id, partitions in by_broker.items():
            answer = (await self.describe([broker_id], partitions))[broker_id]
            for partition in partitions:
                replica = TopicPartitionReplica(*partition, broker_id)
                found[replica] = answer if isinstance(answer, KafkaError) else _located(answer, partition)
        return found

    async def alter(
        self, targets: Mapping[TopicPartitionReplica, str]
    ) -> dict[TopicPartitionReplica, KafkaError | None]:
        """Move replicas to other log directories of their brokers, given by absolute path. The move takes time."""
        by_broker: dict[int, dict[str, list[TopicPartition]]] = defaultdict(lambda: defaultdict(list))
        for replica, path in targets.items():
            by_broker[replica.broker_id][path].append(replica.topic_partition)
        done: dict[TopicPartitionReplica, KafkaError | None] = {}
        for broker_id, paths in by_broker.items():
            request = AlterReplicaLogDirsRequest(
                [
                    AlterReplicaLogDirsRequestDir(
                        path, [AlterReplicaLogDirsRequestTopic(*topic) for topic in by_topic(partitions).items()]
                    )
                    for path, partitions in paths.items()
                ]
            )
            response = await self._requests.to_broker(broker_id, request, AlterReplicaLogDirsResponse)
            for topic in response.results:
                for each in topic.partitions:
                    replica = TopicPartitionReplica(topic.topic_name, each.partition_index, broker_id)
                    done[replica] = failure_of(each.error_code, f"{replica.topic_partition} on broker {broker_id}")
        return done


def _described(directory: DescribeLogDirsResponseLogDir) -> LogDirDescription:
    replicas: dict[TopicPartition, ReplicaInfo] = {}
    for topic in directory.topics:
        for each in topic.partitions:
            info = ReplicaInfo(each.partition_size, each.offset_lag, each.is_future_key)
            replicas[TopicPartition(topic.name, each.partition_index)] = info
    return LogDirDescription(
        failure_of(directory.error_code, f"log directory {directory.log_dir}"),
        replicas,
        None if directory.total_bytes < 0 else directory.total_bytes,
        None if directory.usable_bytes < 0 else directory.usable_bytes,
        directory.is_cordoned,
    )


def _located(directories: Mapping[str, LogDirDescription], partition: TopicPartition) -> ReplicaLogDirs:
    found = ReplicaLogDirs()
    for path, directory in directories.items():
        replica = directory.replicas.get(partition)
        if replica is None:
            continue
        if replica.is_future:
            found = found._replace(future=path, future_offset_lag=replica.offset_lag)
        else:
            found = found._replace(current=path, current_offset_lag=replica.offset_lag)
    return found
