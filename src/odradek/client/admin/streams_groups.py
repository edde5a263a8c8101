"""Groups of Kafka Streams' own protocol (KIP-1071): their topologies, members and tasks.

Their offsets are those of consumer groups: `admin.groups.offsets`, `alter_offsets`, `delete_offsets`. Brokers without
streams groups, Odradek's among them, lead to UnsupportedByBroker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from odradek.client.admin.enums import GroupState
from odradek.client.admin.requests import AdminRequests
from odradek.client.network.cluster import GROUP_COORDINATOR, error_of
from odradek.wire.errors import KafkaError
from odradek.wire.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse


class StreamsTask(NamedTuple):
    """One partition of a subtopology."""

    subtopology_id: str
    partition: int


class StreamsTasks(NamedTuple):
    """The tasks of a member."""

    active: list[StreamsTask]
    standby: list[StreamsTask]
    warmup: list[StreamsTask]


class StreamsSubtopology(NamedTuple):
    """A part of a topology, with the names of its topics."""

    subtopology_id: str
    source_topics: list[str]
    repartition_sink_topics: list[str]
    repartition_source_topics: list[str]
    changelog_topics: list[str]


class StreamsMember(NamedTuple):
    """A member of a streams group; `endpoint` is the host and port of its interactive queries."""

    member_id: str
    epoch: int
    group_instance_id: str | None
    client_id: str
    client_host: str
    process_id: str
    topology_epoch: int
    endpoint: tuple[str, int] | None
    tags: dict[str, str]
    assignment: StreamsTasks
    target_assignment: StreamsTasks


class StreamsGroupDescription(NamedTuple):
    """A streams group as its coordinator describes it."""

    group_id: str
    state: GroupState
    coordinator_id: int
    epoch: int
    assignment_epoch: int
    topology_epoch: int
    subtopologies: list[StreamsSubtopology]
    members: list[StreamsMember]


class StreamsGroupsAdmin:
    """`admin.streams_groups`. Groups are listed and deleted with `admin.groups`.

    Example:

        for group_id, found in raise_first(await admin.streams_groups.describe(["word-count"])).items():
            print(group_id, found.state, [each.member_id for each in found.members])
    """

    __slots__ = ("_requests",)

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def describe(self, group_ids: Iterable[str]) -> dict[str, StreamsGroupDescription | KafkaError]:
        """Streams groups with their topologies and members. Raises UnsupportedByBroker."""
        return {group_id: await self._describe(group_id) for group_id in group_ids}

    async def _describe(self, group_id: str) -> StreamsGroupDescription | KafkaError:
        response = await self._requests.to_coordinator(
            GROUP_COORDINATOR,
            group_id,
            StreamsGroupDescribeRequest([group_id]),
            StreamsGroupDescribeResponse,
            code=lambda answer: answer.groups[0].error_code,
        )
        found = response.groups[0]
        if found.error_code:
            return error_of(found.error_code, found.error_message)
        topology: Any = found.topology
        return StreamsGroupDescription(
            group_id,
            GroupState(found.group_state),
            await self._requests.cluster.coordinator(GROUP_COORDINATOR, group_id),
            found.group_epoch,
            found.assignment_epoch,
            -1 if topology is None else topology.epoch,
            [] if topology is None else [_subtopology(each) for each in topology.subtopologies or ()],
            [_member(each) for each in found.members],
        )


def _subtopology(found: Any) -> StreamsSubtopology:
    return StreamsSubtopology(
        found.subtopology_id,
        list(found.source_topics),
        list(found.repartition_sink_topics),
        [each.name for each in found.repartition_source_topics],
        [each.name for each in found.state_changelog_topics],
    )


def _member(found: Any) -> StreamsMember:
    endpoint = found.user_endpoint
    return StreamsMember(
        found.member_id,
        found.member_epoch,
        found.instance_id,
        found.client_id,
        found.client_host,
        found.process_id,
        found.topology_epoch,
        None if endpoint is None else (endpoint.host, endpoint.port),
        {each.key: each.value for each in found.client_tags},
        _tasks(found.assignment),
        _tasks(found.target_assignment),
    )


def _tasks(found: Any) -> StreamsTasks:
    def tasks(ids: Iterable[Any]) -> list[StreamsTask]:
        return [StreamsTask(each.subtopology_id, number) for each in ids for number in each.partitions]

    return StreamsTasks(tasks(found.active_tasks), tasks(found.standby_tasks), tasks(found.warmup_tasks))
