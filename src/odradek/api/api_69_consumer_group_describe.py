"""ConsumerGroupDescribe: KIP-848 groups, their members, and what these have and are meant to have.

Version notes: 1 marks members of the classic protocol.
"""

from __future__ import annotations

from typing import Protocol

from odradek.api.api_15_describe_groups import ALL_GROUP_OPERATIONS
from odradek.api.requests.capabilities import HasGroups, HasImage
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.groups.consumer.records import TopicPartitions
from odradek.groups.events import ConsumerMemberDescription
from odradek.metadata.image import ClusterImage
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseAssignment,
    ConsumerGroupDescribeResponseGroup,
    ConsumerGroupDescribeResponseMember,
    ConsumerGroupDescribeResponseTopicPartitions,
)

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


class Uses(HasGroups, HasImage, Protocol):
    """What these handlers take of the broker."""


@api(ApiKey.CONSUMER_GROUP_DESCRIBE)
def handle(request: ConsumerGroupDescribeRequest, context: RequestContext[Uses]) -> ConsumerGroupDescribeResponse:
    """Describe each KIP-848 group with its members; GROUP_ID_NOT_FOUND for others."""
    groups = [_describe(group_id, context) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = ALL_GROUP_OPERATIONS
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe(group_id: str, context: RequestContext[Uses]) -> ConsumerGroupDescribeResponseGroup:
    try:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        found = context.services.groups.describe_consumer_group(group_id)
    except KafkaError as error:
        return ConsumerGroupDescribeResponseGroup(error.code, error.message or None, group_id)
    image = context.services.image()
    return ConsumerGroupDescribeResponseGroup(
        found.error,
        found.message,
        group_id,
        found.state,
        found.epoch,
        found.assignment_epoch,
        found.assignor,
        [_member(member, image) for member in found.members],
    )


def _member(member: ConsumerMemberDescription, image: ClusterImage) -> ConsumerGroupDescribeResponseMember:
    return ConsumerGroupDescribeResponseMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex or "",
        assignment=_assignment(member.assignment, image),
        target_assignment=_assignment(member.target, image),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _assignment(partitions: TopicPartitions, image: ClusterImage) -> ConsumerGroupDescribeResponseAssignment:
    """Topics that are gone meanwhile are left out, as in Kafka."""
    return ConsumerGroupDescribeResponseAssignment(
        [
            ConsumerGroupDescribeResponseTopicPartitions(topic_id, image.topic_names[topic_id], sorted(found))
            for topic_id, found in partitions.items()
            if topic_id in image.topic_names
        ]
    )
