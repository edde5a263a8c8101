"""Requests of consumer groups: what their handlers pass to the coordinator and what each version is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api import (
    api_08_offset_commit,
    api_09_offset_fetch,
    api_10_find_coordinator,
    api_11_join_group,
    api_14_sync_group,
    api_15_describe_groups,
    api_68_consumer_group_heartbeat,
    api_69_consumer_group_describe,
)
from odradek.api.requests.long_work import LongWork
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.groups.events import (
    CommitRequest,
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    ConsumerMemberDescription,
    FetchedOffset,
    GroupDescription,
    JoinRequest,
    JoinResult,
    SyncRequest,
    SyncResult,
)
from odradek.groups.placement import partition_for_group
from odradek.metadata.image import (
    GROUP_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
    Broker,
    ClusterImage,
    Endpoint,
    PartitionState,
    Topic,
)
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.headers import parse_response_header
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.join_group import JoinGroupRequest
from odradek.wire.messages.offset_commit import OffsetCommitResponse
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
)
from odradek.wire.messages.sync_group import SyncGroupRequest
from odradek.wire.offset_commit import OffsetCommit

TOPIC_ID = b"t" * 16
STATE = PartitionState(1, 0, (1,), (1,))
OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS, as Apache Kafka answers for groups."""


def image() -> ClusterImage:
    return ClusterImage("cluster").with_topics([Topic("t", TOPIC_ID, (STATE, STATE))])


def finished(answer: Any) -> Any:
    """The answer of a handler that may be a coroutine."""

    async def wait() -> Any:
        return await answer

    return asyncio.run(wait()) if isinstance(answer, Awaitable) else answer


# --- OffsetCommit ---


class Committing:
    """A coordinator that answers with fixed codes, and the client's connection."""

    def __init__(self, *codes: ErrorCode, failure: ErrorCode | None = None, version: int = 9) -> None:
        self._codes = codes
        self._failure = failure
        self.version = version
        self.commits: list[CommitRequest] = []
        self.frames: list[Any] = []
        self.closed: list[str] = []
        self.is_late = False
        self.throttled: list[int] = []
        self.late_checks = 0

    def is_late_commit(self, *_: object) -> bool:
        self.late_checks += 1
        return self.is_late

    def commit_offsets(self, commit: CommitRequest, reply: Any) -> None:
        self.commits.append(commit)
        assert not reply.done()
        if self._failure is not None:
            raise KafkaError(self._failure)
        reply.set_result(self._codes)
        assert reply.done()

    def commit(self, topics: Any, *, denied: Any = None, member_id: str = "m") -> Any:
        late = SimpleNamespace(answer=self.frames.extend)
        connection = SimpleNamespace(identifier=7, close=self.closed.append, later=lambda: late)
        services = SimpleNamespace(
            groups=self, image=image, quotas=SimpleNamespace(request=SimpleNamespace(active=False))
        )
        context: Any = SimpleNamespace(
            services=services, connection=connection, version=self.version, correlation_id=3, denied=denied
        )
        request = OffsetCommit("g", 5, member_id, "i", -1, topics)
        answer: Any = api_08_offset_commit.handle(request, context)
        if isinstance(answer, list):
            return self.decoded(answer[0])
        if answer is None:
            return None
        assert answer is late
        (frame,) = self.frames
        return self.decoded(frame)

    def decoded(self, frame: Any) -> list[int]:
        view = memoryview(bytes(frame))[4:]
        _, position = parse_response_header(view, ApiKey.OFFSET_COMMIT, self.version)
        response, _ = OffsetCommitResponse.decode(view, position, self.version)
        return [row.error_code for topic in response.topics for row in topic.partitions]


def rows(*indexes: int) -> list[tuple[int, int, int, str]]:
    return [(index, 10 + index, -1, "") for index in indexes]


def test_commit_is_answered_with_the_coordinators_codes() -> None:
    broker = Committing(ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE)
    assert broker.commit([("t", rows(0, 1))]) == [0, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    (commit,) = broker.commits
    assert [(each[0], each[1], each[2]) for each in commit.offsets] == [("t", 0, 10), ("t", 1, 11)]
    assert commit[:4] == ("g", "m", "i", 5)


def test_unknown_partitions_keep_their_places_among_committed_ones() -> None:
    broker = Committing(ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answered = broker.commit([("t", rows(0, 2)), ("x", rows(0)), ("t", rows(-1, 1))])
    assert answered == [0, unknown, unknown, unknown, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert [each[1] for each in broker.commits[0].offsets] == [0, 1]


def test_commit_of_unknown_partitions_asks_no_coordinator() -> None:
    broker = Committing()
    assert broker.commit([("x", rows(0)), ("t", rows(2))]) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert broker.commits == []


def test_commit_of_denied_topics_is_not_passed_on() -> None:
    broker = Committing(ErrorCode.NONE)
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert broker.commit([("t", rows(0))], denied=["t"]) == [denied]
    assert broker.commits == []
    assert broker.commit([("x", rows(0)), ("t", rows(1))], denied=["x"]) == [denied, 0]


def test_commit_by_id_knows_topics_by_their_ids() -> None:
    broker = Committing(ErrorCode.NONE, version=10)
    assert broker.commit([(TOPIC_ID, rows(0)), (b"x" * 16, rows(0))]) == [0, ErrorCode.UNKNOWN_TOPIC_ID]
    assert broker.commits[0].offsets[0][0] == "t"


def test_error_of_the_coordinator_is_that_of_all_partitions() -> None:
    broker = Committing(failure=ErrorCode.NOT_COORDINATOR)
    assert broker.commit([("t", rows(0, 1))]) == [ErrorCode.NOT_COORDINATOR] * 2


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_unknown_group_is_named_as_the_version_expects(version: int, code: ErrorCode) -> None:
    broker = Committing(ErrorCode.NONE, version=version)
    broker.commit([("t", rows(0))])
    assert code in broker.commits[0]


def test_commit_on_a_superseded_connection_closes_it() -> None:
    broker = Committing()
    broker.is_late = True
    assert broker.commit([("t", rows(0))]) is None
    assert broker.closed == ["'m' has continued on a newer connection"]
    broker = Committing(ErrorCode.NONE)
    broker.is_late = True
    assert broker.commit([("t", rows(0))], member_id="") == [0], "without a member there is no newer connection"
    assert broker.late_checks == 0


# --- OffsetFetch ---


class Offsets:
    """Committed offsets, or a failure."""

    def __init__(self, found: Any = (), failure: ErrorCode | None = None) -> None:
        self._found = found
        self._failure = failure
        self.asked: list[tuple[Any, ...]] = []

    async def fetch_offsets(self, *asked: Any) -> Any:
        self.asked.append(asked)
        if self._failure is not None:
            raise KafkaError(self._failure)
        return self._found

    def fetch(self, request: OffsetFetchRequest, version: int) -> Any:
        context: Any = SimpleNamespace(services=SimpleNamespace(groups=self, image=image), version=version)
        return finished(api_09_offset_fetch.handle(request, context))


def fetched(topics: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [
        (topic.name, row.partition_index, row.committed_offset, row.committed_leader_epoch, row.error_code)
        for topic in topics
        for row in topic.partitions
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_failed_offset_fetch_is_answered_as_the_version_allows(version: int) -> None:
    offsets = Offsets(failure=ErrorCode.NOT_COORDINATOR)
    request = OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0, 1])])
    response = offsets.fetch(request, version)
    if version >= 2:
        assert (response.error_code, response.topics) == (ErrorCode.NOT_COORDINATOR, [])
    else:
        assert fetched(response.topics) == [("t", index, -1, -1, ErrorCode.NOT_COORDINATOR) for index in (0, 1)]


def test_offsets_of_one_group_are_fetched_by_name() -> None:
    offsets = Offsets([("t", [FetchedOffset(1, 42, 3, "x")])])
    response = offsets.fetch(OffsetFetchRequest("g", None, require_stable=True), 7)
    assert fetched(response.topics) == [("t", 1, 42, 3, 0)]
    assert offsets.asked == [("g", None, True)]


def test_offsets_by_id_name_unknown_ids_with_an_error() -> None:
    offsets = Offsets([("t", [FetchedOffset(0, 42, 3, "x")])])
    topics = [OffsetFetchRequestGroupTopic("", TOPIC_ID, [0]), OffsetFetchRequestGroupTopic("", b"x" * 16, [5])]
    response = offsets.fetch(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", "m", 4, topics)]), 10)
    (group,) = response.groups
    assert [topic.topic_id for topic in group.topics] == [TOPIC_ID, b"x" * 16]
    assert [row[1:] for row in fetched(group.topics)] == [(0, 42, 3, 0), (5, -1, -1, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert offsets.asked == [("g", [("t", [0])], False, ("m", 4))]


@pytest.mark.parametrize(("version", "names"), [(9, ["t", "gone"]), (10, ["t"])])
def test_all_offsets_leave_out_deleted_topics_only_by_id(version: int, names: list[str]) -> None:
    offsets = Offsets([("t", [FetchedOffset(0, 42, 3, "")]), ("gone", [FetchedOffset(0, 7, 1, "")])])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
    (group,) = offsets.fetch(request, version).groups
    assert [topic.name for topic in group.topics] == names
    if version >= 10:
        assert group.topics[0].topic_id == TOPIC_ID


def test_asked_topic_that_is_deleted_is_answered_by_name() -> None:
    offsets = Offsets([("gone", [FetchedOffset(0, 7, 1, "")])])
    topics = [OffsetFetchRequestGroupTopic("gone", partition_indexes=[0])]
    (group,) = offsets.fetch(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)]), 9).groups
    assert fetched(group.topics) == [("gone", 0, 7, 1, 0)]


def test_error_of_one_group_is_its_own() -> None:
    offsets = Offsets(failure=ErrorCode.NOT_COORDINATOR)
    (group,) = offsets.fetch(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)]), 9).groups
    assert (group.group_id, group.error_code, group.topics) == ("g", ErrorCode.NOT_COORDINATOR, [])


# --- FindCoordinator ---


def find(version: int, *keys: str, kind: int = 0, listener: str = "PLAINTEXT", leader: int = 2) -> Any:
    states = tuple(STATE._replace(leader=leader if index == partition_for_group("g", 4) else 9) for index in range(4))
    names = (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC)
    found = ClusterImage("cluster").with_topics([Topic(name, name[:16].encode(), states) for name in names])
    found.brokers = {2: Broker(2, 1, None, {"PLAINTEXT": Endpoint("host", 9092, "PLAINTEXT")})}
    services = SimpleNamespace(image=lambda: found, unreachable=frozenset(), leadership=None)
    session = SimpleNamespace(listener_name=listener)
    context: Any = SimpleNamespace(services=services, session=session, version=version)
    request = FindCoordinatorRequest(keys[0] if version < 4 else "", kind, list(keys) if version >= 4 else [])
    return finished(api_10_find_coordinator.handle(request, context))


@pytest.mark.parametrize("kind", [0, 1])
def test_coordinator_is_the_leader_of_the_keys_partition(kind: int) -> None:
    only = find(3, "g", kind=kind)
    assert (only.error_code, only.node_id, only.host, only.port) == (0, 2, "host", 9092)
    assert only.coordinators == []
    (found,) = find(4, "g", kind=kind).coordinators
    assert (found.key, found.error_code, found.node_id, found.host, found.port) == ("g", 0, 2, "host", 9092)


def test_each_key_has_its_coordinator() -> None:
    keys = ["g", *(f"other-{index}" for index in range(8))]
    found = find(4, *keys).coordinators
    assert [each.key for each in found] == keys
    for each in found:
        is_led = partition_for_group(each.key, 4) == partition_for_group("g", 4)
        assert each.error_code == (0 if is_led else ErrorCode.COORDINATOR_NOT_AVAILABLE)


@pytest.mark.parametrize(("listener", "leader"), [("INTERNAL", 2), ("PLAINTEXT", -1)])
def test_coordinator_that_cannot_be_reached_is_not_available(listener: str, leader: int) -> None:
    response = find(3, "g", listener=listener, leader=leader)
    assert (response.error_code, response.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


def test_coordinator_of_an_unknown_kind_is_an_error_of_its_key() -> None:
    (found,) = find(4, "g", kind=2).coordinators
    assert found.error_code == ErrorCode.INVALID_REQUEST


# --- JoinGroup, SyncGroup ---


def join(version: int, result: JoinResult | ErrorCode, **fields: Any) -> tuple[JoinRequest, Any]:
    seen: list[JoinRequest] = []

    async def answer(request: JoinRequest) -> JoinResult:
        seen.append(request)
        if isinstance(result, ErrorCode):
            raise KafkaError(result)
        return result

    services = SimpleNamespace(groups=SimpleNamespace(join=answer))
    session = SimpleNamespace(peer_host="10.0.0.1")
    context: Any = SimpleNamespace(services=services, session=session, version=version, client_id=None)
    request = JoinGroupRequest("g", 10_000, member_id="m", protocol_type="consumer", **fields)
    response = finished(api_11_join_group.handle(request, context))
    return seen[0], response


@pytest.mark.parametrize(
    ("version", "name", "skips", "rebalance_ms"),
    [
        (0, "", False, 10_000),
        (1, "", False, 60_000),
        (6, "", False, 60_000),
        (7, None, False, 60_000),
        (9, None, True, 60_000),
    ],
)
def test_join_is_answered_as_its_version_expects(
    version: int, name: str | None, skips: bool, rebalance_ms: int
) -> None:
    result = JoinResult(ErrorCode.NONE, "m", 3, "consumer", None, "m", skip_assignment=True)
    seen, response = join(version, result, rebalance_timeout_ms=60_000)
    assert (response.protocol_name, response.skip_assignment) == (name, skips)
    assert (response.generation_id, response.leader, response.member_id) == (3, "m", "m")
    assert rebalance_ms in seen
    assert (seen.member_id_required, seen.can_skip_assignment) == (version >= 4, version >= 9)


@pytest.mark.parametrize(("code", "member_id"), [(ErrorCode.INVALID_GROUP_ID, "m"), (ErrorCode.NOT_COORDINATOR, "")])
def test_failed_join_names_the_member_only_of_an_invalid_group(code: ErrorCode, member_id: str) -> None:
    _, response = join(9, code)
    assert (response.error_code, response.member_id, response.generation_id) == (code, member_id, -1)


@pytest.mark.parametrize(
    ("version", "kind", "name", "is_passed"),
    [(4, None, None, True), (5, "consumer", "range", True), (5, None, "range", False), (5, "consumer", None, False)],
)
def test_sync_needs_its_protocol_from_version_5_on(
    version: int, kind: str | None, name: str | None, is_passed: bool
) -> None:
    seen: list[SyncRequest] = []

    async def sync(request: SyncRequest) -> SyncResult:
        seen.append(request)
        return SyncResult(ErrorCode.NONE, kind, name, b"mine")

    context: Any = SimpleNamespace(services=SimpleNamespace(groups=SimpleNamespace(sync=sync)), version=version)
    request = SyncGroupRequest("g", 3, "m", protocol_type=kind, protocol_name=name)
    response = finished(api_14_sync_group.handle(request, context))
    assert len(seen) == is_passed
    assert response.error_code == (0 if is_passed else ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert response.assignment == (b"mine" if is_passed else b"")


# --- DescribeGroups, ConsumerGroupDescribe ---


def describe(version: int, *group_ids: str, with_operations: bool = True, slice_ms: int = 10) -> Any:
    def describe_group(group_id: str) -> GroupDescription:
        if group_id == "denied":
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        known = group_id.startswith("g")
        error = ErrorCode.NONE if known else ErrorCode.GROUP_ID_NOT_FOUND
        return GroupDescription(error, group_id, "Stable" if known else "Dead", is_other=group_id == "other")

    async def scenario() -> Any:
        services = SimpleNamespace(
            groups=SimpleNamespace(describe_group=describe_group),
            long_work=LongWork(lambda: 0.0, slice_ms),
            quotas=SimpleNamespace(request=SimpleNamespace(active=False)),
        )
        context: Any = SimpleNamespace(services=services, version=version)
        answer: Any = api_15_describe_groups.handle(DescribeGroupsRequest(list(group_ids), with_operations), context)
        return await answer if isinstance(answer, Awaitable) else answer

    return asyncio.run(scenario())


@pytest.mark.parametrize("version", [5, 6])
def test_unknown_group_is_dead_and_an_error_from_version_6_on(version: int) -> None:
    groups = describe(version, "g", "x", "other", "denied").groups
    unknown = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0
    assert [each.error_code for each in groups] == [0, unknown, unknown, ErrorCode.GROUP_AUTHORIZATION_FAILED]
    assert [each.group_state for each in groups] == ["Stable", "Dead", "Dead", ""]
    messages = [each.error_message for each in groups]
    if version >= 6:
        assert messages[1:3] == ["Group x not found.", "Group other is not a classic group."]
    assert groups[0].authorized_operations == OPERATIONS
    assert groups[3].authorized_operations != OPERATIONS


def test_operations_are_answered_only_when_asked_for() -> None:
    assert describe(6, "g", with_operations=False).groups[0].authorized_operations != OPERATIONS


@pytest.mark.parametrize("count", [0, 1, 10, 11, 35])
def test_groups_are_described_in_slices_without_gaps(count: int) -> None:
    names = [f"g{index}" for index in range(count)]
    assert [each.group_id for each in describe(6, *names, slice_ms=0).groups] == names


def test_consumer_group_is_described_with_members_of_both_kinds() -> None:
    member = ConsumerMemberDescription(
        "m",
        "i",
        "r",
        4,
        "client",
        "/host",
        ("t",),
        None,
        {TOPIC_ID: frozenset({1, 0})},
        {b"x" * 16: frozenset({0})},
        False,
    )
    members = (member, member._replace(member_id="old", is_classic=True, regex="t.*"))

    def describe_consumer_group(group_id: str) -> ConsumerGroupDescription:
        if group_id != "g":
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "no such group")
        return ConsumerGroupDescription(ErrorCode.NONE, group_id, "Stable", 7, 6, "uniform", members)

    services = SimpleNamespace(groups=SimpleNamespace(describe_consumer_group=describe_consumer_group), image=image)
    context: Any = SimpleNamespace(services=services)
    for with_operations in (True, False):
        request = ConsumerGroupDescribeRequest(["g", "x", ""], with_operations)
        answer: Any = api_69_consumer_group_describe.handle(request, context)
        found, unknown, invalid = answer.groups
        assert (found.group_epoch, found.assignment_epoch, found.assignor_name) == (7, 6, "uniform")
        assert [each.member_type for each in found.members] == [1, 0]
        assert [each.subscribed_topic_regex for each in found.members] == ["", "t.*"]
        (assigned,) = found.members[0].assignment.topic_partitions
        assert (assigned.topic_name, assigned.partitions) == ("t", [0, 1])
        assert found.members[0].target_assignment.topic_partitions == [], "the topic is gone"
        assert (found.authorized_operations == OPERATIONS) is with_operations
        assert (unknown.error_code, unknown.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "no such group")
        assert invalid.error_code == ErrorCode.INVALID_GROUP_ID
        assert unknown.authorized_operations != OPERATIONS


# --- ConsumerGroupHeartbeat ---


def heartbeat(settings: dict[str, str] | None = None, **fields: Any) -> tuple[list[ConsumerHeartbeat], Any]:
    seen: list[ConsumerHeartbeat] = []

    def consumer_heartbeat(found: ConsumerHeartbeat) -> None:
        seen.append(found)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    services = SimpleNamespace(
        authorization=None,
        config=BrokerConfig(settings or {}),
        image=ClusterImage,
        groups=SimpleNamespace(consumer_heartbeat=consumer_heartbeat),
    )
    session = SimpleNamespace(peer_host="10.0.0.1")
    context: Any = SimpleNamespace(services=services, client_id="c", session=session, version=1)
    known: dict[str, Any] = {
        "rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["t"], "topic_partitions": [], **fields
    }  # fmt: skip
    request = ConsumerGroupHeartbeatRequest("g", "member", 0, **known)
    return seen, api_68_consumer_group_heartbeat.handle(request, context)


def test_heartbeat_needs_the_consumer_protocol() -> None:
    seen, answer = heartbeat({"group.coordinator.rebalance.protocols": "classic"})
    assert (seen, answer.error_code) == ([], ErrorCode.UNSUPPORTED_VERSION)


def test_invalid_heartbeat_does_not_reach_the_group() -> None:
    seen, answer = heartbeat(rebalance_timeout_ms=-1)
    assert (seen, answer.error_code) == ([], ErrorCode.INVALID_REQUEST)


def test_group_learns_which_partitions_a_member_owns() -> None:
    topics = [ConsumerGroupHeartbeatRequestTopicPartitions(bytes([n]) * 16, [0] * n) for n in (0, 2)]
    assert api_68_consumer_group_heartbeat._owned(topics) == {b"\x02" * 16: frozenset({0})}
    assert api_68_consumer_group_heartbeat._owned(None) is None
    assert api_68_consumer_group_heartbeat._owned([]) == {}
