"""DescribeTopicPartitions: pages of partitions, cursors, and topics that one may not see."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.api_75_describe_topic_partitions import handle
from odradek.metadata.image import Broker, ClusterImage, PartitionState, Topic
from odradek.wire.acls import AclOperation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsRequestTopic,
    DescribeTopicPartitionsResponse,
)

SIZES = {"a": 3, "b": 2, "c": 1}
LIMIT = 10
OPERATIONS = 77


class Access:
    """May describe the named topics."""

    def __init__(self, *allowed: str) -> None:
        self._allowed = allowed
        self.quiet: list[tuple[str, bool]] = []

    def allows(self, operation: AclOperation, kind: ResourceType, name: str, *, quiet: bool = False) -> bool:
        assert (operation, kind) == (AclOperation.DESCRIBE, ResourceType.TOPIC)
        self.quiet.append((name, quiet))
        return name in self._allowed

    def operations(self, kind: ResourceType, _name: str) -> int:
        assert kind is ResourceType.TOPIC
        return OPERATIONS


def image_of(sizes: dict[str, int]) -> ClusterImage:
    state = PartitionState(1, 7, (1, 2), (1,))
    topics = [Topic(name, name.encode() * 16, (state,) * size) for name, size in sizes.items()]
    image = ClusterImage("cluster").with_topics(topics)
    image.brokers = {1: Broker(1, 1, None, {})}
    return image


def ask(
    *topics: str,
    cursor: tuple[str, int] | None = None,
    limit: int = 100,
    access: Access | None = None,
    image: ClusterImage | None = None,
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest([DescribeTopicPartitionsRequestTopic(name) for name in topics], limit)
    if cursor is not None:
        request.cursor = DescribeTopicPartitionsRequestCursor(*cursor)
    found = image or image_of(SIZES)
    services = SimpleNamespace(
        authorization=access,
        config=SimpleNamespace(number={"max.request.partition.size.limit": LIMIT}.__getitem__),
        image=lambda: found,
        leadership=None,
        unreachable=frozenset(),
    )
    context: Any = SimpleNamespace(services=services, access=access)
    answer: Any = handle(request, context)
    assert isinstance(answer, DescribeTopicPartitionsResponse)
    return answer


def shape(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, int, list[int]]]:
    """(name, error, partitions) of each topic."""
    return [
        (topic.name, topic.error_code, [partition.partition_index for partition in topic.partitions])
        for topic in response.topics
    ]


def next_of(response: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


def test_all_topics_are_described_in_the_order_of_their_names() -> None:
    response = ask(image=image_of({"c": 1, "a": 3, "b": 2}))
    assert shape(response) == [("a", 0, [0, 1, 2]), ("b", 0, [0, 1]), ("c", 0, [0])]
    assert next_of(response) is None


def test_asked_topics_are_described_once_and_unknown_ones_with_an_error() -> None:
    response = ask("c", "x", "c", "a", "not valid")
    assert shape(response) == [
        ("a", 0, [0, 1, 2]),
        ("c", 0, [0]),
        ("not valid", ErrorCode.INVALID_TOPIC_EXCEPTION, []),
        ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
    ]


@pytest.mark.parametrize(
    ("limit", "topics", "following"),
    [
        (1, [("a", 0, [0])], ("a", 1)),
        (2, [("a", 0, [0, 1])], ("a", 2)),
        (3, [("a", 0, [0, 1, 2])], ("b", 0)),
        (4, [("a", 0, [0, 1, 2]), ("b", 0, [0])], ("b", 1)),
        (5, [("a", 0, [0, 1, 2]), ("b", 0, [0, 1])], ("c", 0)),
        (6, [("a", 0, [0, 1, 2]), ("b", 0, [0, 1]), ("c", 0, [0])], None),
    ],
)
def test_page_ends_at_its_limit(
    limit: int, topics: list[tuple[str, int, list[int]]], following: tuple[str, int] | None
) -> None:
    response = ask(limit=limit)
    assert shape(response) == topics
    assert next_of(response) == following


@pytest.mark.parametrize("limit", range(1, 7))
def test_pages_follow_each_other_without_gaps(limit: int) -> None:
    found: list[tuple[str | None, int]] = []
    cursor: tuple[str, int] | None = None
    for _ in range(10):
        response = ask(limit=limit, cursor=cursor)
        page = [(name, index) for name, _, indexes in shape(response) for index in indexes]
        assert len(page) <= limit
        found += page
        cursor = next_of(response)
        if cursor is None:
            break
    assert found == [(name, index) for name, size in SIZES.items() for index in range(size)]


def test_brokers_limit_holds_where_the_request_has_more() -> None:
    response = ask(limit=LIMIT + 5, image=image_of({"a": LIMIT + 3}))
    assert shape(response) == [("a", 0, list(range(LIMIT)))]
    assert next_of(response) == ("a", LIMIT)


@pytest.mark.parametrize("limit", [0, -1])
def test_page_has_a_partition_whatever_the_limit_of_the_request(limit: int) -> None:
    """As in Apache Kafka: a client that repeats with the cursor comes to an end."""
    response = ask(limit=limit)
    assert shape(response)[0][2] == [0]
    assert next_of(response) is not None


@pytest.mark.parametrize("cursor", ["bb", "d"])
def test_cursor_in_a_topic_that_the_request_does_not_list_is_rejected(cursor: str) -> None:
    with pytest.raises(KafkaError) as raised:
        ask("b", "c", cursor=(cursor, 0))
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    assert shape(ask("b", "c", cursor=("c", 0))) == [("c", 0, [0])]


def test_cursor_of_a_topic_that_has_gone_begins_with_the_next() -> None:
    assert shape(ask(cursor=("aa", 2))) == [("b", 0, [0, 1]), ("c", 0, [0])]
    assert shape(ask(cursor=("b", 1))) == [("b", 0, [1]), ("c", 0, [0])]
    assert shape(ask(cursor=("x", 1))) == []


def test_cursor_beyond_the_partitions_of_its_topic_continues_with_the_next() -> None:
    response = ask(cursor=("b", 5), limit=1)
    assert shape(response) == [("b", 0, []), ("c", 0, [0])]
    assert next_of(response) is None


def test_cursor_of_a_negative_partition_is_rejected() -> None:
    with pytest.raises(KafkaError) as raised:
        ask(cursor=("a", -1))
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    assert shape(ask(cursor=("c", 0))) == [("c", 0, [0])]


def test_partition_shows_leader_isr_and_offline_replicas() -> None:
    (topic,) = ask("c").topics
    assert (topic.topic_id, topic.is_internal) == (b"c" * 16, False)
    (partition,) = topic.partitions
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 7)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1, 2], [1], [2])


def test_partition_of_a_dead_leader_has_none() -> None:
    image = image_of({"c": 1})
    image.brokers = {2: Broker(2, 1, None, {})}
    (partition,) = ask("c", image=image).topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert partition.offline_replicas == [1]


def test_list_of_all_topics_leaves_out_those_that_one_may_not_see() -> None:
    access = Access("a", "c")
    response = ask(access=access)
    assert [name for name, _, _ in shape(response)] == ["a", "c"]
    assert access.quiet == [("a", True), ("b", True), ("c", True)], "they were not asked for by name: no audit record"
    assert [topic.topic_authorized_operations for topic in response.topics] == [OPERATIONS] * 2


def test_asked_topic_that_one_may_not_see_is_denied() -> None:
    access = Access("a")
    response = ask("a", "b", "x", access=access)
    assert shape(response) == [
        ("a", 0, [0, 1, 2]),
        ("b", ErrorCode.TOPIC_AUTHORIZATION_FAILED, []),
        ("x", ErrorCode.TOPIC_AUTHORIZATION_FAILED, []),
    ]
    assert access.quiet == [("a", False), ("b", False), ("x", False)]
    operations = [topic.topic_authorized_operations for topic in response.topics]
    assert operations[0] == OPERATIONS
    assert OPERATIONS not in operations[1:]


def test_everything_is_allowed_without_an_authorizer() -> None:
    (topic,) = ask("a").topics
    assert topic.topic_authorized_operations == sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
