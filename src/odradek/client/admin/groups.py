"""Consumer groups: list, describe and delete them, their offsets, their members."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from odradek.client.admin.enums import GroupProtocolType, GroupState, GroupType
from odradek.client.admin.requests import AdminRequests, failure_of, raise_failure
from odradek.client.model import OffsetAndMetadata
from odradek.client.network.cluster import GROUP_COORDINATOR, error_of
from odradek.client.offsets import alter_offsets, by_topic, fetch_committed
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from odradek.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.wire.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
)
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupRequestMember, LeaveGroupResponse
from odradek.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from odradek.wire.primitives import DecodeError


class GroupListing(NamedTuple):
    """A group as its coordinator lists it; state and type are None where the broker is too old to report them.

    protocol_type is a text where a program has a type of its own.
    """

    group_id: str
    protocol_type: GroupProtocolType | str
    state: GroupState | None
    type: GroupType | None
    coordinator_id: int


class MemberDescription(NamedTuple):
    """A member. Its assignment is None in groups of other protocols than `consumer`.

    Epoch and target assignment are those of KIP-848, None in classic groups.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: list[TopicPartition] | None
    epoch: int | None = None
    target_assignment: list[TopicPartition] | None = None


class GroupDescription(NamedTuple):
    """A group of the classic or the consumer protocol. The epochs are those of KIP-848, None in classic groups.

    partition_assignor is the assignor in use, for instance `range`.
    """

    group_id: str
    state: GroupState
    protocol_type: GroupProtocolType | str
    partition_assignor: str
    coordinator_id: int
    members: list[MemberDescription]
    type: GroupType = GroupType.CLASSIC
    epoch: int | None = None
    assignment_epoch: int | None = None


Members = list[LeaveGroupRequestMember]

Listings = list[GroupListing]
"""Groups, sorted by name."""


class GroupsAdmin:
    """`admin.groups`.

    Example:

        for each in await admin.groups.list(states=[GroupState.STABLE]):
            print(each.group_id, each.protocol_type)
            offsets = await admin.groups.offsets(each.group_id)
            print({place: at.offset for place, at in offsets.items()})
        print(await admin.groups.alter_offsets("workers", {TopicPartition("orders", 0): 0}))
    """

    __slots__ = ("_requests",)

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def list(
        self,
        *,
        states: Collection[GroupState | str] = (),
        types: Collection[GroupType | str] = (),
        protocol_types: Collection[GroupProtocolType | str] = (),
    ) -> Listings:
        """Groups of all brokers, sorted by name; with filters only those states (KIP-518) and types (KIP-848).

        Protocol types are those of KIP-1043, and the names of programs' own ones.
        """
        cluster = self._requests.cluster

        async def attempt() -> Listings:
            await cluster.refresh_metadata()
            found = []
            for node_id in cluster.metadata.brokers:
                connection = await cluster.connections.get(node_id)
                version = connection.version_of(ListGroupsRequest)
                request = ListGroupsRequest([*states] if version >= 4 else [], [*types] if version >= 5 else [])
                response = await cluster.ask(connection, request, ListGroupsResponse)
                raise_failure(response.error_code)
                found += [
                    GroupListing(
                        each.group_id,
                        GroupProtocolType.from_wire(each.protocol_type),
                        GroupState(each.group_state) if each.group_state else None,
                        GroupType(each.group_type) if each.group_type else None,
                        node_id,
                    )
                    for each in response.groups
                    if not protocol_types or each.protocol_type in protocol_types
                ]
            return sorted(found, key=lambda each: (each.group_id, each.coordinator_id))

        return await cluster.retrying(attempt, "ListGroups")

    async def describe(self, group_ids: Iterable[str]) -> dict[str, GroupDescription | KafkaError]:
        """Groups with members and their partitions; GROUP_ID_NOT_FOUND for a group that does not exist."""
        return {group_id: await self._describe(group_id) for group_id in group_ids}

    async def _describe(self, group_id: str) -> GroupDescription | KafkaError:
        """Brokers describe groups of KIP-848 by another API than classic ones."""
        response = await self._requests.to_coordinator(
            GROUP_COORDINATOR,
            group_id,
            DescribeGroupsRequest([group_id]),
            DescribeGroupsResponse,
            code=lambda answer: answer.groups[0].error_code,
        )
        group = response.groups[0]
        if group.error_code and group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            return error_of(group.error_code, group.error_message)
        # Before KIP-1043 a group that does not exist was described as a dead one.
        if group.error_code or (group.group_state == GroupState.DEAD and not group.members):
            return await self._describe_consumer_group(group_id) or error_of(
                ErrorCode.GROUP_ID_NOT_FOUND, group.error_message or f"Group {group_id} not found."
            )
        return _classic(group, await self._requests.cluster.coordinator(GROUP_COORDINATOR, group_id))

    async def _describe_consumer_group(self, group_id: str) -> GroupDescription | KafkaError | None:
        """A group of KIP-848's protocol; None where the broker has no such groups."""
        from odradek.wire.messages.consumer_group_describe import (
            ConsumerGroupDescribeRequest,
            ConsumerGroupDescribeResponse,
        )

        cluster = self._requests.cluster
        connection = await cluster.coordinator_connection(GROUP_COORDINATOR, group_id)
        if ConsumerGroupDescribeRequest.API_KEY not in connection.versions:
            return None
        response = await self._requests.to_coordinator(
            GROUP_COORDINATOR,
            group_id,
            ConsumerGroupDescribeRequest([group_id]),
            ConsumerGroupDescribeResponse,
            code=lambda answer: answer.groups[0].error_code,
        )
        found = response.groups[0]
        if found.error_code:
            return error_of(found.error_code, found.error_message)
        members = [
            MemberDescription(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                _partitions(each.assignment),
                each.member_epoch,
                _partitions(each.target_assignment),
            )
            for each in found.members
        ]
        return GroupDescription(
            group_id,
            GroupState(found.group_state),
            GroupProtocolType.CONSUMER,
            found.assignor_name,
            await cluster.coordinator(GROUP_COORDINATOR, group_id),
            members,
            GroupType.CONSUMER,
            found.group_epoch,
            found.assignment_epoch,
        )

    async def delete(self, group_ids: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete empty groups with their offsets."""
        done: dict[str, KafkaError | None] = {}
        for group_id in group_ids:
            response = await self._requests.to_coordinator(
                GROUP_COORDINATOR,
                group_id,
                DeleteGroupsRequest([group_id]),
                DeleteGroupsResponse,
                code=lambda answer: answer.results[0].error_code,
            )
            done[group_id] = failure_of(response.results[0].error_code, f"group {group_id}")
        return done

    async def offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets, of all partitions for None; those without one are left out."""
        return await fetch_committed(self._requests.cluster, group_id, partitions, require_stable=require_stable)

    async def alter_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Set committed offsets of a group that has no members now. Raises KafkaError (UNKNOWN_MEMBER_ID if it has)."""
        given = {k: OffsetAndMetadata(v) if isinstance(v, int) else v for k, v in offsets.items()}
        return await alter_offsets(self._requests.cluster, group_id, given)

    async def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Delete committed offsets of topics that the group does not subscribe to now."""
        cluster = self._requests.cluster
        topics = [
            OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(each) for each in numbers])
            for name, numbers in by_topic(partitions).items()
        ]

        async def attempt() -> dict[TopicPartition, KafkaError | None]:
            response = await cluster.request_coordinator(
                GROUP_COORDINATOR, group_id, OffsetDeleteRequest(group_id, topics), OffsetDeleteResponse
            )
            cluster.check_coordinator(GROUP_COORDINATOR, group_id, response.error_code, f"group {group_id}")
            return {
                TopicPartition(topic.name, each.partition_index): failure_of(each.error_code)
                for topic in response.topics
                for each in topic.partitions
            }

        return await cluster.retrying(attempt, f"delete offsets of group {group_id}")

    async def remove_members(
        self, group_id: str, group_instance_ids: Iterable[str] | None = None, *, reason: str | None = None
    ) -> dict[str, KafkaError | None]:
        """Remove static members by their instance ids (KIP-345), or all members for None (KIP-571).

        The outcome is by instance id, of dynamic members by member id. Raises KafkaError.
        """
        cluster = self._requests.cluster
        members = (
            await self._all_members(group_id, reason)
            if group_instance_ids is None
            else [LeaveGroupRequestMember(group_instance_id=each, reason=reason) for each in group_instance_ids]
        )
        if not members:
            return {}
        request = LeaveGroupRequest(group_id=group_id, members=members)

        async def attempt() -> dict[str, KafkaError | None]:
            response = await cluster.request_coordinator(GROUP_COORDINATOR, group_id, request, LeaveGroupResponse)
            cluster.check_coordinator(GROUP_COORDINATOR, group_id, response.error_code, f"group {group_id}")
            return {each.group_instance_id or each.member_id: failure_of(each.error_code) for each in response.members}

        return await cluster.retrying(attempt, f"remove members of group {group_id}")

    async def _all_members(self, group_id: str, reason: str | None) -> Members:
        group = (await self.describe([group_id]))[group_id]
        if isinstance(group, KafkaError):
            raise group
        return [
            LeaveGroupRequestMember("", each.group_instance_id, reason)
            if each.group_instance_id
            else LeaveGroupRequestMember(each.member_id, reason=reason)
            for each in group.members
        ]


def _partitions(assignment: Any) -> list[TopicPartition]:
    return [TopicPartition(each.topic_name, index) for each in assignment.topic_partitions for index in each.partitions]


def _classic(group: DescribeGroupsResponseGroup, coordinator_id: int) -> GroupDescription:
    members = []
    for each in group.members:
        assignment: list[TopicPartition] | None = None
        if group.protocol_type == GroupProtocolType.CONSUMER:
            assignment = _assignment(each.member_assignment)
        members.append(
            MemberDescription(each.member_id, each.group_instance_id, each.client_id, each.client_host, assignment)
        )
    return GroupDescription(
        group.group_id,
        GroupState(group.group_state),
        GroupProtocolType.from_wire(group.protocol_type),
        group.protocol_data,
        coordinator_id,
        members,
    )


def _assignment(data: bytes) -> list[TopicPartition] | None:
    """The partitions of a member, as its group's leader wrote them; None where that cannot be read."""
    if len(data) < 2:
        return []
    version = min(int.from_bytes(data[:2], "big"), int(ConsumerProtocolAssignment.MAX_VERSION))
    try:
        decoded, _ = ConsumerProtocolAssignment.decode(memoryview(data), 2, version)
    except DecodeError:
        return None
    return [TopicPartition(each.topic, number) for each in decoded.assigned_partitions for number in each.partitions]
