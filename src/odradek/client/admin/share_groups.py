"""Share groups (KIP-932): their members, and the offsets from which partitions are shared.

Brokers without share groups, Odradek's among them, lead to UnsupportedByBroker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from odradek.client.admin.enums import GroupState
from odradek.client.admin.requests import AdminRequests, failure_of, raise_failure
from odradek.client.network.cluster import GROUP_COORDINATOR, error_of
from odradek.client.offsets import by_topic
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import KafkaError
from odradek.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from odradek.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from odradek.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
)
from odradek.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse


class ShareMember(NamedTuple):
    """A member of a share group; several members may have the same partition."""

    member_id: str
    epoch: int
    client_id: str
    client_host: str
    rack: str | None
    topics: list[str]
    assignment: list[TopicPartition]


class ShareGroupDescription(NamedTuple):
    """A share group as its coordinator describes it."""

    group_id: str
    state: GroupState
    assignor: str
    coordinator_id: int
    epoch: int
    assignment_epoch: int
    members: list[ShareMember]


class ShareOffset(NamedTuple):
    """Where the sharing of a partition begins; `lag` is None where the broker does not know it (KIP-1226)."""

    start_offset: int
    leader_epoch: int
    lag: int | None


class ShareGroupsAdmin:
    """`admin.share_groups`. Groups are listed and deleted with `admin.groups`.

    Example:

        for place, at in raise_first(await admin.share_groups.offsets("workers")).items():
            print(place, at.start_offset, at.lag)
        print(await admin.share_groups.alter_offsets("workers", {TopicPartition("orders", 0): 0}))
    """

    __slots__ = ("_requests",)

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def describe(self, group_ids: Iterable[str]) -> dict[str, ShareGroupDescription | KafkaError]:
        """Share groups with their members. Raises UnsupportedByBroker."""
        return {group_id: await self._describe(group_id) for group_id in group_ids}

    async def _describe(self, group_id: str) -> ShareGroupDescription | KafkaError:
        response = await self._requests.to_coordinator(
            GROUP_COORDINATOR,
            group_id,
            ShareGroupDescribeRequest([group_id]),
            ShareGroupDescribeResponse,
            code=lambda answer: answer.groups[0].error_code,
        )
        found = response.groups[0]
        if found.error_code:
            return error_of(found.error_code, found.error_message)
        return ShareGroupDescription(
            group_id,
            GroupState(found.group_state),
            found.assignor_name,
            await self._requests.cluster.coordinator(GROUP_COORDINATOR, group_id),
            found.group_epoch,
            found.assignment_epoch,
            [_member(each) for each in found.members],
        )

    async def offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, ShareOffset | KafkaError]:
        """Start offsets, of all partitions for None; those without one are left out.

        Raises KafkaError (GROUP_ID_NOT_FOUND), UnsupportedByBroker.
        """
        topics = (
            None
            if partitions is None
            else [DescribeShareGroupOffsetsRequestTopic(*topic) for topic in by_topic(partitions).items()]
        )
        response = await self._requests.to_coordinator(
            GROUP_COORDINATOR,
            group_id,
            DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group_id, topics)]),
            DescribeShareGroupOffsetsResponse,
            code=lambda answer: answer.groups[0].error_code,
        )
        group = response.groups[0]
        raise_failure(group.error_code, group.error_message)
        found: dict[TopicPartition, ShareOffset | KafkaError] = {}
        for topic in group.topics:
            for each in topic.partitions:
                key = TopicPartition(topic.topic_name, each.partition_index)
                if each.error_code:
                    found[key] = error_of(each.error_code, each.error_message)
                elif each.start_offset >= 0:
                    lag = each.lag if each.lag >= 0 else None
                    found[key] = ShareOffset(each.start_offset, each.leader_epoch, lag)
        return found

    async def alter_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Set start offsets of a group without members. Raises KafkaError (NON_EMPTY_GROUP), UnsupportedByBroker."""
        topics = [
            AlterShareGroupOffsetsRequestTopic(
                name,
                [AlterShareGroupOffsetsRequestPartition(each, offsets[TopicPartition(name, each)]) for each in numbers],
            )
            for name, numbers in by_topic(list(offsets)).items()
        ]
        response = await self._requests.to_coordinator(
            GROUP_COORDINATOR,
            group_id,
            AlterShareGroupOffsetsRequest(group_id, topics),
            AlterShareGroupOffsetsResponse,
            code=lambda answer: answer.error_code,
        )
        raise_failure(response.error_code, response.error_message)
        return {
            TopicPartition(topic.topic_name, each.partition_index): failure_of(each.error_code, each.error_message)
            for topic in response.responses
            for each in topic.partitions
        }

    async def delete_offsets(self, group_id: str, topics: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete the offsets of whole topics, of a group without members. Raises as `alter_offsets`."""
        response = await self._requests.to_coordinator(
            GROUP_COORDINATOR,
            group_id,
            DeleteShareGroupOffsetsRequest(group_id, [DeleteShareGroupOffsetsRequestTopic(each) for each in topics]),
            DeleteShareGroupOffsetsResponse,
            code=lambda answer: answer.error_code,
        )
        raise_failure(response.error_code, response.error_message)
        return {each.topic_name: failure_of(each.error_code, each.error_message) for each in response.responses}


def _member(member: Any) -> ShareMember:
    return ShareMember(
        member.member_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        member.rack_id,
        list(member.subscribed_topic_names),
        [TopicPartition(each.topic_name, n) for each in member.assignment.topic_partitions for n in each.partitions],
    )
