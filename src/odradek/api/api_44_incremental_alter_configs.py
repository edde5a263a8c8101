"""IncrementalAlterConfigs (KIP-339): set, remove, and change lists by their members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from odradek.api.requests.capabilities import HasCertificates, HasController, HasLoggers
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.controller.configs import AlteredResource, ConfigChange, ResourceChanges, ResourceType
from odradek.controller.outcome import Failure
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseResource,
)

Complete = Callable[[IncrementalAlterConfigsResponse | None], IncrementalAlterConfigsResponse]


class Uses(HasCertificates, HasController, HasLoggers, Protocol):
    """What these handlers take of the broker."""


def _own_part(
    request: IncrementalAlterConfigsRequest, context: RequestContext[Uses]
) -> tuple[IncrementalAlterConfigsRequest | None, Complete]:
    """Set the levels of this broker's loggers, and check its certificates; the controller decides on everything else.

    No other broker reads the files of the certificates.
    """
    loggers = [each for each in request.resources if each.resource_type == ResourceType.BROKER_LOGGER]
    own = [_answer(each) for each in _alter_loggers(_changes(loggers), request, context)]
    others = []
    for resource in request.resources:
        if resource.resource_type == ResourceType.BROKER:
            try:
                context.services.certificates.check_update(_changes([resource])[0])
            except KafkaError as error:
                failure = Failure(error.code, error.message)
                own.append(_answer(AlteredResource(resource.resource_type, resource.resource_name, failure)))
                continue
        if resource.resource_type != ResourceType.BROKER_LOGGER:
            others.append(resource)

    def complete(answer: IncrementalAlterConfigsResponse | None) -> IncrementalAlterConfigsResponse:
        if answer is None:
            return IncrementalAlterConfigsResponse(responses=own)
        answer.responses = own + answer.responses
        return answer

    if own and not others:
        return None, complete
    return IncrementalAlterConfigsRequest(others, request.validate_only), complete


@api(ApiKey.INCREMENTAL_ALTER_CONFIGS, own_part=_own_part)
async def handle(
    request: IncrementalAlterConfigsRequest, context: RequestContext[Uses]
) -> IncrementalAlterConfigsResponse:
    """Apply the changes, or only validate them; each resource has its own error.

    This broker's loggers are altered here, everything else by the controller.
    """
    rest, complete = _own_part(request, context)
    if rest is None:
        return complete(None)
    altered: Sequence[AlteredResource] = []
    if rest.resources:
        altered = await context.services.controller.alter_configs(
            _changes(rest.resources), validate_only=request.validate_only
        )
    return complete(IncrementalAlterConfigsResponse(responses=[_answer(each) for each in altered]))


def _changes(resources: Sequence[IncrementalAlterConfigsRequestResource]) -> list[ResourceChanges]:
    return [
        ResourceChanges(
            resource.resource_type,
            resource.resource_name,
            [ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs],
        )
        for resource in resources
    ]


def _answer(resource: AlteredResource) -> IncrementalAlterConfigsResponseResource:
    return IncrementalAlterConfigsResponseResource(
        0 if resource.failure is None else resource.failure.code,
        None if resource.failure is None else resource.failure.message,
        resource.type,
        resource.name,
    )


def _alter_loggers(
    resources: list[ResourceChanges], request: IncrementalAlterConfigsRequest, context: RequestContext[Uses]
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
