"""Metadata: brokers, topics, leaders; creates topics that a client asks for where the configuration allows it.

Version notes: 0 an empty list means all topics, later null does; 4 auto-creation may be declined; 5 offline replicas; 7
leader epochs; 8-10 authorized operations; 10 topic ids; 12 look-up by id; 13 a top-level error for clients that must
rebootstrap. Unlike Kafka in KRaft mode, an auto-created topic is in the same answer: nothing has to be asked twice.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from odradek.api.data.encoded_topics import EncodedTopics
from odradek.api.data.new_leaders import reachable_image
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.metadata.image import ClusterImage
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from odradek.wire.primitives import ZERO_UUID

CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
"""Bits of AclOperation that apply to a cluster; without an authorizer everybody may do everything."""
TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
OMITTED = -(1 << 31)
_BY_ID = 12
_ENCODED = EncodedTopics()
"""Of all brokers of this process: an entry counts for the very objects only that it was made from."""


@api(ApiKey.METADATA)
def handle(request: MetadataRequest, context: RequestContext) -> MetadataResponse | Awaitable[MetadataResponse]:
    if not context.services.cluster.has_metadata:
        return _after_first_metadata(request, context)
    missing = _to_create(request, context)
    return _create_and_answer(request, context, missing) if missing else _answer(request, context, {})


async def _after_first_metadata(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """A cluster without brokers is no answer: librdkafka gives up every connection then, and has none to ask again.

    Apache Kafka's broker serves nobody before the controller has admitted it.
    """
    await context.services.cluster.wait_for_metadata()
    missing = _to_create(request, context)
    return await _create_and_answer(request, context, missing) if missing else _answer(request, context, {})


async def _create_and_answer(request: MetadataRequest, context: RequestContext, missing: list[str]) -> MetadataResponse:
    failures = await context.services.controller.auto_create(missing)
    return _answer(request, context, failures)


def _to_create(request: MetadataRequest, context: RequestContext) -> list[str]:
    services = context.services
    missing = _missing(request, services.image())
    if missing and request.allow_auto_topic_creation and services.config.flag("auto.create.topics.enable"):
        return missing
    return []


def _missing(request: MetadataRequest, image: ClusterImage) -> list[str]:
    if not request.topics:
        return []
    names = dict.fromkeys(topic.name for topic in request.topics if topic.name and topic.topic_id == ZERO_UUID)
    return [name for name in names if name not in image.topics]


def _answer(request: MetadataRequest, context: RequestContext, failures: dict[str, ErrorCode]) -> MetadataResponse:
    image = reachable_image(context)
    listener = context.session.listener_name
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else OMITTED
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
        topics=_topics(request, image, context.version, failures, operations),
        cluster_authorized_operations=CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OMITTED,
    )


def _topics(
    request: MetadataRequest, image: ClusterImage, version: int, failures: dict[str, ErrorCode], operations: int
) -> list[Any]:
    """Each a MetadataResponseTopic, or one that is encoded already."""
    encoded = _ENCODED.get
    if request.topics is None or (version == 0 and not request.topics):
        return [encoded(image.topics[name], image, version, operations) for name in sorted(image.topics)]
    described: list[Any] = []
    for wanted in request.topics:
        name = wanted.name
        if wanted.topic_id != ZERO_UUID and version >= _BY_ID:
            # The name beside an id is null in some clients and empty in others (Java's).
            name, topic = None, image.topic_by_id(wanted.topic_id)
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif name:
            topic = image.topics.get(name)
            code = failures.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            topic, code = None, ErrorCode.INVALID_TOPIC_EXCEPTION
        if topic is None:
            name = name if name is not None or version >= _BY_ID else ""
            described.append(MetadataResponseTopic(code, name, wanted.topic_id, topic_authorized_operations=operations))
        else:
            described.append(encoded(topic, image, version, operations))
    return described
