"""DescribeClientQuotas (KIP-546). The versions differ in nothing that a handler sees."""

from __future__ import annotations

from odradek.api.requests.capabilities import HasImage
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.controller.client_quotas import Component, describe_client_quotas
from odradek.wire.apis import ApiKey
from odradek.wire.errors import KafkaError
from odradek.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClientQuotasResponseEntity,
    DescribeClientQuotasResponseEntry,
    DescribeClientQuotasResponseValue,
)


@api(ApiKey.DESCRIBE_CLIENT_QUOTAS)
def handle(request: DescribeClientQuotasRequest, context: RequestContext[HasImage]) -> DescribeClientQuotasResponse:
    """Return the quotas of entities that match all components; with `strict`, of those without further ones."""
    components = [Component(part.entity_type, part.match_type, part.match) for part in request.components]
    try:
        found = describe_client_quotas(context.services.image(), components, strict=request.strict)
    except KafkaError as error:
        return DescribeClientQuotasResponse(0, error.code, error.message, None)
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            DescribeClientQuotasResponseEntry(
                [DescribeClientQuotasResponseEntity(kind, name) for kind, name in entity],
                [DescribeClientQuotasResponseValue(key, value) for key, value in quotas.items()],
            )
            for entity, quotas in found
        ],
    )
