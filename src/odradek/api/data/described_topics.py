"""The topics of a Metadata answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from odradek.api.data.encoded_topics import EncodedTopics
from odradek.metadata.image import ClusterImage, Topic
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from odradek.wire.primitives import ZERO_UUID

OMITTED: Final = -(1 << 31)
"""The bit field of operations that were not asked for."""
_BY_ID: Final = 12
_ENCODED: Final = EncodedTopics()
"""Of all brokers of this process: an entry counts for the very objects only that it was made from."""


def asks_for_all(request: MetadataRequest, version: int) -> bool:
    """Whether the request is for all topics: null, in version 0 an empty list."""
    return request.topics is None or (version == 0 and not request.topics)


def described_topics(
    request: MetadataRequest, image: ClusterImage, version: int, failures: Mapping[str, ErrorCode], operations: int
) -> list[Any]:
    """Each a MetadataResponseTopic, or an encoded one; `failures` are of topics that were to be created."""
    if asks_for_all(request, version):
        return [_ENCODED.get(image.topics[name], image, version, operations) for name in sorted(image.topics)]
    described: list[Any] = []
    for wanted in request.topics or ():
        topic = wanted_topic(wanted, image, version)
        if topic is None:
            described.append(missing_topic(wanted, version, failures, operations))
        else:
            described.append(_ENCODED.get(topic, image, version, operations))
    return described


def described_topic(topic: Topic, image: ClusterImage, version: int, operations: int) -> Any:
    """A topic that exists."""
    return _ENCODED.get(topic, image, version, operations)


def wanted_topic(wanted: MetadataRequestTopic, image: ClusterImage, version: int) -> Topic | None:
    """The topic that is asked for by id or name; None if it does not exist."""
    if version >= _BY_ID and is_by_id(wanted, version):
        return image.topic_by_id(wanted.topic_id)
    return image.topics.get(wanted.name) if wanted.name else None


def is_by_id(wanted: MetadataRequestTopic, version: int) -> bool:
    """Whether a topic is asked for by its id."""
    return wanted.topic_id != ZERO_UUID and version >= _BY_ID


def names_ids_too_early(request: MetadataRequest, version: int) -> bool:
    """Whether a request has topics by id in a version that encodes ids, and is to have none."""
    return version < _BY_ID and any(topic.topic_id != ZERO_UUID for topic in request.topics or ())


def rejected_topics(request: MetadataRequest) -> MetadataResponse:
    """INVALID_REQUEST for each topic of a request, and no brokers, as Apache Kafka answers what it cannot accept."""
    code = ErrorCode.INVALID_REQUEST
    return MetadataResponse(
        topics=[MetadataResponseTopic(code, topic.name or "", topic.topic_id) for topic in request.topics or ()]
    )


def missing_topic(
    wanted: MetadataRequestTopic, version: int, failures: Mapping[str, ErrorCode], operations: int
) -> MetadataResponseTopic:
    """The answer for a topic that does not exist."""
    name = wanted.name
    if is_by_id(wanted, version):
        # The name beside an id is null in some clients and empty in others (Java's).
        name, code = None, ErrorCode.UNKNOWN_TOPIC_ID
    elif name:
        code = failures.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    else:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    name = name if name is not None or version >= _BY_ID else ""
    return MetadataResponseTopic(code, name, wanted.topic_id, topic_authorized_operations=operations)
