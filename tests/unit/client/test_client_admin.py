"""The admin client against scripted brokers, and how all clients take Kafka's own names."""

import asyncio
from typing import Any

import pytest

from odradek.client.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import ConfigError
from odradek.client.producer.producer import Producer
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
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
