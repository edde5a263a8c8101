"""The group APIs, from request bytes to response bytes in every version, before a real group coordinator."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.requests.long_work import LongWork
from odradek.api.requests.registry import endpoint
from odradek.api.requests.session import Session
from odradek.groups.settings import GroupSettings
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.quotas.client_quotas import ClientQuotas
from odradek.wire.apis import APIS, ApiKey, response_class
from odradek.wire.errors import ErrorCode as E
from odradek.wire.errors import KafkaError
from odradek.wire.headers import parse_response_header
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupRequestMember
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
)
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.unit.broker.coordinators.group_broker import GroupBroker

TOPIC_ID = bytes(range(16))
OTHER_ID = bytes(range(1, 17))
SETTINGS = GroupSettings(initial_rebalance_delay_ms=0)
SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"


class Late:
    """The place of an answer that comes later."""

    def __init__(self) -> None:
        self.parts: asyncio.Future[list[bytearray]] = asyncio.get_running_loop().create_future()

    def answer(self, parts: list[bytearray]) -> None:
        self.parts.set_result(parts)


class Caller:
    """Calls handlers as the dispatcher does: both messages go through their bytes."""

    def __init__(self, broker: GroupBroker) -> None:
        self.broker = broker
        state = PartitionState(1, 0, (1,), (1,))
        image = ClusterImage("cluster").with_topic(Topic("t", TOPIC_ID, (state, state)))
        self.services = SimpleNamespace(
            authorization=None,
            audit=None,
            groups=broker.runtime,
            image=lambda: image,
            quotas=ClientQuotas(11, 1),
            long_work=LongWork(lambda: 0.0, 4),
        )
        self.connection = SimpleNamespace(identifier=1, later=Late)
        self.session = Session("PLAINTEXT", "10.0.0.1")

    async def __call__(self, key: ApiKey, version: int, request: Any) -> Any:
        data = bytearray()
        request.encode(data, version)
        found = endpoint(key)
        assert found is not None
        decoded, _ = found.decode(memoryview(data), 0, version)
        context = SimpleNamespace(
            denied=None,
            services=self.services,
            version=version,
            client_id="me",
            connection=self.connection,
            session=self.session,
            correlation_id=1,
        )
        answer = found.handle(decoded, context)
        if found.failed is not None:
            (frame,) = await answer.parts if isinstance(answer, Late) else answer
            _, position = parse_response_header(memoryview(frame)[4:], key, version)
            return response_class(key).decode(memoryview(frame)[4:], position, version)[0]
        if inspect.isawaitable(answer):
            answer = await answer
        out = bytearray()
        answer.encode(out, version)
        return response_class(key).decode(memoryview(out), 0, version)[0]

    async def join(self, version: int = 9, group_id: str = "g", member_id: str = "", **fields: Any) -> Any:
        request = JoinGroupRequest(
            group_id,
            session_timeout_ms=fields.pop("session_timeout_ms", 10_000),
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", SUBSCRIPTION)],
            **fields,
        )
        if version == 0:
            request.rebalance_timeout_ms = -1
        return await self(ApiKey.JOIN_GROUP, version, request)

    async def member(self, version: int = 9, group_id: str = "g") -> str:
        """Become the only member of a stable group."""
        joined = await self.join(version, group_id)
        if version >= 4:
            assert joined.error_code == E.MEMBER_ID_REQUIRED
            joined = await self.join(version, group_id, joined.member_id)
        assert joined.error_code == E.NONE
        sync_version = min(version, 5)
        typed = {"protocol_type": "consumer", "protocol_name": "range"} if sync_version >= 5 else {}
        parts = [SyncGroupRequestAssignment(joined.member_id, b"all")]
        request = SyncGroupRequest(group_id, joined.generation_id, joined.member_id, assignments=parts, **typed)
        synced = await self(ApiKey.SYNC_GROUP, sync_version, request)
        assert (synced.error_code, synced.assignment) == (E.NONE, b"all")
        member_id: str = joined.member_id
        return member_id

    async def commit(self, version: int, topics: list[tuple[str | bytes, int, int]], **fields: Any) -> Any:
        wanted = []
        for topic, index, offset in topics:
            named = {"topic_id": topic} if isinstance(topic, bytes) else {"name": topic}
            wanted.append(OffsetCommitRequestTopic(partitions=[OffsetCommitRequestPartition(index, offset)], **named))
        request = OffsetCommitRequest(fields.pop("group_id", "g"), topics=wanted, **fields)
        response = await self(ApiKey.OFFSET_COMMIT, version, request)
        return [partition.error_code for topic in response.topics for partition in topic.partitions]


def calling(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a coroutine test with a caller; parameters of the test are passed on."""

    def run(tmp_path: Path, **parameters: Any) -> None:
        async def main() -> None:
            broker = GroupBroker(tmp_path, SETTINGS).start()
            try:
                await test(Caller(broker), **parameters)
            finally:
                broker.stop()

        asyncio.run(main())

    names = list(inspect.signature(test).parameters)[1:]
    kept = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    path = inspect.Parameter("tmp_path", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([path, *kept])  # type: ignore[attr-defined]
    run.__name__ = test.__name__
    run.__dict__.update(test.__dict__)
    return run


def versions(key: ApiKey) -> range:
    spec = APIS[key]
    return range(spec.min_version, spec.max_version + 1)


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
@calling
async def test_join_and_sync_in_every_version(call: Caller, version: int) -> None:
    member = await call.member(version)
    group = call.broker.runtime.describe_group("g")
    assert (group.state, group.members[0].client_host, group.members[0].client_id) == ("Stable", "/10.0.0.1", "me")
    assert member.startswith("me-")
    timeouts = call.broker.coordinator.classic.by_id["g"].members[member]
    assert timeouts.rebalance_timeout_ms == (10_000 if version == 0 else 30_000)


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
@calling
async def test_rejected_joins_in_every_version(call: Caller, version: int) -> None:
    refused = await call.join(version, session_timeout_ms=1)
    assert (refused.error_code, refused.generation_id) == (E.INVALID_SESSION_TIMEOUT, -1)
    refused = await call.join(version, "", "m")
    assert (refused.error_code, refused.member_id) == (E.INVALID_GROUP_ID, "m")


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
@calling
async def test_sync_requires_the_protocol_from_version_5_on(call: Caller, version: int) -> None:
    member = await call.member()
    bare = await call(ApiKey.SYNC_GROUP, version, SyncGroupRequest("g", 1, member))
    assert bare.error_code == (E.INCONSISTENT_GROUP_PROTOCOL if version >= 5 else E.NONE)


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
@calling
async def test_heartbeats(call: Caller, version: int) -> None:
    member = await call.member()
    for generation, error in ((1, E.NONE), (2, E.ILLEGAL_GENERATION)):
        answer = await call(ApiKey.HEARTBEAT, version, HeartbeatRequest("g", generation, member))
        assert answer.error_code == error
    answer = await call(ApiKey.HEARTBEAT, version, HeartbeatRequest("", 1, member))
    assert answer.error_code == E.INVALID_GROUP_ID


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
@calling
async def test_leaving_places_errors_by_version(call: Caller, version: int) -> None:
    member = await call.member()
    if version < 3:
        answer = await call(ApiKey.LEAVE_GROUP, version, LeaveGroupRequest("g", "unknown"))
        assert answer.error_code == E.UNKNOWN_MEMBER_ID
        answer = await call(ApiKey.LEAVE_GROUP, version, LeaveGroupRequest("g", member))
        assert answer.error_code == E.NONE
        return
    leaving = [LeaveGroupRequestMember("unknown"), LeaveGroupRequestMember(member)]
    answer = await call(ApiKey.LEAVE_GROUP, version, LeaveGroupRequest("g", members=leaving))
    assert answer.error_code == E.NONE
    found = [(m.member_id, m.group_instance_id, m.error_code) for m in answer.members]
    assert found == [("unknown", None, E.UNKNOWN_MEMBER_ID), (member, None, E.NONE)]


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
@calling
async def test_commits_and_unknown_topics_in_every_version(call: Caller, version: int) -> None:
    by_id = version >= 10
    known: str | bytes = TOPIC_ID if by_id else "t"
    unknown: str | bytes = OTHER_ID if by_id else "nowhere"
    codes = await call.commit(version, [(known, 0, 5), (unknown, 0, 1), (known, 2, 1), (known, 1, 6)])
    lost = E.UNKNOWN_TOPIC_ID if by_id else E.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [E.NONE, lost, E.UNKNOWN_TOPIC_OR_PARTITION, E.NONE]
    stale = {"generation_id_or_member_epoch": 3, "member_id": "m", "group_id": "nowhere"}
    expected = E.GROUP_ID_NOT_FOUND if version >= 9 else E.ILLEGAL_GENERATION
    assert await call.commit(version, [(known, 0, 5)], **stale) == [expected]


@pytest.mark.parametrize("version", [v for v in versions(ApiKey.OFFSET_FETCH) if v < 8])
@calling
async def test_fetching_offsets_of_one_group(call: Caller, version: int) -> None:
    await call.commit(8, [("t", 0, 5)])
    topics = [OffsetFetchRequestTopic("t", [0, 1]), OffsetFetchRequestTopic("gone", [0])]
    answer = await call(ApiKey.OFFSET_FETCH, version, OffsetFetchRequest("g", topics))
    found = {
        t.name: [(p.partition_index, p.committed_offset, p.error_code) for p in t.partitions] for t in answer.topics
    }
    assert found == {"t": [(0, 5, 0), (1, -1, 0)], "gone": [(0, -1, 0)]}
    if version >= 2:
        answer = await call(ApiKey.OFFSET_FETCH, version, OffsetFetchRequest("g", None))
        assert [(t.name, len(t.partitions)) for t in answer.topics] == [("t", 1)]
    call.broker.runtime.resigned(0)
    answer = await call(ApiKey.OFFSET_FETCH, version, OffsetFetchRequest("g", topics))
    if version >= 2:
        assert (answer.error_code, answer.topics) == (E.NOT_COORDINATOR, [])
    else:
        assert {p.error_code for t in answer.topics for p in t.partitions} == {E.NOT_COORDINATOR}


@pytest.mark.parametrize("version", [v for v in versions(ApiKey.OFFSET_FETCH) if v >= 8])
@calling
async def test_fetching_offsets_of_several_groups(call: Caller, version: int) -> None:
    by_id = version >= 10
    await call.commit(8, [("t", 0, 5)])
    await call.commit(8, [("t", 1, 6)], group_id="h")
    known = {"topic_id": TOPIC_ID} if by_id else {"name": "t"}
    lost = {"topic_id": OTHER_ID} if by_id else {"name": "gone"}
    wanted = [
        OffsetFetchRequestGroupTopic(partition_indexes=[0, 1], **known),
        OffsetFetchRequestGroupTopic(partition_indexes=[0], **lost),
    ]
    groups = [OffsetFetchRequestGroup("g", topics=wanted), OffsetFetchRequestGroup("h", topics=None)]
    answer = await call(ApiKey.OFFSET_FETCH, version, OffsetFetchRequest(groups=groups))
    first, second = answer.groups
    assert [(p.committed_offset, p.error_code) for p in first.topics[0].partitions] == [(5, 0), (-1, 0)]
    (absent,) = first.topics[1].partitions
    assert (absent.committed_offset, absent.error_code) == (-1, E.UNKNOWN_TOPIC_ID if by_id else E.NONE)
    assert second.topics[0].partitions[0].committed_offset == 6
    if by_id:
        assert [t.topic_id for t in first.topics] == [TOPIC_ID, OTHER_ID]
        assert second.topics[0].topic_id == TOPIC_ID
    call.broker.runtime.resigned(0)
    answer = await call(ApiKey.OFFSET_FETCH, version, OffsetFetchRequest(groups=groups))
    assert [group.error_code for group in answer.groups] == [E.NOT_COORDINATOR] * 2


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
@calling
async def test_describing_groups(call: Caller, version: int) -> None:
    member = await call.member()
    asked = DescribeGroupsRequest(["g", "nowhere"], include_authorized_operations=version >= 3)
    found, lost = (await call(ApiKey.DESCRIBE_GROUPS, version, asked)).groups
    assert (found.error_code, found.group_state, found.protocol_data) == (E.NONE, "Stable", "range")
    assert (found.members[0].member_id, found.members[0].member_assignment) == (member, b"all")
    assert lost.group_state == "Dead"
    assert lost.error_code == (E.GROUP_ID_NOT_FOUND if version >= 6 else E.NONE)
    assert lost.error_message == ("Group nowhere not found." if version >= 6 else None)
    assert found.authorized_operations == (3400 if version >= 3 else -(2**31))
    call.broker.runtime.resigned(0)
    (away, _) = (await call(ApiKey.DESCRIBE_GROUPS, version, asked)).groups
    assert away.error_code == E.NOT_COORDINATOR


@calling
async def test_groups_are_described_in_order_when_in_slices(call: Caller) -> None:
    call.services.long_work.configure(0)
    names = [f"g-{number}" for number in range(25)]
    found = (await call(ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(names))).groups
    assert [group.group_id for group in found] == names


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
@calling
async def test_listing_groups(call: Caller, version: int) -> None:
    await call.member()
    await call.commit(8, [("t", 0, 5)], group_id="simple")
    found = (await call(ApiKey.LIST_GROUPS, version, ListGroupsRequest())).groups
    assert {(group.group_id, group.protocol_type) for group in found} == {("g", "consumer"), ("simple", "")}
    if version >= 4:
        found = (await call(ApiKey.LIST_GROUPS, version, ListGroupsRequest(["stable"]))).groups
        assert [(group.group_id, group.group_state) for group in found] == [("g", "Stable")]
    if version >= 5:
        found = (await call(ApiKey.LIST_GROUPS, version, ListGroupsRequest([], ["consumer"]))).groups
        assert found == []


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
@calling
async def test_deleting_groups(call: Caller, version: int) -> None:
    await call.member()
    await call.commit(8, [("t", 0, 5)], group_id="simple")
    asked = DeleteGroupsRequest(["g", "simple", "nowhere"])
    answer = await call(ApiKey.DELETE_GROUPS, version, asked)
    found = {result.group_id: result.error_code for result in answer.results}
    assert found == {"g": E.NON_EMPTY_GROUP, "simple": E.NONE, "nowhere": E.GROUP_ID_NOT_FOUND}


@calling
async def test_deleting_offsets(call: Caller) -> None:
    await call.commit(8, [("t", 0, 5)])
    partitions = [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(9)]
    asked = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", partitions)])
    answer = await call(ApiKey.OFFSET_DELETE, 0, asked)
    found = [(p.partition_index, p.error_code) for p in answer.topics[0].partitions]
    assert found == [(0, E.NONE), (9, E.UNKNOWN_TOPIC_OR_PARTITION)]
    asked.group_id = "nowhere"
    answer = await call(ApiKey.OFFSET_DELETE, 0, asked)
    assert (answer.error_code, answer.topics) == (E.GROUP_ID_NOT_FOUND, [])


@calling
async def test_leaving_an_unknown_coordinator_is_raised_for_the_dispatcher(call: Caller) -> None:
    call.broker.runtime.resigned(0)
    with pytest.raises(KafkaError) as refused:
        await call(ApiKey.LEAVE_GROUP, 3, LeaveGroupRequest("g", members=[LeaveGroupRequestMember("m")]))
    assert refused.value.code is E.NOT_COORDINATOR
