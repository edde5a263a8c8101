"""LeadershipLease (Odradek's own), between brokers: the controller's leave to act as a leader for a while."""

from __future__ import annotations

from odradek.api.requests.capabilities import HasElected
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.apis import ApiKey
from odradek.wire.messages.leadership_lease import LeadershipLeaseRequest, LeadershipLeaseResponse


@api(ApiKey.LEADERSHIP_LEASE)
async def handle(request: LeadershipLeaseRequest, context: RequestContext[HasElected]) -> LeadershipLeaseResponse:
    """Extend the broker's lease; in whole milliseconds. Raises KafkaError NOT_CONTROLLER, STALE_BROKER_EPOCH."""
    grant = await context.services.elected.lease(request.broker_id, request.broker_epoch)
    # Rounded down: the broker must not count on more than it was granted.
    return LeadershipLeaseResponse(
        lease_ms=int(grant.seconds * 1000), may_begin=grant.may_begin, is_ending=grant.is_ending
    )
