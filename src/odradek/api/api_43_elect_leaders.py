"""ElectLeaders (KIP-460).

Version notes: 0 elects preferred leaders only; 1 names the kind of election and has an error for the whole request.
"""

from __future__ import annotations

from odradek.api.requests.capabilities import HasController
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.controller.elections import Elected
from odradek.wire.apis import ApiKey
from odradek.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResponsePartition,
    ElectLeadersResponseReplicaElection,
)


@api(ApiKey.ELECT_LEADERS)
async def handle(request: ElectLeadersRequest, context: RequestContext[HasController]) -> ElectLeadersResponse:
    """Elect preferred or unclean leaders, of all partitions when the request names none; each has its own error,
    ELECTION_NOT_NEEDED where the leader stays.
    """
    asked = None
    if request.topic_partitions is not None:
        asked = [(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]
    elected = await context.services.controller.elect_leaders(request.election_type, asked)
    by_topic: dict[str, list[ElectLeadersResponsePartition]] = {}
    for result in elected:
        by_topic.setdefault(result.topic, []).append(_partition(result))
    return ElectLeadersResponse(
        replica_election_results=[
            ElectLeadersResponseReplicaElection(topic, partitions) for topic, partitions in by_topic.items()
        ]
    )


def _partition(result: Elected) -> ElectLeadersResponsePartition:
    if result.failure is None:
        return ElectLeadersResponsePartition(result.partition, 0, None)
    return ElectLeadersResponsePartition(result.partition, result.failure.code, result.failure.message)
