"""DescribeCluster (KIP-700).

Version notes: 1 asks for brokers or controllers (KIP-919); 2 fenced brokers on request (KIP-1073).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from odradek.api.api_03_metadata import CLUSTER_OPERATIONS
from odradek.api.data.described_topics import OMITTED
from odradek.api.data.first_metadata import wait_for_first_metadata
from odradek.api.requests.capabilities import HasCluster, HasImage
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeClusterResponseBroker,
)

BROKERS = 1
CONTROLLERS = 2


class Uses(HasCluster, HasImage, Protocol):
    """What these handlers take of the broker."""


@api(ApiKey.DESCRIBE_CLUSTER)
def handle(
    request: DescribeClusterRequest, context: RequestContext[Uses]
) -> DescribeClusterResponse | Awaitable[DescribeClusterResponse]:
    """Describe the brokers and the controller, once the controller has sent an image.

    MISMATCHED_ENDPOINT_TYPE or UNSUPPORTED_ENDPOINT_TYPE for endpoints other than brokers.
    """
    if request.endpoint_type != BROKERS:
        # The brokers of this design are found at any broker; there are no controllers with endpoints of their own.
        known = request.endpoint_type == CONTROLLERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        what = "CONTROLLER endpoints" if known else f"endpoint type {request.endpoint_type}"
        message = f"The request was sent to an endpoint of type BROKER, but we wanted {what}"
        return DescribeClusterResponse(error_code=code, error_message=message, endpoint_type=request.endpoint_type)
    return (
        _answer(request, context) if context.services.cluster.has_metadata else _after_first_metadata(request, context)
    )


async def _after_first_metadata(
    request: DescribeClusterRequest, context: RequestContext[Uses]
) -> DescribeClusterResponse:
    await wait_for_first_metadata(context)
    return _answer(request, context)


def _answer(request: DescribeClusterRequest, context: RequestContext[Uses]) -> DescribeClusterResponse:
    image = context.services.image()
    listener = context.session.listener_name
    return DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=[
            DescribeClusterResponseBroker(
                broker.id,
                broker.endpoints[listener].host,
                broker.endpoints[listener].port,
                broker.rack,
                is_fenced=not broker.is_active,
            )
            for _, broker in sorted(image.brokers.items())
            if listener in broker.endpoints and (request.include_fenced_brokers or broker.is_active)
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OMITTED,
    )
