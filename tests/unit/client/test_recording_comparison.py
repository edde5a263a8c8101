"""Replays: what differs between answers, which identities are replaced, and addresses in answers."""

from typing import Any

import pytest

from odradek.client.recording.addresses import Address, replace_addresses, withdraw_bare_sasl
from odradek.client.recording.comparison import Identities, differences
from odradek.client.recording.documents import HIDDEN, document_of
from odradek.records.batch import check_batch
from odradek.records.builder import BatchFields, encode_batch
from odradek.wire.apis import ApiKey
from odradek.wire.messages.api_versions import ApiVersionsResponse, ApiVersionsResponseApiVersion
from odradek.wire.messages.create_topics import CreateTopicsResponse, CreateTopicsResponseTopic
from odradek.wire.messages.fetch import FetchRequest, FetchResponse, FetchResponseTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorResponse, FindCoordinatorResponseCoordinator
from odradek.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from odradek.wire.messages.init_producer_id import InitProducerIdResponse
from odradek.wire.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from odradek.wire.messages.produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest


def topics(*found: tuple[str, int]) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreateTopicsResponseTopic(name=name, error_code=code) for name, code in found])


def test_error_codes_are_compared_by_name_in_any_order() -> None:
    recorded, repeated = topics(("a", 0), ("b", 36)), topics(("b", 36), ("a", 41))
    assert list(differences(ApiKey.CREATE_TOPICS, recorded, repeated)) == [
        "topics[a].error_code: NONE recorded, NOT_CONTROLLER now"
    ]


def test_missing_and_new_elements_are_differences() -> None:
    assert list(differences(ApiKey.CREATE_TOPICS, topics(("a", 0)), topics())) == ["topics: 1 recorded, 0 now"]
    assert list(differences(ApiKey.CREATE_TOPICS, topics(("a", 0), ("b", 0)), topics(("a", 0), ("c", 0)))) == [
        "topics[b]: recorded, missing now"
    ]


def test_fetched_partitions_may_differ() -> None:
    recorded = FetchResponse(responses=[FetchResponseTopic(topic="a")])
    assert list(differences(ApiKey.FETCH, recorded, FetchResponse())) == []
    assert list(differences(ApiKey.FETCH, recorded, FetchResponse(error_code=71))) == [
        "error_code: NONE recorded, INVALID_FETCH_SESSION_EPOCH now"
    ]


def test_topic_ids_of_the_repetition_are_sent() -> None:
    identities = Identities()
    identities.learn(
        MetadataResponse(topics=[MetadataResponseTopic(name=each, topic_id=each.encode() * 16) for each in "ab"]),
        MetadataResponse(
            topics=[MetadataResponseTopic(name=each, topic_id=each.upper().encode() * 16) for each in "ba"]
        ),
    )
    request = ProduceRequest(topic_data=[ProduceRequestTopic(topic_id=b"b" * 16, partition_data=[])])
    identities.replace(request)
    assert request.topic_data[0].topic_id == b"B" * 16


def test_producer_ids_are_replaced_in_batches_with_their_checksum() -> None:
    identities = Identities()
    identities.learn(InitProducerIdResponse(producer_id=7, producer_epoch=3), InitProducerIdResponse(producer_id=9))
    fields = BatchFields(producer_id=7, producer_epoch=3, base_sequence=5)
    records = bytes(encode_batch([(1, None, b"x", ())], fields)) * 2
    request = ProduceRequest(topic_data=[ProduceRequestTopic(partition_data=[ProduceRequestPartition(0, records)])])
    identities.replace(request)
    changed: Any = request.topic_data[0].partition_data[0].records
    for start in (0, len(records) // 2):
        header = check_batch(memoryview(changed)[start:])
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 0, 5)


def test_fetch_sessions_of_the_repetition_are_sent() -> None:
    identities = Identities()
    identities.learn(FetchResponse(session_id=11), FetchResponse(session_id=22))
    request = FetchRequest(session_id=11)
    identities.replace(request)
    assert request.session_id == 22


def test_addresses_of_brokers_become_those_of_the_proxy() -> None:
    response = MetadataResponse(brokers=[MetadataResponseBroker(4, "kafka-4", 9092)])
    asked: list[Any] = []

    def address_of(address: Address, node_id: int) -> Address:
        asked.append((address, node_id))
        return Address("127.0.0.1", 1)

    assert replace_addresses(ApiKey.METADATA, response, address_of)
    assert (response.brokers[0].host, response.brokers[0].port) == ("127.0.0.1", 1)
    assert asked == [(("kafka-4", 9092), 4)]


def test_an_unknown_coordinator_keeps_its_empty_address() -> None:
    coordinators = [FindCoordinatorResponseCoordinator(key="g", node_id=-1, host="", port=-1, error_code=15)]
    response = FindCoordinatorResponse(coordinators=coordinators)
    assert not replace_addresses(ApiKey.FIND_COORDINATOR, response, lambda *_: Address("127.0.0.1", 1))
    assert response.coordinators[0].host == ""


def test_sasl_without_headers_is_not_offered() -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersionsResponseApiVersion(ApiKey.SASL_HANDSHAKE, 0, 1)])
    assert withdraw_bare_sasl(response)
    assert response.api_keys[0].min_version == 1


@pytest.mark.parametrize(
    "message",
    [
        SaslAuthenticateRequest(b"\0user\0hunter2"),
        IncrementalAlterConfigsRequest(
            [IncrementalAlterConfigsRequestResource(4, "1", [IncrementalAlterConfigsRequestConfig("p", 0, "hunter2")])]
        ),
    ],
)
def test_secrets_are_hidden_in_documents(message: Any) -> None:
    assert "hunter2" not in str(document_of(message))
    assert HIDDEN in str(document_of(message))
