"""AlterConfigs: the older call, which puts what it brings in the place of everything that was set."""

from __future__ import annotations

from odradek.api.requests.capabilities import HasController
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.controller.configs import ConfigChange, OperationType, ResourceChanges
from odradek.wire.apis import ApiKey
from odradek.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse, AlterConfigsResponseResource


@api(ApiKey.ALTER_CONFIGS)
async def handle(request: AlterConfigsRequest, context: RequestContext[HasController]) -> AlterConfigsResponse:
    """Replace the configuration of each resource, or only validate that; each has its own error."""
    resources = [
        ResourceChanges(
            resource.resource_type,
            resource.resource_name,
            [ConfigChange(config.name, OperationType.SET, config.value) for config in resource.configs],
            replace=True,
        )
        for resource in request.resources
    ]
    altered = await context.services.controller.alter_configs(resources, validate_only=request.validate_only)
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResponseResource(
                0 if resource.failure is None else resource.failure.code,
                None if resource.failure is None else resource.failure.message,
                resource.type,
                resource.name,
            )
            for resource in altered
        ]
    )
