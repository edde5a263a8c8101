"""The groups' half of the admin client: what consumer groups there are, who is in them, where they stand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from odradek.client.cluster import GROUP_COORDINATOR, Cluster, error_of
from odradek.client.model import OffsetAndMetadata, TopicPartition
from odradek.client.offsets import Member, by_topic, commit_offsets, fetch_committed
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

_CONSUMER: Final = "consumer"


class GroupListing(NamedTuple):
    """state and type are empty where the broker is too old to tell."""

    group_id: str
    protocol_type: str
    state: str
    type: str
    coordinator_id: int


class MemberDescription(NamedTuple):
    """assignment is None for members of other protocols than `consumer`."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: list[TopicPartition] | None


class GroupDescription(NamedTuple):
    """partition_assignor is the protocol that the group agreed on, for instance `range`."""

    group_id: str
    state: str
    protocol_type: str
    partition_assignor: str
    coordinator_id: int
    members: list[MemberDescription]


class GroupsAdmin:
    """`admin.groups`."""

    __slots__ = ("_cluster",)

    def __init__(self, cluster: Callable[[], Cluster]) -> None:
        self._cluster = cluster

    async def list(self, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """Groups of all brokers, sorted by name; filters as in `kafka-groups` (KIP-518, KIP-848)."""
        cluster = self._cluster()

        async def attempt() -> list[GroupListing]:
            await cluster.refresh_metadata()
            found = []
            for node_id in cluster.metadata.brokers:
                connection = await cluster.connections.get(node_id)
                version = connection.version_of(ListGroupsRequest)
                request = ListGroupsRequest(list(states) if version >= 4 else [], list(types) if version >= 5 else [])
                response = await cluster.ask(connection, request, ListGroupsResponse)
                if response.error_code:
                    raise error_of(response.error_code)
                found += [
                    GroupListing(each.group_id, each.protocol_type, each.group_state, each.group_type, node_id)
                    for each in response.groups
                ]
            return sorted(found)

        return await cluster.retrying(attempt, "ListGroups")

    async def describe(self, group_ids: Iterable[str]) -> dict[str, GroupDescription | KafkaError]:
        """Groups with members and their partitions. A group that does not exist is GROUP_ID_NOT_FOUND, or Dead."""
        cluster = self._cluster()
        found: dict[str, GroupDescription | KafkaError] = {}
        for group_id in group_ids:

            async def attempt(group_id: str = group_id) -> GroupDescription | KafkaError:
                response = await cluster.request_coordinator(
                    GROUP_COORDINATOR, group_id, DescribeGroupsRequest([group_id]), DescribeGroupsResponse
                )
                group = response.groups[0]
                if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                    return error_of(group.error_code, group.error_message)
                cluster.check_coordinator(GROUP_COORDINATOR, group_id, group.error_code, group.error_message)
                return _described(group, await cluster.coordinator(GROUP_COORDINATOR, group_id))

            found[group_id] = await cluster.retrying(attempt, f"describe group {group_id}")
        return found

    async def delete(self, group_ids: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete empty groups with their offsets."""
        cluster = self._cluster()
        done: dict[str, KafkaError | None] = {}
        for group_id in group_ids:

            async def attempt(group_id: str = group_id) -> KafkaError | None:
                request = DeleteGroupsRequest([group_id])
                response = await cluster.request_coordinator(GROUP_COORDINATOR, group_id, request, DeleteGroupsResponse)
                return _outcome(cluster, group_id, response.results[0].error_code)

            done[group_id] = await cluster.retrying(attempt, f"delete group {group_id}")
        return done

    async def offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets, of all partitions for None; those without one are left out."""
        return await fetch_committed(self._cluster(), group_id, partitions, require_stable=require_stable)

    async def alter_offsets(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]) -> None:
        """Set committed offsets of a group that has no members now. Raises KafkaError (UNKNOWN_MEMBER_ID if it has)."""
        given = {k: OffsetAndMetadata(v) if isinstance(v, int) else v for k, v in offsets.items()}
        await commit_offsets(self._cluster(), group_id, given, Member())

    async def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Delete committed offsets of topics that the group does not subscribe to now."""
        cluster = self._cluster()
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
                TopicPartition(topic.name, each.partition_index): error_of(each.error_code) if each.error_code else None
                for topic in response.topics
                for each in topic.partitions
            }

        return await cluster.retrying(attempt, f"delete offsets of group {group_id}")

    async def remove_members(self, group_id: str, group_instance_ids: Iterable[str]) -> dict[str, KafkaError | None]:
        """Remove static members by their instance ids (KIP-345)."""
        cluster = self._cluster()
        members = [LeaveGroupRequestMember(group_instance_id=each) for each in group_instance_ids]
        request = LeaveGroupRequest(group_id=group_id, members=members)

        async def attempt() -> dict[str, KafkaError | None]:
            response = await cluster.request_coordinator(GROUP_COORDINATOR, group_id, request, LeaveGroupResponse)
            cluster.check_coordinator(GROUP_COORDINATOR, group_id, response.error_code, f"group {group_id}")
            return {
                each.group_instance_id or "": error_of(each.error_code) if each.error_code else None
                for each in response.members
            }

        return await cluster.retrying(attempt, f"remove members of group {group_id}")


def _outcome(cluster: Cluster, group_id: str, code: int) -> KafkaError | None:
    """An error that trying again may cure is raised, any other is the outcome."""
    if code and error_of(code).retriable:
        cluster.check_coordinator(GROUP_COORDINATOR, group_id, code)
    return error_of(code, f"group {group_id}") if code else None


def _described(group: DescribeGroupsResponseGroup, coordinator_id: int) -> GroupDescription:
    members = []
    for each in group.members:
        assignment: list[TopicPartition] | None = None
        if group.protocol_type == _CONSUMER:
            assignment = _assignment(each.member_assignment)
        members.append(
            MemberDescription(each.member_id, each.group_instance_id, each.client_id, each.client_host, assignment)
        )
    return GroupDescription(
        group.group_id, group.group_state, group.protocol_type, group.protocol_data, coordinator_id, members
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
