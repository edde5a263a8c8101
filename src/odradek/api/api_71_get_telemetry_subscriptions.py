"""GetTelemetrySubscriptions (KIP-714): which metrics a client is to push, and how often."""

from __future__ import annotations

from odradek.api.requests.capabilities import HasTelemetry
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.api.services.telemetry_service import TelemetryClient
from odradek.records.compression import Codec
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

_ACCEPTED = [int(codec) for codec in (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)]


def client_of(context: RequestContext[HasTelemetry]) -> TelemetryClient:
    """The client that sent the request."""
    session = context.session
    return TelemetryClient(
        context.client_id or "", session.client_software_name, session.client_software_version, session.peer_host
    )


@api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)
def handle(
    request: GetTelemetrySubscriptionsRequest, context: RequestContext[HasTelemetry]
) -> GetTelemetrySubscriptionsResponse:
    """Answer the subscription. Raises KafkaError UNSUPPORTED_VERSION without a receiver."""
    telemetry = context.services.telemetry
    if telemetry is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    found = telemetry.subscription_of(client_of(context), request.client_instance_id)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=found.instance_id,
        subscription_id=found.subscription_id,
        accepted_compression_types=_ACCEPTED,
        push_interval_ms=found.push_interval_ms,
        telemetry_max_bytes=found.max_bytes,
        delta_temporality=False,
        requested_metrics=list(found.metrics),
    )
