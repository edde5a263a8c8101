"""The answer to a request that failed as a whole."""

from __future__ import annotations

import typing
from typing import Any

import pytest

from odradek.api.requests.declarations import DECLARATIONS
from odradek.api.requests.failures import failure_response
from odradek.wire.apis import APIS, ApiKey, request_class, response_class
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import add_partitions_to_txn as add_partitions
from odradek.wire.messages import (
    alter_user_scram_credentials as scram,
)
from odradek.wire.messages import delete_topics, describe_groups, find_coordinator, list_offsets, offset_commit
from odradek.wire.primitives import EncodeError

FAILED = ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("key", sorted(DECLARATIONS))
def test_every_served_api_can_say_that_it_failed_in_every_version(key: int) -> None:
    for version in range(APIS[key].min_version, APIS[key].max_version + 1):
        response = failure_response(key, request_class(key)(), version, FAILED)
        out = bytearray()
        response.encode(out, version)
        assert type(response).decode(memoryview(out), 0, version)[1] == len(out)


def _asking(kind: type[Any], version: int) -> Any:
    """A message that names one of everything that this version has room for."""
    made = kind()
    hints = typing.get_type_hints(kind.__init__)
    for name in made.__slots__:
        before = getattr(made, name)
        setattr(made, name, _one(hints[name], version, before))
        try:
            made.encode(bytearray(), version)
        except EncodeError:
            setattr(made, name, before)
    return made


def _one(hint: Any, version: int, otherwise: Any) -> Any:
    for option in (hint, *typing.get_args(hint)):
        if typing.get_origin(option) is list:
            return [_one(typing.get_args(option)[0], version, None)]
        if hasattr(option, "encode") and hasattr(option, "__slots__"):
            return _asking(option, version)
        if option in (str, bytes, int):
            return {str: "a", bytes: b"i" * 16, int: 1}[option]
    return otherwise


def _codes(message: Any) -> list[int]:
    if isinstance(message, list):
        return [code for each in message for code in _codes(each)]
    found: list[int] = []
    for name in getattr(message, "__slots__", ()):
        value = getattr(message, name)
        found += [value] if name.endswith("error_code") else _codes(value)
    return found


@pytest.mark.parametrize("words", ["why", None])
@pytest.mark.parametrize("key", sorted(set(DECLARATIONS) - {ApiKey.FETCH}))
def test_the_client_sees_the_code_in_every_version(key: int, words: str | None) -> None:
    # Fetch has an answer of its own (`Endpoint.failed`).
    for version in range(APIS[key].min_version, APIS[key].max_version + 1):
        response = failure_response(key, _asking(request_class(key), version), version, ErrorCode.NOT_CONTROLLER, words)
        out = bytearray()
        response.encode(out, version)
        seen, _ = response_class(key).decode(memoryview(out), 0, version)
        assert ErrorCode.NOT_CONTROLLER in _codes(seen), f"version {version}: {seen}"


@pytest.mark.parametrize("version", [0, 3])
def test_producer_learns_that_none_of_its_partitions_was_added(version: int) -> None:
    # Without an entry, and old versions have no code of the whole, it takes them for added and writes to them.
    topics = [
        add_partitions.AddPartitionsToTxnRequestTopic("a", [0, 2]),
        add_partitions.AddPartitionsToTxnRequestTopic("b", [1]),
    ]
    request = add_partitions.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=1000,
        v3_and_below_topics=topics,
    )
    out = bytearray()
    failure_response(ApiKey.ADD_PARTITIONS_TO_TXN, request, version, ErrorCode.NOT_COORDINATOR).encode(out, version)
    answer, _ = add_partitions.AddPartitionsToTxnResponse.decode(memoryview(out), 0, version)
    assert [
        (topic.name, [(each.partition_index, each.partition_error_code) for each in topic.results_by_partition])
        for topic in answer.results_by_topic_v3_and_below
    ] == [
        ("a", [(0, ErrorCode.NOT_COORDINATOR), (2, ErrorCode.NOT_COORDINATOR)]),
        ("b", [(1, ErrorCode.NOT_COORDINATOR)]),
    ]


def test_a_version_without_room_for_words_has_the_code() -> None:
    request = describe_groups.DescribeGroupsRequest(["g"])
    assert [
        (group.group_id, group.error_code, group.error_message)
        for version in (5, 6)
        for group in failure_response(ApiKey.DESCRIBE_GROUPS, request, version, FAILED, "why").groups
    ] == [("g", FAILED, None), ("g", FAILED, "why")]


def test_partitions_of_the_request_are_repeated_with_the_error() -> None:
    request = list_offsets.ListOffsetsRequest(
        topics=[
            list_offsets.ListOffsetsRequestTopic(
                "a", [list_offsets.ListOffsetsRequestPartition(3), list_offsets.ListOffsetsRequestPartition(4)]
            )
        ]
    )
    response = failure_response(ApiKey.LIST_OFFSETS, request, 5, FAILED)
    assert [
        (topic.name, [(partition.partition_index, partition.error_code) for partition in topic.partitions])
        for topic in response.topics
    ] == [("a", [(3, FAILED), (4, FAILED)])]


def test_a_commit_names_each_partition() -> None:
    request = offset_commit.OffsetCommitRequest(
        "g",
        topics=[
            offset_commit.OffsetCommitRequestTopic("a", partitions=[offset_commit.OffsetCommitRequestPartition(1)])
        ],
    )
    response = failure_response(ApiKey.OFFSET_COMMIT, request, 8, ErrorCode.NOT_COORDINATOR)
    assert response.topics[0].name == "a"
    assert response.topics[0].partitions[0].partition_index == 1
    assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR


def test_plain_names_become_entries() -> None:
    request = describe_groups.DescribeGroupsRequest(["g1", "g2"])
    response = failure_response(ApiKey.DESCRIBE_GROUPS, request, 5, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert [(group.group_id, group.error_code) for group in response.groups] == [
        ("g1", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("g2", ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ]


def test_an_error_of_the_whole_goes_where_the_version_has_room_for_it() -> None:
    request = find_coordinator.FindCoordinatorRequest(key="g", coordinator_keys=["g"])
    old = failure_response(ApiKey.FIND_COORDINATOR, request, 2, FAILED, "why")
    assert (old.error_code, old.error_message) == (FAILED, "why")
    new = failure_response(ApiKey.FIND_COORDINATOR, request, 4, FAILED, "why")
    assert (new.error_code, new.error_message) == (0, None)
    assert [(c.key, c.error_code, c.error_message) for c in new.coordinators] == [("g", FAILED, "why")]


def test_each_topic_that_was_to_be_deleted_is_answered() -> None:
    # Without an entry a client treats the topic as unanswered, or as deleted.
    old = delete_topics.DeleteTopicsRequest(topic_names=["a", "b"])
    answered = failure_response(ApiKey.DELETE_TOPICS, old, 5, ErrorCode.NOT_CONTROLLER).responses
    assert [(each.name, each.error_code) for each in answered] == [
        ("a", ErrorCode.NOT_CONTROLLER),
        ("b", ErrorCode.NOT_CONTROLLER),
    ]
    by_id = delete_topics.DeleteTopicsRequestState(None, b"i" * 16)
    new = delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicsRequestState("a"), by_id])
    answered = failure_response(ApiKey.DELETE_TOPICS, new, 6, ErrorCode.REQUEST_TIMED_OUT, "why").responses
    assert [(each.name, each.topic_id, each.error_code, each.error_message) for each in answered] == [
        ("a", bytes(16), ErrorCode.REQUEST_TIMED_OUT, "why"),
        (None, b"i" * 16, ErrorCode.REQUEST_TIMED_OUT, "why"),
    ]


def test_each_user_whose_credentials_were_to_change_is_answered() -> None:
    request = scram.AlterUserScramCredentialsRequest(
        [scram.AlterUserScramCredentialsRequestDeletion("a", 1)],
        [scram.AlterUserScramCredentialsRequestUpsertion("b", 1, 4096, b"s", b"p")],
    )
    answered = failure_response(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request, 0, ErrorCode.NOT_CONTROLLER).results
    assert [(each.user, each.error_code) for each in answered] == [
        ("a", ErrorCode.NOT_CONTROLLER),
        ("b", ErrorCode.NOT_CONTROLLER),
    ]
