"""The admin client against scripted brokers, and how all clients take Kafka's own names."""

import asyncio
from typing import Any

import pytest

from odradek.client.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import ConfigError
from odradek.client.model import EARLIEST
from odradek.client.producer.producer import Producer
from odradek.records.topic_partition import TopicPartition
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.delete_records import (
    DeleteRecordsResponse,
    DeleteRecordsResponsePartition,
    DeleteRecordsResponseTopic,
)
from odradek.wire.messages.describe_producers import (
    DescribeProducersResponse,
    DescribeProducersResponsePartition,
    DescribeProducersResponseTopic,
)
from odradek.wire.messages.leave_group import LeaveGroupRequestMember, LeaveGroupResponse, LeaveGroupResponseMember
from tests.unit.client.fake_cluster import OPTIONS, FakeCluster


def test_static_members_are_removed_by_their_instance_ids() -> None:
    cluster = FakeCluster()
    asked: list[list[LeaveGroupRequestMember]] = []

    def answer(broker: Any, request: Any, version: int, proper: Any) -> Any:
        asked.append(request.members)
        gone = LeaveGroupResponseMember(group_instance_id="gone", error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        return LeaveGroupResponse(members=[LeaveGroupResponseMember(group_instance_id="here"), gone])

    cluster.script(ApiKey.LEAVE_GROUP, lambda *_: LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR), answer)

    async def body() -> None:
        async with Admin(network=cluster, **OPTIONS) as admin:
            removed = await admin.groups.remove_members("g", ["here", "gone"])
        assert removed["here"] is None
        assert removed["gone"] is not None
        assert removed["gone"].code == ErrorCode.UNKNOWN_MEMBER_ID

    asyncio.run(body())
    assert [[(each.member_id, each.group_instance_id) for each in members] for members in asked] == [
        [("", "here"), ("", "gone")]
    ]


@pytest.mark.parametrize("client", [Admin, Consumer, Producer])
def test_kafkas_names_with_dots(client: Any) -> None:
    options = {"bootstrap.servers": "h:1", "client.id": "me", "request.timeout.ms": 1234}
    made = client.from_config(options, network=FakeCluster())

    async def body() -> None:
        async with made:
            found = made.cluster.options
            assert (found["client_id"], found["request_timeout_ms"]) == ("me", 1234)

    asyncio.run(body())
    with pytest.raises(ConfigError, match="no_such"):
        client.from_config({**options, "no.such": 1})


def test_calls_beside_each_other_describe_their_own_topics() -> None:
    async def body() -> None:
        async with Admin(network=FakeCluster(topics={"a": 1, "b": 2}), **OPTIONS) as admin:
            first, everything, second = await asyncio.gather(
                admin.describe_topics(["a", "absent"]), admin.list_topics(), admin.describe_topics(["b"])
            )
        counts = {
            name: found.code if isinstance(found, KafkaError) else len(found.partitions)
            for name, found in {**first, **second}.items()
        }
        assert counts == {"a": 1, "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "b": 2}
        assert everything == ["a", "b"]

    asyncio.run(body())


def deleted(broker: Any, request: Any, version: int, proper: Any) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponseTopic(
                topic.name, [DeleteRecordsResponsePartition(each.partition_index, 7) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def described(broker: Any, request: Any, version: int, proper: Any) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponseTopic(
                topic.name, [DescribeProducersResponsePartition(each) for each in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


@pytest.mark.parametrize("dead", [False, True], ids=["no leader", "a leader that cannot be reached"])
def test_partition_without_a_leader_fails_alone(dead: bool) -> None:
    """The others are served although it comes first, and although it does not pass before the call's time is over."""
    cluster = FakeCluster(brokers=2, topics={"t": 2})
    cluster.move_leader("t", 0, 2 if dead else -1)
    cluster.move_leader("t", 1, 1)
    places = [TopicPartition("t", 0), TopicPartition("t", 1)]

    async def body() -> None:
        async with Admin(network=cluster, **OPTIONS, default_api_timeout_ms=100) as admin:
            await admin.describe_topics(["t"])
            if dead:
                cluster.stop(2)
            cluster.script(ApiKey.DELETE_RECORDS, deleted)
            records = await admin.delete_records(dict.fromkeys(places, 7))
            cluster.script(ApiKey.DESCRIBE_PRODUCERS, described)
            producers = await admin.transactions.describe_producers(places)
            offsets = await admin.list_offsets(dict.fromkeys(places, EARLIEST))
        assert [answer[places[1]] for answer in (records, producers)] == [7, []]
        assert not isinstance(offsets[places[1]], KafkaError)
        for answer in (records, producers, offsets):
            assert isinstance(answer[places[0]], KafkaError)

    asyncio.run(body())
