"""Metadata: brokers, topics, leaders; creates topics that a client asks for where the configuration allows it.

Version notes: 0 an empty list means all topics, later null does; 4 auto-creation may be declined; 5 offline replicas; 7
leader epochs; 8-10 authorized operations; 10 topic ids; 12 look-up by id; 13 a top-level error for clients that must
rebootstrap. Unlike Kafka in KRaft mode, an auto-created topic is in the same answer: nothing has to be asked twice.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from odradek.api.data.described_topics import OMITTED, described_topics, names_ids_too_early, rejected_topics
from odradek.api.data.first_metadata import wait_for_first_metadata
from odradek.api.data.new_leaders import reachable_image
from odradek.api.requests.capabilities import (
    HasAuthorization,
    HasCluster,
    HasConfig,
    HasController,
    HasImage,
    HasLeadership,
    HasPartitions,
    HasUnreachable,
)
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.metadata.image import ClusterImage
from odradek.wire.acls import AclOperation, ResourceType
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from odradek.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from odradek.authorization.authorizer import Access

CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
"""Bits of AclOperation that apply to a cluster; without an authorizer every client may do everything."""
TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))


class Uses(
    HasAuthorization,
    HasCluster,
    HasConfig,
    HasController,
    HasImage,
    HasLeadership,
    HasPartitions,
    HasUnreachable,
    Protocol,
):
    """What these handlers take of the broker."""


@api(ApiKey.METADATA)
def handle(request: MetadataRequest, context: RequestContext[Uses]) -> MetadataResponse | Awaitable[MetadataResponse]:
    """Describe brokers and topics as this broker knows them, once the controller has sent an image.

    Topics by id are rejected below version 12, whose encoding has ids before their use, as Apache Kafka does.
    """
    if names_ids_too_early(request, context.version):
        return rejected_topics(request)
    if not context.services.cluster.has_metadata:
        return _after_first_metadata(request, context)
    missing = _to_create(request, context)
    return _create_and_answer(request, context, missing) if missing else _answer(request, context, {})


async def _after_first_metadata(request: MetadataRequest, context: RequestContext[Uses]) -> MetadataResponse:
    await wait_for_first_metadata(context)
    missing = _to_create(request, context)
    return await _create_and_answer(request, context, missing) if missing else _answer(request, context, {})


async def _create_and_answer(
    request: MetadataRequest, context: RequestContext[Uses], missing: list[str]
) -> MetadataResponse:
    failures = await context.services.controller.auto_create(missing)
    return _answer(request, context, failures)


def _to_create(request: MetadataRequest, context: RequestContext[Uses]) -> list[str]:
    services = context.services
    missing = _missing(request, services.image())
    if missing and request.allow_auto_topic_creation and services.config.flag("auto.create.topics.enable"):
        return missing if services.authorization is None else _creatable(missing, context.access)
    return []


def _creatable(names: list[str], access: Access) -> list[str]:
    """The topics that the client may see and create: CREATE on the cluster, or on the topic."""
    names = [name for name in names if access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name)]
    if access.allows_cluster(AclOperation.CREATE, quiet=True):
        return names
    return [name for name in names if access.allows(AclOperation.CREATE, ResourceType.TOPIC, name)]


def _missing(request: MetadataRequest, image: ClusterImage) -> list[str]:
    if not request.topics:
        return []
    known = image.topics
    missing: dict[str, None] = {}
    for topic in request.topics:
        name = topic.name
        if name and name not in known and topic.topic_id == ZERO_UUID:
            missing[name] = None
    return list(missing)


def _answer(
    request: MetadataRequest, context: RequestContext[Uses], failures: dict[str, ErrorCode]
) -> MetadataResponse:
    image = reachable_image(context)
    listener = context.session.listener_name
    cluster_operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OMITTED
    is_open = context.services.authorization is None
    if is_open or _is_seen(request, image, context.connection.session.access):
        operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else OMITTED
        topics = described_topics(request, image, context.version, failures, operations)
    else:
        from odradek.api.authorization.visible_topics import visible_topics

        creates = request.allow_auto_topic_creation and context.services.config.flag("auto.create.topics.enable")
        topics = visible_topics(request, image, context, creates=creates, failures=failures)
    if not is_open and request.include_cluster_authorized_operations:
        from odradek.api.authorization.visible_topics import visible_cluster_operations

        cluster_operations = visible_cluster_operations(context.access)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                broker.id, broker.endpoints[listener].host, broker.endpoints[listener].port, broker.rack
            )
            for broker in image.live_brokers()
            if listener in broker.endpoints
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations,
    )


def _is_seen(request: MetadataRequest, image: ClusterImage, access: Access | None) -> bool:
    """Whether the request names topics only that exist and that earlier decisions show to the client, and no more.

    Clients ask for the same topics again and again: this is quicker than to decide on each of them.
    """
    if not request.topics or request.include_topic_authorized_operations or access is None:
        return False
    known, topics = access.described_topics(), image.topics
    for wanted in request.topics:
        name = wanted.name
        if name is None or known.get(name, 0) <= 0 or name not in topics or wanted.topic_id != ZERO_UUID:
            return False
    return True
