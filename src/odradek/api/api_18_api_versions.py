"""ApiVersions (KIP-35, KIP-511): which keys and versions are served, and the features of the cluster.

Version notes: 0 has no throttle time; 3 is flexible, has the client's name and may list features; 4 lets a feature
begin at version 0. The answer's header is always the oldest one, since the client does not yet know what the broker
understands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Protocol

from odradek.api.requests.capabilities import HasImage, HasTelemetry
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api, apis_for_clients
from odradek.api.requests.session import Authentication
from odradek.metadata.features import BROKER_FEATURES, FEATURES, Feature, finalized, is_on_records
from odradek.wire.apis import APIS, ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseApiVersion,
    ApiVersionsResponseFinalizedFeature,
    ApiVersionsResponseSupportedFeature,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class Uses(HasImage, HasTelemetry, Protocol):
    """What ApiVersions takes of the broker."""


class _Table:
    """Stands where the codec expects a list of API versions: one element writes them all, encoded once a version."""

    __slots__ = ("_encoded", "_rows")

    def __init__(self, rows: list[ApiVersionsResponseApiVersion]) -> None:
        self._rows = rows
        self._encoded: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[_Table]:
        yield self

    def encode(self, out: bytearray, version: int) -> None:
        encoded = self._encoded.get(version)
        if encoded is None:
            rows = bytearray()
            for row in self._rows:
                row.encode(rows, version)
            encoded = self._encoded[version] = bytes(rows)
        out += encoded


@cache
def version_table(keys: tuple[int, ...]) -> Any:
    """The list of these APIs in an answer, encoded once for each version of ApiVersions."""
    return _Table(
        [
            # KAFKA-18659: librdkafka before 2.8 stops compressing unless Produce seems to begin at 0.
            ApiVersionsResponseApiVersion(
                key, 0 if key == ApiKey.PRODUCE else APIS[key].min_version, APIS[key].max_version
            )
            for key in keys
        ]
    )


@cache
def _table(*, with_sasl: bool, with_telemetry: bool) -> Any:
    return version_table(tuple(apis_for_clients(with_sasl=with_sasl, with_telemetry=with_telemetry)))


@api(ApiKey.API_VERSIONS)
def handle(request: ApiVersionsRequest, context: RequestContext[Uses]) -> ApiVersionsResponse:
    """Return the supported versions and features, and note the client's software name and version.

    INVALID_REQUEST for names outside Kafka's pattern.
    """
    # A client that sees SaslHandshake on another listener would believe that it has to log in.
    with_sasl = context.session.authentication is not Authentication.NOT_REQUIRED
    # As Kafka without a receiver: a client that sees the APIs would ask for subscriptions again and again.
    table = _table(with_sasl=with_sasl, with_telemetry=context.services.telemetry is not None)
    features = BROKER_FEATURES if is_on_records(context.services.image()) else FEATURES
    return versions_response(request, context, table, features)


def versions_response(
    request: ApiVersionsRequest, context: RequestContext[HasImage], table: Any, features: Sequence[Feature]
) -> ApiVersionsResponse:
    """The answer of a node that serves the APIs of the `version_table` and supports these features.

    It notes the client's software name and version. INVALID_REQUEST for names outside Kafka's pattern.
    """
    if context.version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.session.client_software_name = name
        context.session.client_software_version = version
    if context.version < 3:
        return ApiVersionsResponse(api_keys=table)
    epoch, levels = finalized(context.services.image())
    return ApiVersionsResponse(
        api_keys=table,
        supported_features=[
            ApiVersionsResponseSupportedFeature(feature.name, feature.min_level, feature.max_level)
            for feature in features
            # Clients up to version 3 cannot read a feature that begins at level 0 (KAFKA-17011).
            if feature.min_level > 0 or context.version >= 4
        ],
        finalized_features_epoch=epoch,
        finalized_features=[ApiVersionsResponseFinalizedFeature(name, level, level) for name, level in levels.items()],
    )


def unsupported_version_response() -> ApiVersionsResponse:
    """What a request in an unknown version gets, in version 0: the range to try again with."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_table(with_sasl=False, with_telemetry=False)
    )
