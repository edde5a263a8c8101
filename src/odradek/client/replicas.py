"""The replicas' part of the admin client: who should lead, where copies should lie, how far followers have come."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from odradek.client.cluster import Cluster, error_of
from odradek.client.connection import Request, Response
from odradek.client.errors import ClientError
from odradek.client.model import TopicPartition
from odradek.client.offsets import by_topic
from odradek.wire.errors import ErrorCode, KafkaError
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
    ListPartitionReassignmentsResponse,
)

_DEBUGGING_REPLICA: Final = -2
_LATEST: Final = -1
_ANY_EPOCH: Final = -1


class ReplicasAdmin:
    """See the module; made by `Admin`."""

    __slots__ = ("_cluster",)

    def __init__(self, cluster: Callable[[], Cluster]) -> None:
        self._cluster = cluster

    async def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, timeout_ms: int = 60_000
    ) -> dict[TopicPartition, KafkaError | None]:
        """Have partitions moved to these brokers, the preferred leader first; None gives up a move (KIP-455)."""
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
        response = await self._ask_controller(request, AlterPartitionReassignmentsResponse)
        if response.error_code:
            raise error_of(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, each.partition_index): error_of(each.error_code, each.error_message)
            if each.error_code
            else None
            for topic in response.responses
            for each in topic.partitions
        }

    async def moving(self) -> set[TopicPartition]:
        """Partitions that are being moved."""
        response = await self._ask_controller(ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse)
        if response.error_code:
            raise error_of(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, each.partition_index) for topic in response.topics for each in topic.partitions
        }

    async def elect_preferred(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, KafkaError]:
        """Give leadership (of all for None) back to the first replicas; those that could not be given."""
        wanted = None
        if partitions is not None:
            wanted = [ElectLeadersRequestTopicPartitions(*topic) for topic in by_topic(partitions).items()]
        response = await self._ask_controller(ElectLeadersRequest(0, wanted), ElectLeadersResponse)
        if response.error_code:
            raise error_of(response.error_code)
        return {
            TopicPartition(topic.topic, each.partition_id): error_of(each.error_code, each.error_message)
            for topic in response.replica_election_results
            for each in topic.partition_result
            if each.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
        }

    async def end_offsets(self, broker_id: int, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs of these partitions end on one broker, whether it leads them or not; without what it has not.

        Raises ClientError.
        """
        topics = [
            ListOffsetsRequestTopic(topic, [ListOffsetsRequestPartition(i, _ANY_EPOCH, _LATEST) for i in indexes])
            for topic, indexes in by_topic(partitions).items()
        ]
        request = ListOffsetsRequest(replica_id=_DEBUGGING_REPLICA, topics=topics)
        response = await self._cluster().request(broker_id, request, ListOffsetsResponse)
        return {
            TopicPartition(topic.name, each.partition_index): each.offset
            for topic in response.topics
            for each in topic.partitions
            if not each.error_code
        }

    async def all_end_offsets(
        self, held: Mapping[int, Collection[TopicPartition]]
    ) -> dict[int, dict[TopicPartition, int]]:
        """By broker id; brokers that cannot be reached are left out."""
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

    async def _ask_controller(self, request: Request, response_type: type[Response]) -> Response:
        cluster = self._cluster()

        async def attempt() -> Response:
            connection = await cluster.connections.get(await cluster.controller())
            response = await cluster.ask(connection, request, response_type)
            if getattr(response, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
                await cluster.refresh_metadata()
                raise error_of(ErrorCode.NOT_CONTROLLER)
            return response

        return await cluster.retrying(attempt, type(request).__name__.removesuffix("Request"))
