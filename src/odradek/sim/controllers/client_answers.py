"""What a simulated controller answers to forwarded requests of clients: topics, moves, elections, features."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from odradek.api.api_46_list_partition_reassignments import ongoing_reassignments
from odradek.controller.features import FeatureUpdate, update_features
from odradek.controller.outcome import Failure
from odradek.controller.reassignments import Reassignment
from odradek.controller.topics import MorePartitions, NewTopic, TopicReference
from odradek.sim.controllers.active_controller import ActiveController
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionReassignmentsResponseReassignablePartition,
    AlterPartitionReassignmentsResponseReassignableTopic,
)
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsResponseTopic,
)
from odradek.wire.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    CreateTopicsResponseTopic,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicsResponseTopic
from odradek.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResponsePartition,
    ElectLeadersResponseReplicaElection,
)
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from odradek.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse


def _error(failure: Failure | None) -> tuple[int, str | None]:
    return (0, None) if failure is None else (failure.code, failure.message)


async def _create_topics(active: ActiveController, request: CreateTopicsRequest) -> CreateTopicsResponse:
    wanted = [
        NewTopic(
            each.name,
            each.num_partitions,
            each.replication_factor,
            [(one.partition_index, one.broker_ids) for one in each.assignments],
            [(config.name, config.value) for config in each.configs],
        )
        for each in request.topics
    ]
    created = await active.decide(lambda records: records.create_topics(wanted, validate_only=request.validate_only))
    rows = []
    for each in created:
        code, message = _error(each.failure)
        row = CreateTopicsResponseTopic(each.name, error_code=code, error_message=message, configs=[])
        if each.topic is not None:
            row.topic_id, row.num_partitions = each.topic.id, len(each.topic.partitions)
            row.replication_factor = len(each.topic.partitions[0].replicas)
        rows.append(row)
    return CreateTopicsResponse(0, rows)


def topics_not_created(request: CreateTopicsRequest, code: ErrorCode) -> CreateTopicsResponse:
    """The same error for all topics."""
    return CreateTopicsResponse(
        0,
        [
            CreateTopicsResponseTopic(each.name, error_code=code, error_message=None, configs=[])
            for each in request.topics
        ],
    )


async def _delete_topics(active: ActiveController, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    wanted = [TopicReference(each.name, each.topic_id) for each in request.topics]
    deleted = await active.decide(lambda records: records.delete_topics(wanted))
    return DeleteTopicsResponse(
        0, [DeleteTopicsResponseTopic(each.name, each.id, *_error(each.failure)) for each in deleted]
    )


async def _create_partitions(active: ActiveController, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    wanted = [MorePartitions(each.name, each.count, None) for each in request.topics]
    grown = await active.decide(lambda records: records.create_partitions(wanted, validate_only=request.validate_only))
    return CreatePartitionsResponse(
        0, [CreatePartitionsResponseTopic(each.name, *_error(each.failure)) for each in grown]
    )


async def _elect_leaders(active: ActiveController, request: ElectLeadersRequest) -> ElectLeadersResponse:
    asked = None
    if request.topic_partitions is not None:
        asked = [(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]
    elected = await active.decide(lambda records: records.elect_leaders(request.election_type, asked))
    rows: dict[str, list[ElectLeadersResponsePartition]] = {}
    for each in elected:
        rows.setdefault(each.topic, []).append(ElectLeadersResponsePartition(each.partition, *_error(each.failure)))
    return ElectLeadersResponse(
        replica_election_results=[ElectLeadersResponseReplicaElection(*each) for each in rows.items()]
    )


async def _reassign(
    active: ActiveController, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    moves = [
        Reassignment(topic.name, each.partition_index, None if each.replicas is None else tuple(each.replicas))
        for topic in request.topics
        for each in topic.partitions
    ]
    done = await active.decide(lambda records: records.alter_reassignments(moves))
    rows: dict[str, list[AlterPartitionReassignmentsResponseReassignablePartition]] = {}
    for each in done:
        row = AlterPartitionReassignmentsResponseReassignablePartition(each.partition, *_error(each.failure))
        rows.setdefault(each.topic, []).append(row)
    return AlterPartitionReassignmentsResponse(
        error_message=None,
        responses=[AlterPartitionReassignmentsResponseReassignableTopic(*each) for each in rows.items()],
    )


async def _list_reassignments(
    active: ActiveController, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ongoing_reassignments(active.image, request)


async def _update_features(active: ActiveController, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    updates = [
        FeatureUpdate(each.feature, each.max_version_level, each.upgrade_type) for each in request.feature_updates
    ]
    updated = await active.decide(
        lambda records: records.step(lambda image: update_features(image, updates, validate_only=request.validate_only))
    )
    failures = [each.failure for each in updated if each.failure is not None]
    code, message = _error(failures[0] if failures else None)
    return UpdateFeaturesResponse(0, code, message)


CLIENT_ANSWERS: Final[Mapping[type, Callable[[ActiveController, Any], Awaitable[Any]]]] = {
    CreateTopicsRequest: _create_topics,
    DeleteTopicsRequest: _delete_topics,
    CreatePartitionsRequest: _create_partitions,
    ElectLeadersRequest: _elect_leaders,
    AlterPartitionReassignmentsRequest: _reassign,
    ListPartitionReassignmentsRequest: _list_reassignments,
    UpdateFeaturesRequest: _update_features,
}
"""By the class of the request."""
