"""AlterClientQuotas (KIP-546). The versions differ in nothing that a handler sees."""

from __future__ import annotations

from odradek.api.requests.capabilities import HasController
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.controller.client_quotas import QuotaChange, QuotaOperation, alter_client_quotas
from odradek.wire.apis import ApiKey
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntity,
    AlterClientQuotasResponseEntry,
)


@api(ApiKey.ALTER_CLIENT_QUOTAS)
async def handle(
    request: AlterClientQuotasRequest, context: RequestContext[HasController]
) -> AlterClientQuotasResponse:
    """Set and remove quotas, or only validate that; each entity has its own error."""
    changes = [
        QuotaChange(
            [(part.entity_type, part.entity_name) for part in entry.entity],
            [QuotaOperation(operation.key, operation.value, operation.remove) for operation in entry.ops],
        )
        for entry in request.entries
    ]
    changed = await context.services.controller.change(
        lambda image: alter_client_quotas(image, changes, validate_only=request.validate_only)
    )
    return AlterClientQuotasResponse(
        entries=[
            AlterClientQuotasResponseEntry(
                0 if entry.failure is None else entry.failure.code,
                None if entry.failure is None else entry.failure.message,
                [AlterClientQuotasResponseEntity(kind, name) for kind, name in entry.entity],
            )
            for entry in changed
        ]
    )
