"""UpdateMetadata, between brokers: the controller says which brokers live and how partitions stand, for clients' sake.

Served in version 8 only; Apache Kafka removed it with its ZooKeeper mode.
"""

from __future__ import annotations

from odradek.api.requests.capabilities import HasCluster
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.apis import ApiKey
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


@api(ApiKey.UPDATE_METADATA)
async def handle(request: UpdateMetadataRequest, context: RequestContext[HasCluster]) -> UpdateMetadataResponse:
    """Take over brokers and partition states. Raises KafkaError STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH."""
    await context.services.cluster.update_metadata(request, context.connection.identifier)
    return UpdateMetadataResponse()
