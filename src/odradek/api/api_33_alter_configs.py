"""AlterConfigs: the older call, which puts what it brings in the place of everything that was set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from odradek.api.requests.capabilities import HasCertificates, HasController
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.controller.configs import AlteredResource, ConfigChange, OperationType, ResourceChanges
from odradek.controller.outcome import Failure
from odradek.wire.apis import ApiKey
from odradek.wire.errors import KafkaError
from odradek.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsRequestResource,
    AlterConfigsResponse,
    AlterConfigsResponseResource,
)

Complete = Callable[[AlterConfigsResponse | None], AlterConfigsResponse]


class Uses(HasCertificates, HasController, Protocol):
    """What these handlers take of the broker."""


def _own_part(
    request: AlterConfigsRequest, context: RequestContext[Uses]
) -> tuple[AlterConfigsRequest | None, Complete]:
    """Check the certificates of this broker, whose files no other one reads; the controller decides on the rest."""
    refused = []
    others = []
    for resource in request.resources:
        try:
            context.services.certificates.check_update(_changes(resource))
            others.append(resource)
        except KafkaError as error:
            failure = Failure(error.code, error.message)
            refused.append(_answer(AlteredResource(resource.resource_type, resource.resource_name, failure)))

    def complete(answer: AlterConfigsResponse | None) -> AlterConfigsResponse:
        return AlterConfigsResponse(responses=refused + ([] if answer is None else answer.responses))

    if refused and not others:
        return None, complete
    return AlterConfigsRequest(others, request.validate_only), complete


@api(ApiKey.ALTER_CONFIGS, own_part=_own_part)
async def handle(request: AlterConfigsRequest, context: RequestContext[Uses]) -> AlterConfigsResponse:
    """Replace the configuration of each resource, or only validate that; each has its own error."""
    rest, complete = _own_part(request, context)
    if rest is None:
        return complete(None)
    altered: Sequence[AlteredResource] = []
    if rest.resources:
        changes = [_changes(resource) for resource in rest.resources]
        altered = await context.services.controller.alter_configs(changes, validate_only=request.validate_only)
    return complete(AlterConfigsResponse(responses=[_answer(each) for each in altered]))


def _changes(resource: AlterConfigsRequestResource) -> ResourceChanges:
    return ResourceChanges(
        resource.resource_type,
        resource.resource_name,
        [ConfigChange(config.name, OperationType.SET, config.value) for config in resource.configs],
        replace=True,
    )


def _answer(resource: AlteredResource) -> AlterConfigsResponseResource:
    return AlterConfigsResponseResource(
        0 if resource.failure is None else resource.failure.code,
        None if resource.failure is None else resource.failure.message,
        resource.type,
        resource.name,
    )
