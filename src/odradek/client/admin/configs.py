"""Settings of topics, brokers, groups and client metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from odradek.client.admin.enums import AlterConfigOp, ConfigResourceType, ConfigSource
from odradek.client.admin.requests import AdminRequests, failure_of, raise_failure
from odradek.client.network.cluster import error_of
from odradek.client.network.connection import Request, Response
from odradek.wire.errors import KafkaError
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseResult,
)
from odradek.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)


class ConfigResource(NamedTuple):
    """What has settings. A broker's name is its id, or empty for the default of all brokers."""

    type: ConfigResourceType
    name: str


class ConfigSynonym(NamedTuple):
    """A value that a setting takes from another place if the ones before it are removed."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A setting. `synonyms` lead from the value in effect down to the default; `value` is None if it is sensitive.

    `documentation` is None unless it was asked for.
    """

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: list[ConfigSynonym]
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether the value is Kafka's default."""
        return self.source is ConfigSource.DEFAULT_CONFIG


class AlterConfig(NamedTuple):
    """A change of one setting; DELETE needs no value."""

    name: str
    value: str | None = None
    operation: AlterConfigOp = AlterConfigOp.SET


async def describe_configs(
    requests: AdminRequests,
    resources: Iterable[ConfigResource],
    *,
    keys: Collection[str] | None,
    documentation: bool = False,
) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
    """See `Admin.describe_configs`."""
    found: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
    for broker_id, group in _by_broker(resources).items():
        wanted = [DescribeConfigsRequestResource(r.type, r.name, None if keys is None else list(keys)) for r in group]
        request = DescribeConfigsRequest(wanted, include_synonyms=True, include_documentation=documentation)
        response = await _ask(requests, broker_id, request, DescribeConfigsResponse)
        for result in response.results:
            resource = ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)
            failed = error_of(result.error_code, result.error_message) if result.error_code else None
            found[resource] = _entries(result) if failed is None else failed
    return found


async def alter_configs(
    requests: AdminRequests, changes: Mapping[ConfigResource, Iterable[AlterConfig]], *, validate_only: bool
) -> dict[ConfigResource, KafkaError | None]:
    """See `Admin.alter_configs`."""
    done: dict[ConfigResource, KafkaError | None] = {}
    for broker_id, group in _by_broker(changes).items():
        wanted = [
            IncrementalAlterConfigsRequestResource(
                each.type,
                each.name,
                [IncrementalAlterConfigsRequestConfig(c.name, c.operation, c.value) for c in changes[each]],
            )
            for each in group
        ]
        request = IncrementalAlterConfigsRequest(wanted, validate_only)
        response = await _ask(requests, broker_id, request, IncrementalAlterConfigsResponse)
        for each in response.responses:
            resource = ConfigResource(ConfigResourceType(each.resource_type), each.resource_name)
            done[resource] = failure_of(each.error_code, each.error_message)
    return done


async def list_config_resources(requests: AdminRequests, types: Collection[ConfigResourceType]) -> list[ConfigResource]:
    """See `Admin.list_config_resources`."""
    from odradek.wire.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

    response = await requests.to_any(ListConfigResourcesRequest(list(types)), ListConfigResourcesResponse)
    raise_failure(response.error_code)
    return sorted(
        ConfigResource(ConfigResourceType(each.resource_type), each.resource_name) for each in response.config_resources
    )


def _entries(result: DescribeConfigsResponseResult) -> dict[str, ConfigEntry]:
    return {
        each.name: ConfigEntry(
            each.name,
            each.value,
            ConfigSource.from_wire(each.config_source),
            each.read_only,
            each.is_sensitive,
            [ConfigSynonym(s.name, s.value, ConfigSource.from_wire(s.source)) for s in each.synonyms],
            each.documentation or None,
        )
        for each in result.configs
    }


def _by_broker(resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """Resources by the broker that answers for them: a broker's own settings are its own, any broker has the rest."""
    grouped: dict[int | None, list[ConfigResource]] = defaultdict(list)
    for each in resources:
        own = each.type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER) and each.name
        grouped[int(each.name) if own else None].append(each)
    return grouped


async def _ask(
    requests: AdminRequests, broker_id: int | None, request: Request, response_type: type[Response]
) -> Response:
    if broker_id is None:
        return await requests.to_any(request, response_type)
    return await requests.to_broker(broker_id, request, response_type)
