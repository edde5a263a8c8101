"""The topics of Metadata and DescribeTopicPartitions that a client may see.

A topic that the client may not describe is left out where all are asked for. Where it is asked for, the answer is the
same whether it exists or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from odradek.api.authorization.guarding import Guarded
from odradek.api.data.described_topics import (
    OMITTED,
    asks_for_all,
    described_topic,
    is_by_id,
    missing_topic,
    wanted_topic,
)
from odradek.api.requests.context import RequestContext
from odradek.authorization.authorizer import Access
from odradek.metadata.image import ClusterImage
from odradek.wire.acls import CLUSTER_NAME, AclOperation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic

_TOPIC: Final = ResourceType.TOPIC


def visible_cluster_operations(access: Access) -> int:
    """The bit field of operations on the cluster; 0 for a client that may not describe it."""
    if not access.allows_cluster(AclOperation.DESCRIBE, quiet=True):
        return 0
    return access.operations(ResourceType.CLUSTER, CLUSTER_NAME)


def visible_topics(
    request: MetadataRequest,
    image: ClusterImage,
    context: RequestContext[Guarded],
    *,
    creates: bool,
    failures: Mapping[str, ErrorCode],
) -> list[Any]:
    """The topics of a Metadata answer; `creates`: missing ones are created for clients that may create them."""
    access, version = context.access, context.version
    asks_operations = request.include_topic_authorized_operations

    def operations(name: str) -> int:
        return access.operations(_TOPIC, name) if asks_operations else OMITTED

    if asks_for_all(request, version):
        return [
            described_topic(topic, image, version, operations(name))
            for name, topic in sorted(image.topics.items())
            if access.allows(AclOperation.DESCRIBE, _TOPIC, name, quiet=True)
        ]
    described: list[Any] = []
    for wanted in request.topics or ():
        topic = wanted_topic(wanted, image, version)
        name = wanted.name if topic is None else topic.name
        if (
            name
            and not _is_unknown_id(wanted, version, topic)
            and not access.allows(AclOperation.DESCRIBE, _TOPIC, name)
        ):
            described.append(_denied(wanted, version))
        elif topic is not None:
            described.append(described_topic(topic, image, version, operations(topic.name)))
        elif creates and name and name not in failures and not is_by_id(wanted, version) and not _creates(name, access):
            described.append(_denied(wanted, version))
        else:
            described.append(missing_topic(wanted, version, failures, operations(name) if name else OMITTED))
    return described


def _is_unknown_id(wanted: MetadataRequestTopic, version: int, topic: object) -> bool:
    return topic is None and is_by_id(wanted, version)


def _creates(name: str, access: Access) -> bool:
    return access.allows_cluster(AclOperation.CREATE, quiet=True) or access.allows(AclOperation.CREATE, _TOPIC, name)


def _denied(wanted: MetadataRequestTopic, version: int) -> MetadataResponseTopic:
    """By name with a zero id, by id without a name."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if is_by_id(wanted, version):
        return MetadataResponseTopic(code, None, wanted.topic_id, topic_authorized_operations=OMITTED)
    return MetadataResponseTopic(code, wanted.name, topic_authorized_operations=OMITTED)
