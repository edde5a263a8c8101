"""DescribeConfigs.

Version notes: 0 knows no sources but whether a value is a default; 1 sources and synonyms; 3 types and documentation.
"""

from __future__ import annotations

from typing import Protocol

from odradek.api.requests.capabilities import HasController, HasLoggers
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.controller.configs import ResourceType
from odradek.metadata.configs.definitions import SetValue
from odradek.metadata.configs.described import Described
from odradek.wire.apis import ApiKey
from odradek.wire.errors import KafkaError
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResult,
    DescribeConfigsResponseSynonym,
)


class Uses(HasController, HasLoggers, Protocol):
    """What these handlers take of the broker."""


@api(ApiKey.DESCRIBE_CONFIGS)
def handle(request: DescribeConfigsRequest, context: RequestContext[Uses]) -> DescribeConfigsResponse:
    """Describe the configuration of each resource, or of its loggers; each has its own error."""
    return DescribeConfigsResponse(results=[_described(resource, request, context) for resource in request.resources])


def _described(
    resource: DescribeConfigsRequestResource, request: DescribeConfigsRequest, context: RequestContext[Uses]
) -> DescribeConfigsResponseResult:
    kind, name = resource.resource_type, resource.resource_name
    try:
        # An empty list of keys means all of them, as in Kafka.
        keys = resource.configuration_keys or None
        if kind == ResourceType.BROKER_LOGGER:
            configs = context.services.loggers.describe(name, keys)
        else:
            configs = context.services.controller.describe_configs(
                kind, name, keys, documentation=request.include_documentation
            )
    except KafkaError as error:
        return DescribeConfigsResponseResult(error.code, error.message, kind, name, [])
    return DescribeConfigsResponseResult(
        0, None, kind, name, [_config(config, include_synonyms=request.include_synonyms) for config in configs]
    )


def _config(config: Described, *, include_synonyms: bool) -> DescribeConfigsResponseConfig:
    return DescribeConfigsResponseConfig(
        config.name,
        config.value,
        config.read_only,
        config.source,
        is_sensitive=config.is_sensitive,
        synonyms=[_synonym(synonym) for synonym in config.synonyms] if include_synonyms else [],
        config_type=config.type,
        documentation=config.documentation,
    )


def _synonym(synonym: SetValue) -> DescribeConfigsResponseSynonym:
    return DescribeConfigsResponseSynonym(synonym.name, synonym.text, synonym.source)
