"""DescribeQuorum (KIP-595, KIP-836): the metadata as if its store were a quorum of the controller alone.

The metadata lies in a store, not in a replicated log of brokers; what tools ask is who writes it, since when, and how
far it has come: the controller, its epoch, and the version of the image.

Version notes: 1 has times of replicas' last fetches; 2 messages, directories and the endpoints of the nodes (KIP-853).
"""

from __future__ import annotations

from typing import Protocol

from odradek.api.requests.capabilities import HasClock, HasImage
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.controller.names import CLUSTER_METADATA_TOPIC
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponseListener,
    DescribeQuorumResponseNode,
    DescribeQuorumResponsePartition,
    DescribeQuorumResponseReplicaState,
    DescribeQuorumResponseTopic,
)


class Uses(HasClock, HasImage, Protocol):
    """What these handlers take of the broker."""


@api(ApiKey.DESCRIBE_QUORUM)
def handle(request: DescribeQuorumRequest, context: RequestContext[Uses]) -> DescribeQuorumResponse:
    """Describe the controller as the only voter, with the other brokers as observers.

    UNKNOWN_TOPIC_OR_PARTITION for any topic but `__cluster_metadata`.
    """
    asked = [(topic.topic_name, [part.partition_index for part in topic.partitions]) for topic in request.topics]
    if asked != [(CLUSTER_METADATA_TOPIC, [0])]:
        return DescribeQuorumResponse(
            error_message=None,
            topics=[
                DescribeQuorumResponseTopic(
                    name,
                    [
                        DescribeQuorumResponsePartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
                        for index in indexes
                    ],
                )
                for name, indexes in asked
            ],
        )
    return DescribeQuorumResponse(
        error_message=None,
        topics=[DescribeQuorumResponseTopic(CLUSTER_METADATA_TOPIC, [_metadata(context)])],
        nodes=_nodes(context) if context.version >= 2 else [],
    )


def _metadata(context: RequestContext[Uses]) -> DescribeQuorumResponsePartition:
    image = context.services.image()
    now_ms = context.services.clock.now_ms()
    observers = [broker.id for broker in image.live_brokers() if broker.id != image.controller_id]

    def state(node: int) -> DescribeQuorumResponseReplicaState:
        return DescribeQuorumResponseReplicaState(
            node, log_end_offset=image.version, last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms
        )

    return DescribeQuorumResponsePartition(
        0,
        0,
        None,
        image.controller_id,
        image.controller_epoch,
        image.version,
        [state(image.controller_id)],
        [state(node) for node in observers],
    )


def _nodes(context: RequestContext[Uses]) -> list[DescribeQuorumResponseNode]:
    image = context.services.image()
    controller = image.brokers.get(image.controller_id)
    if controller is None:
        return []
    listeners = [
        DescribeQuorumResponseListener(name, endpoint.host, endpoint.port)
        for name, endpoint in controller.endpoints.items()
    ]
    return [DescribeQuorumResponseNode(controller.id, listeners)]
