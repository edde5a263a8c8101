"""The admin client's calls for share and streams groups, topic ids, voters and offsets, against scripted brokers."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.client.admin import (
    AclOperation,
    Admin,
    GroupState,
    IsolationLevel,
    OffsetSpec,
    RaftVoterEndpoint,
    ShareOffset,
    StreamsTask,
    raise_first,
)
from odradek.client.errors import UnsupportedByBroker
from odradek.client.network.metadata import TopicInfo
from odradek.records.topic_partition import TopicPartition
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.add_raft_voter import AddRaftVoterResponse
from odradek.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from odradek.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from odradek.wire.messages.delete_topics import DeleteTopicsResponse, DeleteTopicsResponseTopic
from odradek.wire.messages.describe_cluster import DescribeClusterResponse, DescribeClusterResponseBroker
from odradek.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from odradek.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.wire.messages.share_group_describe import (
    ShareGroupDescribeResponse,
    ShareGroupDescribeResponseAssignment,
    ShareGroupDescribeResponseGroup,
    ShareGroupDescribeResponseMember,
    ShareGroupDescribeResponseTopicPartitions,
)
from odradek.wire.messages.streams_group_describe import (
    StreamsGroupDescribeResponse,
    StreamsGroupDescribeResponseAssignment,
    StreamsGroupDescribeResponseEndpoint,
    StreamsGroupDescribeResponseGroup,
    StreamsGroupDescribeResponseMember,
    StreamsGroupDescribeResponseSubtopology,
    StreamsGroupDescribeResponseTaskIds,
    StreamsGroupDescribeResponseTopology,
)
from tests.unit.client.consumers import filled
from tests.unit.client.fake_cluster import OPTIONS, FakeCluster

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def answer(response: Any) -> Callable[..., Any]:
    return lambda broker, request, version, proper: response


def run(cluster: FakeCluster, body: Callable[[Admin], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), Admin(network=cluster, **{**OPTIONS, **options}) as admin:
            await body(admin)

    asyncio.run(main())


# --- offsets ---


def test_offsets_are_listed_by_spec() -> None:
    async def body(admin: Admin) -> None:
        found = await admin.list_offsets({FIRST: OffsetSpec.LATEST, SECOND: OffsetSpec.EARLIEST})
        assert [each.offset for each in raise_first(found).values()] == [20, 0]

    run(filled(FakeCluster(2, {"t": 2})), body)


def test_offset_of_a_missing_partition_is_an_error_of_its_own() -> None:
    async def body(admin: Admin) -> None:
        found = await admin.list_offsets(
            {FIRST: OffsetSpec.LATEST, TopicPartition("t", 9): OffsetSpec.LATEST},
            isolation_level=IsolationLevel.READ_COMMITTED,
        )
        first, missing = found.values()
        assert not isinstance(first, KafkaError)
        assert first.offset == 20
        assert isinstance(missing, KafkaError)
        assert missing.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(filled(FakeCluster(1, {"t": 1})), body, default_api_timeout_ms=200)


def test_unknown_isolation_level_raises_value_error() -> None:
    async def body(admin: Admin) -> None:
        with pytest.raises(ValueError, match="7 is not a valid IsolationLevel"):
            await admin.list_offsets({FIRST: OffsetSpec.LATEST}, isolation_level=7)  # type: ignore[arg-type]

    run(FakeCluster(), body)


# --- topic ids ---


def test_topics_are_described_by_id() -> None:
    cluster = FakeCluster(1, {"t": 3})

    def by_id(broker: Any, request: Any, version: int, proper: Any) -> Any:
        wanted = [each.topic_id for each in request.topics]
        request.topics = None
        response = proper()
        assert wanted == [cluster.topic_id("t"), bytes(16)[:-1] + b"\7"]
        return response

    async def body(admin: Admin) -> None:
        known, unknown = cluster.topic_id("t"), bytes(16)[:-1] + b"\7"
        await admin.cluster.connections.any()
        found = await admin.describe_topics_by_id([known, unknown])
        topic = found[known]
        assert isinstance(topic, TopicInfo)
        assert (topic.name, len(topic.partitions)) == ("t", 3)
        error = found[unknown]
        assert isinstance(error, KafkaError)
        assert error.code == ErrorCode.UNKNOWN_TOPIC_ID

    cluster.script(ApiKey.METADATA, by_id)
    run(cluster, body)


def test_topics_are_deleted_by_id() -> None:
    cluster = FakeCluster()
    deleted, failed = b"a" * 16, b"b" * 16
    cluster.script(
        ApiKey.DELETE_TOPICS,
        answer(
            DeleteTopicsResponse(
                0,
                [
                    DeleteTopicsResponseTopic("t", deleted, 0, None),
                    DeleteTopicsResponseTopic(None, failed, ErrorCode.UNKNOWN_TOPIC_ID, None),
                ],
            )
        ),
    )

    async def body(admin: Admin) -> None:
        found = await admin.delete_topics_by_id([deleted, failed])
        assert found[deleted] is None
        error = found[failed]
        assert error is not None
        assert error.code == ErrorCode.UNKNOWN_TOPIC_ID

    run(cluster, body)
    [request] = [each for _, key, _, each in cluster.requests if key == ApiKey.DELETE_TOPICS]
    assert [(each.name, each.topic_id) for each in request.topics] == [(None, deleted), (None, failed)]


def test_old_broker_cannot_delete_by_id() -> None:
    cluster = FakeCluster()
    cluster.max_versions[ApiKey.DELETE_TOPICS] = 5

    async def body(admin: Admin) -> None:
        with pytest.raises(UnsupportedByBroker, match="by name only") as caught:
            await admin.delete_topics_by_id([b"a" * 16])
        assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION

    run(cluster, body)


# --- groups ---


def test_share_group_is_described_with_its_members() -> None:
    cluster = FakeCluster()
    member = ShareGroupDescribeResponseMember(
        "m", "rack", 4, "client", "/127.0.0.1", ["t"],
        ShareGroupDescribeResponseAssignment([ShareGroupDescribeResponseTopicPartitions(bytes(16), "t", [0, 1])]),
    )  # fmt: skip
    group = ShareGroupDescribeResponseGroup(0, None, "g", "Stable", 5, 5, "simple", [member])
    missing = ShareGroupDescribeResponseGroup(ErrorCode.GROUP_ID_NOT_FOUND, "no such group", "h")
    cluster.script(
        ApiKey.SHARE_GROUP_DESCRIBE,
        answer(ShareGroupDescribeResponse(0, [group])),
        answer(ShareGroupDescribeResponse(0, [missing])),
    )

    async def body(admin: Admin) -> None:
        found = await admin.share_groups.describe(["g", "h"])
        described, error = found["g"], found["h"]
        assert not isinstance(described, KafkaError)
        assert (described.state, described.epoch, described.coordinator_id) == (GroupState.STABLE, 5, 1)
        assert described.members[0].assignment == [FIRST, SECOND]
        assert isinstance(error, KafkaError)
        assert error.code == ErrorCode.GROUP_ID_NOT_FOUND

    run(cluster, body)


def test_share_group_offsets_have_an_error_for_each_partition() -> None:
    cluster = FakeCluster()
    partitions = [
        DescribeShareGroupOffsetsResponsePartition(0, 17, 2, 3),
        DescribeShareGroupOffsetsResponsePartition(1, -1, 0, -1),
        DescribeShareGroupOffsetsResponsePartition(2, -1, 0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "none"),
    ]
    topic = DescribeShareGroupOffsetsResponseTopic("t", bytes(16), partitions)
    group = DescribeShareGroupOffsetsResponseGroup("g", [topic])
    cluster.script(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, answer(DescribeShareGroupOffsetsResponse(0, [group])))

    async def body(admin: Admin) -> None:
        found = await admin.share_groups.offsets("g")
        assert found[FIRST] == ShareOffset(17, 2, 3)
        assert SECOND not in found
        assert isinstance(found[TopicPartition("t", 2)], KafkaError)

    run(cluster, body)


def test_share_group_offsets_are_altered_and_deleted() -> None:
    cluster = FakeCluster()
    altered = AlterShareGroupOffsetsResponseTopic("t", bytes(16), [AlterShareGroupOffsetsResponsePartition(0)])
    deleted = DeleteShareGroupOffsetsResponseTopic("t", bytes(16))
    cluster.script(ApiKey.ALTER_SHARE_GROUP_OFFSETS, answer(AlterShareGroupOffsetsResponse(responses=[altered])))
    cluster.script(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        answer(DeleteShareGroupOffsetsResponse(responses=[deleted])),
        answer(DeleteShareGroupOffsetsResponse(error_code=ErrorCode.NON_EMPTY_GROUP, error_message="has members")),
    )

    async def body(admin: Admin) -> None:
        assert await admin.share_groups.alter_offsets("g", {FIRST: 5}) == {FIRST: None}
        assert await admin.share_groups.delete_offsets("g", ["t"]) == {"t": None}
        with pytest.raises(KafkaError, match="has members"):
            await admin.share_groups.delete_offsets("g", ["t"])

    run(cluster, body)


def test_offsets_of_a_group_have_an_outcome_for_each_partition() -> None:
    cluster = FakeCluster()

    def committed(*codes: int) -> OffsetCommitResponse:
        parts = [OffsetCommitResponsePartition(number, code) for number, code in enumerate(codes)]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic("t", partitions=parts)])

    cluster.script(
        ApiKey.OFFSET_COMMIT,
        answer(committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)),
        answer(committed(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
        answer(committed(ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID)),
    )
    second = TopicPartition("t", 1)

    async def body(admin: Admin) -> None:
        done = await admin.groups.alter_offsets("g", {FIRST: 5, second: 6})
        assert done[FIRST] is None
        assert getattr(done[second], "code", None) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
            await admin.groups.alter_offsets("g", {FIRST: 5, second: 6})
        assert await admin.groups.alter_offsets("g", {}) == {}

    run(cluster, body)


def test_cluster_is_described_with_fenced_brokers_and_operations() -> None:
    cluster = FakeCluster()
    brokers = [DescribeClusterResponseBroker(2, "b", 9092, None, True), DescribeClusterResponseBroker(1, "a", 9092)]
    bits = 1 << AclOperation.ALTER | 1 << AclOperation.DESCRIBE
    answered = DescribeClusterResponse(cluster_id="c", controller_id=1, brokers=brokers)
    answered.cluster_authorized_operations = bits
    cluster.script(ApiKey.DESCRIBE_CLUSTER, answer(answered), answer(answered))

    async def body(admin: Admin) -> None:
        found = await admin.describe_cluster(include_fenced=True, include_authorized_operations=True)
        assert [each.node_id for each in found.brokers] == [1, 2]
        assert found.fenced == {2}
        assert found.authorized_operations == {AclOperation.ALTER, AclOperation.DESCRIBE}
        assert (await admin.describe_cluster()).authorized_operations is None

    run(cluster, body)


def test_streams_group_is_described_with_its_tasks() -> None:
    cluster = FakeCluster()
    tasks = StreamsGroupDescribeResponseAssignment([StreamsGroupDescribeResponseTaskIds("0", [0, 1])])
    member = StreamsGroupDescribeResponseMember(
        "m", 3, user_endpoint=StreamsGroupDescribeResponseEndpoint("here", 8080), assignment=tasks,
        target_assignment=tasks,
    )  # fmt: skip
    topology = StreamsGroupDescribeResponseTopology(2, [StreamsGroupDescribeResponseSubtopology("0", ["t"])])
    group = StreamsGroupDescribeResponseGroup(0, None, "g", "Stable", 3, 3, topology, [member])
    cluster.script(ApiKey.STREAMS_GROUP_DESCRIBE, answer(StreamsGroupDescribeResponse(0, [group])))

    async def body(admin: Admin) -> None:
        described = (await admin.streams_groups.describe(["g"]))["g"]
        assert not isinstance(described, KafkaError)
        assert described.topology_epoch == 2
        assert described.subtopologies[0].source_topics == ["t"]
        assert described.members[0].assignment.active == [StreamsTask("0", 0), StreamsTask("0", 1)]
        assert described.members[0].endpoint == ("here", 8080)

    run(cluster, body)


@pytest.mark.parametrize("key", [ApiKey.SHARE_GROUP_DESCRIBE, ApiKey.STREAMS_GROUP_DESCRIBE])
def test_broker_without_such_groups_is_unsupported(key: ApiKey) -> None:
    cluster = FakeCluster()
    cluster.absent.add(key)

    async def body(admin: Admin) -> None:
        groups = admin.share_groups if key == ApiKey.SHARE_GROUP_DESCRIBE else admin.streams_groups
        with pytest.raises(UnsupportedByBroker, match="the broker does not offer") as caught:
            await groups.describe(["g"])
        assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION

    run(cluster, body)


def test_raft_voter_is_added_with_its_listeners() -> None:
    cluster = FakeCluster()
    cluster.script(ApiKey.ADD_RAFT_VOTER, answer(AddRaftVoterResponse()))

    async def body(admin: Admin) -> None:
        await admin.raft_voters.add(4, b"d" * 16, [RaftVoterEndpoint("CONTROLLER", "there", 9093)])

    run(cluster, body)
    request = cluster.requests[-1][3]
    assert (request.voter_id, request.voter_directory_id) == (4, b"d" * 16)
    assert [(each.name, each.host, each.port) for each in request.listeners] == [("CONTROLLER", "there", 9093)]
