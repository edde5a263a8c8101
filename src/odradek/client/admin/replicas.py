"""Replicas of partitions: where they lie, who leads, how far the followers have come."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from odradek.client.admin.enums import ElectionType
from odradek.client.admin.requests import AdminRequests, failure_of, raise_failure
from odradek.client.errors import ClientError, UnsupportedByBroker
from odradek.client.offsets import by_topic
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import KafkaError
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestReassignablePartition,
    AlterPartitionReassignmentsRequestReassignableTopic,
    AlterPartitionReassignmentsResponse,
)
from odradek.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersRequestTopicPartitions,
    ElectLeadersResponse,
)
from odradek.wire.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequestTopic,
    ListPartitionReassignmentsResponse,
)

_DEBUGGING_REPLICA: Final = -2
_LATEST: Final = -1
_ANY_EPOCH: Final = -1


class PartitionReassignment(NamedTuple):
    """A partition in reassignment. `replicas` includes those that are added and those that are removed."""

    replicas: Sequence[int]
    adding_replicas: Sequence[int]
    removing_replicas: Sequence[int]

    @property
    def target(self) -> list[int]:
        """The replicas once the reassignment is complete."""
        return [each for each in self.replicas if each not in self.removing_replicas]


class ReplicasAdmin:
    """`admin.replicas`.

    Example:

        place = TopicPartition("orders", 0)
        print(await admin.replicas.reassign({place: [1]}))
        print(await admin.replicas.reassignments([place]))
        print(await admin.replicas.elect([place], ElectionType.PREFERRED))
    """

    __slots__ = ("_requests",)

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, timeout_ms: int = 60_000
    ) -> dict[TopicPartition, KafkaError | None]:
        """Start reassignments of partitions to brokers, the preferred leader first; None cancels one (KIP-455).

        Raises KafkaError where the controller rejects the request as a whole.
        """
        topics: dict[str, list[AlterPartitionReassignmentsRequestReassignablePartition]] = defaultdict(list)
        for (topic, partition), replicas in targets.items():
            topics[topic].append(
                AlterPartitionReassignmentsRequestReassignablePartition(
                    partition, None if replicas is None else list(replicas)
                )
            )
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=timeout_ms,
            topics=[AlterPartitionReassignmentsRequestReassignableTopic(*topic) for topic in topics.items()],
        )
        response = await self._requests.to_controller(request, AlterPartitionReassignmentsResponse)
        raise_failure(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, each.partition_index): failure_of(each.error_code, each.error_message)
            for topic in response.responses
            for each in topic.partitions
        }

    async def reassignments(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Reassignments in progress, of these partitions or of all. Raises KafkaError."""
        topics = None
        if partitions is not None:
            topics = [ListPartitionReassignmentsRequestTopic(*topic) for topic in by_topic(partitions).items()]
        response = await self._requests.to_controller(
            ListPartitionReassignmentsRequest(topics=topics), ListPartitionReassignmentsResponse
        )
        raise_failure(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, each.partition_index): PartitionReassignment(
                each.replicas, each.adding_replicas, each.removing_replicas
            )
            for topic in response.topics
            for each in topic.partitions
        }

    async def elect(
        self,
        partitions: Collection[TopicPartition] | None = None,
        election_type: ElectionType = ElectionType.PREFERRED,
        *,
        timeout_ms: int = 60_000,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect leaders of these partitions, or of all.

        ELECTION_NOT_NEEDED is the outcome of a partition that has the right leader already. For all partitions, those
        are left out. An UNCLEAN election loses the records that the new leader lacks. Raises KafkaError, ClientError.
        """
        wanted = None
        if partitions is not None:
            wanted = [ElectLeadersRequestTopicPartitions(*topic) for topic in by_topic(partitions).items()]

        def adapt(_request: Any, version: int) -> None:
            if version < 1 and election_type is not ElectionType.PREFERRED:
                raise UnsupportedByBroker("the broker elects preferred leaders only")

        request = ElectLeadersRequest(election_type, wanted, timeout_ms)
        response = await self._requests.to_controller(request, ElectLeadersResponse, adapt=adapt)
        raise_failure(response.error_code)
        return {
            TopicPartition(topic.topic, each.partition_id): failure_of(each.error_code, each.error_message)
            for topic in response.replica_election_results
            for each in topic.partition_result
        }

    async def end_offsets(self, broker_id: int, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """End offsets of the replicas that one broker has of these partitions, whether it leads them or not.

        Raises ClientError.
        """
        topics = [
            ListOffsetsRequestTopic(topic, [ListOffsetsRequestPartition(i, _ANY_EPOCH, _LATEST) for i in indexes])
            for topic, indexes in by_topic(partitions).items()
        ]
        request = ListOffsetsRequest(replica_id=_DEBUGGING_REPLICA, topics=topics)
        response = await self._requests.cluster.request(broker_id, request, ListOffsetsResponse)
        return {
            TopicPartition(topic.name, each.partition_index): each.offset
            for topic in response.topics
            for each in topic.partitions
            if not each.error_code
        }

    async def all_end_offsets(
        self, held: Mapping[int, Collection[TopicPartition]]
    ) -> dict[int, dict[TopicPartition, int]]:
        """End offsets by broker id; brokers that cannot be reached are left out."""
        found = await asyncio.gather(
            *(self.end_offsets(broker, partitions) for broker, partitions in held.items()), return_exceptions=True
        )
        offsets = {}
        for broker, result in zip(held, found, strict=True):
            if isinstance(result, dict):
                offsets[broker] = result
            elif not isinstance(result, (ClientError, KafkaError)):
                raise result
        return offsets
