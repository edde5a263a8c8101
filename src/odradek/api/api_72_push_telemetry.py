"""PushTelemetry (KIP-714): a client's metrics."""

from __future__ import annotations

from odradek.api.api_71_get_telemetry_subscriptions import client_of
from odradek.api.requests.capabilities import HasTelemetry
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.api.services.telemetry_service import TelemetryPush
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


@api(ApiKey.PUSH_TELEMETRY)
async def handle(request: PushTelemetryRequest, context: RequestContext[HasTelemetry]) -> PushTelemetryResponse:
    """Take the metrics. Raises KafkaError UNSUPPORTED_VERSION without a receiver."""
    telemetry = context.services.telemetry
    if telemetry is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    pushed = TelemetryPush(
        request.client_instance_id,
        request.subscription_id,
        request.terminating,
        request.compression_type,
        request.metrics,
    )
    await telemetry.push(client_of(context), pushed)
    return PushTelemetryResponse()
