"""ListPartitionReassignments (KIP-455): the moves under way."""

from __future__ import annotations

from odradek.api.requests.capabilities import HasImage
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.controller.reassignments import list_reassignments
from odradek.metadata.image import ClusterImage
from odradek.wire.apis import ApiKey
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsResponseOngoingPartitionReassignment,
    ListPartitionReassignmentsResponseOngoingTopicReassignment,
)


@api(ApiKey.LIST_PARTITION_REASSIGNMENTS)
def handle(
    request: ListPartitionReassignmentsRequest, context: RequestContext[HasImage]
) -> ListPartitionReassignmentsResponse:
    """List the reassignments under way, of all topics when the request names none."""
    return ongoing_reassignments(context.services.image(), request)


def ongoing_reassignments(
    image: ClusterImage, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """What a controller with this image answers."""
    asked = None if request.topics is None else {topic.name: topic.partition_indexes for topic in request.topics}
    return ListPartitionReassignmentsResponse(
        error_message=None,
        topics=[
            ListPartitionReassignmentsResponseOngoingTopicReassignment(
                name,
                [
                    ListPartitionReassignmentsResponseOngoingPartitionReassignment(
                        index, list(state.replicas), list(state.adding_replicas), list(state.removing_replicas)
                    )
                    for index, state in partitions.items()
                ],
            )
            for name, partitions in list_reassignments(image, asked).items()
        ],
    )
