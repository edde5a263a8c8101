"""A request of a forwarded API at a broker that is not the controller: what reaches that, and what the client gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.requests.context import RequestContext
from odradek.api.requests.declarations import DECLARATIONS, Declaration
from odradek.api.requests.envelope import decoded_address, decoded_principal, encoded_address, encoded_principal
from odradek.api.requests.registry import endpoint
from odradek.api.requests.session import ANONYMOUS, Principal, Session
from odradek.api.services.controller_service import NotTheController
from odradek.authorization.authorizer import Settings
from odradek.broker.authorization.broker_authorization import BrokerAuthorization, acls_in
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.log_levels import BrokerLoggers
from odradek.broker.network.connection import Pending
from odradek.broker.network.dispatch import Dispatcher
from odradek.broker.network.tls_listeners import TlsListeners
from odradek.controller.configs import ResourceType
from odradek.controller.topics import NewTopic
from odradek.metadata.image import ClientEntity, Endpoint
from odradek.metadata.stores.memory_store import MemoryStore
from odradek.ports.clock import SystemClock
from odradek.quotas.client_quotas import ClientQuotas
from odradek.wire.apis import APIS, ApiKey, response_class
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.headers import encode_request_header, parse_response_header
from odradek.wire.messages import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
    unregister_broker,
    update_features,
)
from odradek.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tests.unit.api.lone_controller import lone_controller

REQUESTS: dict[int, Any] = {
    ApiKey.CREATE_TOPICS: create_topics.CreateTopicsRequest([create_topics.CreateTopicsRequestTopic("new", 1, 1)]),
    ApiKey.DELETE_TOPICS: delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicsRequestState("t")]),
    ApiKey.ALTER_CONFIGS: alter_configs.AlterConfigsRequest(
        [
            alter_configs.AlterConfigsRequestResource(
                ResourceType.TOPIC, "t", [alter_configs.AlterConfigsRequestConfig("retention.ms", "1000")]
            )
        ]
    ),
    ApiKey.CREATE_PARTITIONS: create_partitions.CreatePartitionsRequest(
        [create_partitions.CreatePartitionsRequestTopic("t", 3, None)]
    ),
    ApiKey.ELECT_LEADERS: elect_leaders.ElectLeadersRequest(0, None),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.IncrementalAlterConfigsRequest(
        [
            incremental_alter_configs.IncrementalAlterConfigsRequestResource(
                ResourceType.TOPIC,
                "t",
                [incremental_alter_configs.IncrementalAlterConfigsRequestConfig("retention.ms", 0, "1000")],
            )
        ]
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        topics=[
            alter_partition_reassignments.AlterPartitionReassignmentsRequestReassignableTopic(
                "t", [alter_partition_reassignments.AlterPartitionReassignmentsRequestReassignablePartition(0, [9])]
            )
        ]
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: alter_client_quotas.AlterClientQuotasRequest(
        [
            alter_client_quotas.AlterClientQuotasRequestEntry(
                [alter_client_quotas.AlterClientQuotasRequestEntity("client-id", "c")],
                [alter_client_quotas.AlterClientQuotasRequestOp("producer_byte_rate", 1000.0)],
            )
        ]
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials.AlterUserScramCredentialsRequest(
        [alter_user_scram_credentials.AlterUserScramCredentialsRequestDeletion("unknown", 1)]
    ),
    ApiKey.UPDATE_FEATURES: update_features.UpdateFeaturesRequest(feature_updates=[]),
    ApiKey.UNREGISTER_BROKER: unregister_broker.UnregisterBrokerRequest(99),
}
ALICE = Principal("User", "alice")


class Peer:
    """A client's connection."""

    identifier = 3

    def __init__(self) -> None:
        self.session = Session("PLAINTEXT", "10.0.0.7", ALICE)
        self.pauses: list[int] = []
        self.closed: list[str] = []
        self.answers: list[Any] = []

    def throttle(self, milliseconds: int) -> None:
        self.pauses.append(milliseconds)

    def close(self, reason: str) -> None:
        self.closed.append(reason)

    def answered(self, pending: Pending) -> None:
        self.answers.append(pending.parts)


class BrokerPeer(Peer):
    """The connection on which all forwarded requests of a broker come."""

    def __init__(self) -> None:
        super().__init__()
        self.session = Session("PLAINTEXT", "10.0.0.1")


class Elsewhere:
    """The controller as a broker has it that is not the controller: every envelope goes through its bytes."""

    is_here = False

    def __init__(self, services: Any) -> None:
        self.services = services
        self.connection = BrokerPeer()
        self.envelopes: list[EnvelopeRequest] = []
        self.depose = 0

    def is_forwarded(self, declared: Declaration) -> bool:
        return declared.is_forwarded

    async def forward(self, envelope: EnvelopeRequest, timeout_ms: int) -> bytes:
        if self.depose:
            self.depose -= 1
            raise NotTheController(ErrorCode.NOT_CONTROLLER)
        self.envelopes.append(envelope)
        answer = await asked(self.services, envelope, self.connection)
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))
        assert answer.response_data is not None
        return bytes(answer.response_data)


async def asked(services: Any, envelope: EnvelopeRequest, connection: Any) -> EnvelopeResponse:
    """What the controller answers to an envelope."""
    out = bytearray()
    envelope.encode(out, 0)
    decoded, _ = EnvelopeRequest.decode(memoryview(out), 0, 0)
    found = endpoint(ApiKey.ENVELOPE)
    assert found is not None
    response: EnvelopeResponse = await found.handle(decoded, RequestContext(services, 0, 1, "broker-2", connection))
    return response


def frame_of(request: Any, version: int, client_id: str = "app") -> memoryview:
    out = bytearray()
    encode_request_header(out, request.API_KEY, version, 7, client_id)
    request.encode(out, version)
    return memoryview(out)


async def controlling(node_id: int = 1) -> Any:
    """The services of a broker that is the controller, with the topic `t`."""
    config = BrokerConfig({"node.id": str(node_id)})
    controller, view = await lone_controller(config, {"PLAINTEXT": Endpoint("h", 9092, "PLAINTEXT")})
    await controller.create_topics([NewTopic("t", 2, 1)])
    return SimpleNamespace(
        authorization=None,
        audit=None,
        controller=controller,
        config=config,
        clock=SystemClock(),
        quotas=ClientQuotas(11, 1),
        loggers=BrokerLoggers(node_id),
        certificates=TlsListeners(config, [], SystemClock()),
        image=lambda: view.image,
    )


def without_control(services: Any) -> Any:
    """The services of another broker of the same cluster."""
    return SimpleNamespace(
        authorization=None,
        audit=None,
        controller=Elsewhere(services),
        config=services.config,
        clock=services.clock,
        quotas=ClientQuotas(11, 1),
        loggers=BrokerLoggers(2),
        certificates=TlsListeners(services.config, [], services.clock),
        image=services.image,
    )


async def answered(services: Any, frame: memoryview, peer: Peer) -> bytes:
    """The frame that the dispatcher answers with."""
    connection: Any = peer
    dispatcher = Dispatcher(services, asyncio.get_running_loop())
    answer = dispatcher(frame, connection)
    if isinstance(answer, Pending):
        answer.queued = True
        while not answer.ready:
            assert not peer.closed
            await asyncio.sleep(0)
        answer = answer.parts
    assert isinstance(answer, list)
    return b"".join(bytes(part) for part in answer)  # type: ignore[arg-type]


def response_in(frame: bytes, key: int, version: int) -> Any:
    view = memoryview(frame)[4:]
    _, position = parse_response_header(view, key, version)
    return response_class(key).decode(view, position, version)[0]


def run(test: Callable[[], Any]) -> None:
    asyncio.run(test())


@pytest.mark.parametrize("key", sorted(REQUESTS), ids=lambda key: ApiKey(key).name)
def test_forwarded_request_is_answered_as_by_the_controller(key: int) -> None:
    async def test() -> None:
        version = APIS[key].max_version
        frame = frame_of(REQUESTS[key], version)
        direct = await answered(await controlling(), frame, Peer())
        beside = without_control(await controlling())
        assert await answered(beside, frame, Peer()) == direct
        (envelope,) = beside.controller.envelopes
        assert envelope.request_data == frame, "version, correlation id and client id stay"
        assert decoded_principal(envelope.request_principal) == ALICE
        assert decoded_address(envelope.client_host_address) == "10.0.0.7"

    run(test)


def test_every_forwarded_api_is_tested() -> None:
    assert set(REQUESTS) == {key for key, declared in DECLARATIONS.items() if declared.is_forwarded}


def test_forwarded_change_charges_and_delays_only_its_client() -> None:
    async def test() -> None:
        services = await controlling()
        beside = without_control(services)
        limits = {ClientEntity(user="alice", client_id=None): {"controller_mutation_rate": "1.0"}}
        for each in (services, beside):
            each.quotas.mutations.update(limits)
        topics = [create_topics.CreateTopicsRequestTopic(f"n{i}", 10, 1) for i in range(2)]
        peer = Peer()
        frame = await answered(beside, frame_of(create_topics.CreateTopicsRequest(topics), 7), peer)
        answer = response_in(frame, ApiKey.CREATE_TOPICS, 7)
        assert peer.pauses == [answer.throttle_time_ms]
        assert 0 < answer.throttle_time_ms <= 10_000, "charged twice it would be 30 s"
        assert not beside.controller.connection.pauses, "other clients share that connection"

    run(test)


def test_forwarded_request_is_rejected_when_all_of_it_is_denied() -> None:
    """The guard has the answer at once then, before any handler runs."""

    async def test() -> None:
        services = await controlling()
        services.authorization = BrokerAuthorization(Settings(), acls_in(MemoryStore()))
        frame = await answered(without_control(services), frame_of(REQUESTS[ApiKey.CREATE_PARTITIONS], 3), Peer())
        answer = response_in(frame, ApiKey.CREATE_PARTITIONS, 3)
        assert [each.error_code for each in answer.results] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]

    run(test)


def test_forwarded_request_is_sent_again_after_an_election() -> None:
    async def test() -> None:
        beside = without_control(await controlling())
        beside.controller.depose = 1
        frame = await answered(beside, frame_of(REQUESTS[ApiKey.CREATE_PARTITIONS], 3), Peer())
        answer = response_in(frame, ApiKey.CREATE_PARTITIONS, 3)
        assert [each.error_code for each in answer.results] == [0]

    run(test)


def test_forwarded_request_fails_when_elections_do_not_end() -> None:
    async def test() -> None:
        beside = without_control(await controlling())
        beside.controller.depose = 99
        frame = await answered(beside, frame_of(REQUESTS[ApiKey.UNREGISTER_BROKER], 0), Peer())
        answer = response_in(frame, ApiKey.UNREGISTER_BROKER, 0)
        assert answer.error_code == ErrorCode.NOT_CONTROLLER

    run(test)


def logger_change(broker: str, level: str) -> Any:
    return incremental_alter_configs.IncrementalAlterConfigsRequestResource(
        ResourceType.BROKER_LOGGER,
        broker,
        [incremental_alter_configs.IncrementalAlterConfigsRequestConfig("odradek.requests", 0, level)],
    )


@pytest.mark.parametrize("mixed", [False, True], ids=["alone", "with a topic"])
def test_loggers_are_altered_on_the_asked_broker(mixed: bool) -> None:
    async def test() -> None:
        beside = without_control(await controlling())
        topic = REQUESTS[ApiKey.INCREMENTAL_ALTER_CONFIGS].resources[0]
        resources = [logger_change("2", "ERROR"), *([topic] if mixed else [])]
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources, validate_only=True)
        frame = await answered(beside, frame_of(request, 1), Peer())
        answer = response_in(frame, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
        assert [(each.resource_name, each.error_code) for each in answer.responses] == [("2", 0), ("t", 0)][: 1 + mixed]
        assert len(beside.controller.envelopes) == mixed

    run(test)


def envelope_around(frame: bytes, principal: bytes | None = None, address: bytes = bytes(4)) -> EnvelopeRequest:
    return EnvelopeRequest(frame, encoded_principal(ANONYMOUS) if principal is None else principal, address)


UNREADABLE = bytes(frame_of(REQUESTS[ApiKey.UPDATE_FEATURES], 2))[:-3]
HEARTBEAT = b"\x00\x0c\x00\x00" + bytes(20)


@pytest.mark.parametrize(
    ("envelope", "code"),
    [
        (envelope_around(bytes(frame_of(REQUESTS[57], 2)), b""), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (envelope_around(bytes(frame_of(REQUESTS[57], 2)), b"\0\1abc"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (envelope_around(bytes(frame_of(REQUESTS[57], 2)), address=b"12345"), ErrorCode.INVALID_REQUEST),
        (envelope_around(HEARTBEAT), ErrorCode.INVALID_REQUEST),
        (envelope_around(UNREADABLE), ErrorCode.UNSUPPORTED_VERSION),
        (envelope_around(b"\x00\x39\x7f\x00" + bytes(20)), ErrorCode.UNSUPPORTED_VERSION),
    ],
    ids=["no principal", "unknown principal", "bad address", "not forwardable", "truncated", "unknown version"],
)
def test_envelope_is_rejected_when_it_cannot_be_opened(envelope: EnvelopeRequest, code: ErrorCode) -> None:
    async def test() -> None:
        assert (await asked(await controlling(), envelope, BrokerPeer())).error_code == code

    run(test)


def test_envelope_is_rejected_by_a_broker_that_is_not_the_controller() -> None:
    async def test() -> None:
        envelope = envelope_around(bytes(frame_of(REQUESTS[ApiKey.UPDATE_FEATURES], 2)))
        answer = await asked(without_control(await controlling()), envelope, BrokerPeer())
        assert answer.error_code == ErrorCode.NOT_CONTROLLER

    run(test)


def test_principal_has_kafkas_serialization() -> None:
    # Version 0, then DefaultPrincipalData as Apache Kafka writes it: compact strings, a boolean, no tags.
    assert encoded_principal(Principal("User", "alice", True)) == b"\0\0\x05User\x06alice\x01\x00"
    assert decoded_principal(encoded_principal(ALICE)) == ALICE
    member = ALICE._replace(roles=("Role:ops", "Role:analysts"))
    assert decoded_principal(encoded_principal(member)) == member


@pytest.mark.parametrize(
    ("host", "packed", "again"),
    [
        ("127.0.0.1", b"\x7f\0\0\1", "127.0.0.1"),
        ("::1", bytes(15) + b"\1", "::1"),
        ("fe80::1%eth0", b"\xfe\x80" + bytes(13) + b"\1", "fe80::1"),
        ("not an address", bytes(4), "0.0.0.0"),
    ],
)
def test_address_is_carried_as_its_bytes(host: str, packed: bytes, again: str) -> None:
    assert encoded_address(host) == packed
    assert decoded_address(packed) == again
