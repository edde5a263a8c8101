"""ListConfigResources (KIP-1142): what has, or could have, a configuration.

Version notes: 0 is ListClientMetricsResources and knows of nothing else; 1 asks for types, none of them meaning all.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.api.requests.capabilities import HasImage
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.controller.configs import ResourceType
from odradek.metadata.image import ClusterImage
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListConfigResourcesResponseResource,
)

_LISTED = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


@api(ApiKey.LIST_CONFIG_RESOURCES)
def handle(request: ListConfigResourcesRequest, context: RequestContext[HasImage]) -> ListConfigResourcesResponse:
    """List the resources of the types named, or of all; UNSUPPORTED_VERSION for an unknown type."""
    wanted = request.resource_types if context.version > 0 else [int(ResourceType.CLIENT_METRICS)]
    if not set(wanted) <= set(_LISTED):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    image = context.services.image()
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponseResource(name, kind)
            for kind in _LISTED
            if not wanted or kind in wanted
            for name in _names(kind, image)
        ]
    )


def _names(kind: ResourceType, image: ClusterImage) -> Iterable[str]:
    if kind is ResourceType.TOPIC:
        return sorted(image.topics)
    if kind is ResourceType.CLIENT_METRICS:
        return sorted(image.client_metrics)
    if kind is ResourceType.GROUP:
        return sorted(image.group_configs)
    return [str(broker.id) for broker in image.live_brokers()]
