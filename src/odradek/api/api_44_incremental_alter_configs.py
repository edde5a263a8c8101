"""IncrementalAlterConfigs (KIP-339): set, remove, and change lists by their members."""

from __future__ import annotations

from collections import Counter

from odradek.api.context import RequestContext
from odradek.api.registry import api
from odradek.controller.configs import AlteredResource, ConfigChange, ResourceChanges, ResourceType
from odradek.controller.outcome import Failure
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
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
    loggers = [resource for resource in resources if resource.type == ResourceType.BROKER_LOGGER]
    altered = _alter_loggers(loggers, request, context)
    others = [resource for resource in resources if resource.type != ResourceType.BROKER_LOGGER]
    if others:
        altered += await context.services.controller.alter_configs(others, validate_only=request.validate_only)
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


def _alter_loggers(
    resources: list[ResourceChanges], request: IncrementalAlterConfigsRequest, context: RequestContext
) -> list[AlteredResource]:
    """Levels of loggers belong to this process alone: no controller is asked."""
    counts = Counter(resource.name for resource in resources)
    altered = []
    for resource in {resource.name: resource for resource in resources}.values():
        failure = None
        try:
            if counts[resource.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            context.services.loggers.alter(resource.name, resource.changes, validate_only=request.validate_only)
        except KafkaError as error:
            failure = Failure(error.code, error.message)
        altered.append(AlteredResource(resource.type, resource.name, failure))
    return altered
