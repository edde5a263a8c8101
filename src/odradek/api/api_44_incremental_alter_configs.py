"""IncrementalAlterConfigs (KIP-339): set, remove, and change lists by their members."""

from __future__ import annotations

from odradek.api.context import RequestContext
from odradek.api.registry import api
from odradek.controller.configs import ConfigChange, ResourceChanges
from odradek.wire.apis import ApiKey
from odradek.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseResource,
)


@api(ApiKey.INCREMENTAL_ALTER_CONFIGS)
async def handle(request: IncrementalAlterConfigsRequest, context: RequestContext) -> IncrementalAlterConfigsResponse:
    resources = [
        ResourceChanges(
            resource.resource_type,
            resource.resource_name,
            [ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    altered = await context.services.controller.alter_configs(resources, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResponseResource(
                0 if resource.failure is None else resource.failure.code,
                None if resource.failure is None else resource.failure.message,
                resource.type,
                resource.name,
            )
            for resource in altered
        ]
    )
