"""Brokers prove to each other that they are of one cluster; only they can, and only they are served as brokers."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.requests.broker_proof import AcceptingSide, Claim, ProofError, connecting_proof
from odradek.api.requests.context import RequestContext
from odradek.api.requests.declarations import DECLARATIONS, Audience
from odradek.api.requests.registry import endpoint
from odradek.api.requests.session import ANONYMOUS, Authentication, Session
from odradek.broker.cluster.cluster_secret import BrokerProof, ClusterSecret
from odradek.broker.network.dispatch import Dispatcher
from odradek.broker.security.logins import Credentials, Logins
from odradek.client.errors import Disconnected
from odradek.metadata.image import ClusterImage
from odradek.metadata.nodes import CLUSTER_KEY
from odradek.metadata.stores.memory_store import MemoryStore, MemoryTree
from odradek.ports.clock import SystemClock
from odradek.ports.randomness import SeededRandom
from odradek.ports.store import StoreUnavailable
from odradek.quotas.client_quotas import ClientQuotas
from odradek.wire.apis import APIS, ApiKey, request_class, response_class
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.headers import encode_request_header, parse_response_header
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest

SECRET = bytes(range(32))
CLAIM = Claim(2, b"c" * 32)
RESTRICTED = sorted(key for key, declared in DECLARATIONS.items() if declared.audience is not Audience.CLIENTS)


class Accepting:
    """A broker to which another one connects, as the connection of its client."""

    closed = None

    def __init__(self, secret: ClusterSecret, node_id: int = 1) -> None:
        self.session = Session("PLAINTEXT", "10.0.0.2")
        self.identifier = 1
        config: Any = SimpleNamespace(number=lambda _name: 0)
        self.services = SimpleNamespace(
            authorization=None,
            audit=None,
            clock=SystemClock(),
            logins=Logins(node_id, config, {}, Credentials(secret, ClusterImage), SystemClock()),
            quotas=ClientQuotas(11, 1),
        )

    def request(self, request: Any, _response: Any, version: int, _timeout_ms: float) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(self.answer(request, version))

    async def answer(self, request: Any, version: int) -> Any:
        found = endpoint(request.API_KEY)
        assert found is not None
        services: Any = self.services
        connection: Any = self
        answer = found.handle(request, RequestContext(services, version, 1, "broker-2", connection))
        return await answer if asyncio.iscoroutine(answer) else answer


def run(test: Callable[[], Any]) -> None:
    asyncio.run(test())


def secrets(*seeds: str) -> list[ClusterSecret]:
    """Of brokers with one metadata store."""
    tree = MemoryTree()
    return [ClusterSecret(MemoryStore(tree), SeededRandom(seed)) for seed in seeds]


def test_brokers_with_one_store_prove_themselves_to_each_other() -> None:
    async def test() -> None:
        ours, theirs = secrets("a", "b")
        accepting: Any = Accepting(theirs)
        await BrokerProof(ours, 2)(accepting, 1, 1000)
        session = accepting.session
        assert session.broker_id == 2
        assert session.authentication is Authentication.COMPLETE
        assert str(session.principal) == "Broker:2"
        assert session.login is None

    run(test)


@pytest.mark.parametrize("stranger", ["connecting", "accepting"])
def test_proof_fails_when_one_side_is_of_another_cluster(stranger: str) -> None:
    async def test() -> None:
        (ours,), (theirs,) = secrets("a"), secrets("b")
        assert await ours.read() != await theirs.read()
        accepting: Any = Accepting(theirs)
        with pytest.raises(Disconnected):
            await BrokerProof(ours, 2)(accepting, 1, 1000)
        assert accepting.session.principal == ANONYMOUS
        assert not accepting.session.is_broker

    run(test)


def test_connecting_broker_gives_no_proof_to_a_broker_of_another_id() -> None:
    """What broker 3 relays from broker 1 is worth nothing."""

    async def test() -> None:
        ours, theirs = secrets("a", "b")
        accepting: Any = Accepting(theirs, node_id=3)
        with pytest.raises(Disconnected):
            await BrokerProof(ours, 2)(accepting, 1, 1000)
        assert not accepting.session.is_broker

    run(test)


def test_secret_is_created_once_by_brokers_that_need_it_at_the_same_time() -> None:
    async def test() -> None:
        found = await asyncio.gather(*(secret.read() for secret in secrets("a", "b", "c")))
        assert len(set(found)) == 1
        assert len(found[0]) == 32

    run(test)


def test_secret_is_read_once() -> None:
    async def test() -> None:
        store = MemoryStore(MemoryTree())
        secret = ClusterSecret(store, SeededRandom("a"))
        first = await secret.read()
        await store.close()
        assert await secret.read() == first

    run(test)


def test_proof_is_retriable_when_the_store_cannot_be_read() -> None:
    class Away(MemoryStore):
        async def get(self, path: str) -> Any:
            assert path == CLUSTER_KEY
            raise StoreUnavailable("away")

    async def test() -> None:
        accepting: Any = Accepting(secrets("a")[0])
        with pytest.raises(Disconnected):
            await BrokerProof(ClusterSecret(Away(MemoryTree()), SeededRandom("b")), 2)(accepting, 1, 1000)

    run(test)


def challenge_of(accepting: AcceptingSide, claim: Claim = CLAIM, own_id: int = 1) -> bytes:
    return connecting_proof(SECRET, claim, own_id, accepting.challenge)


def test_proof_reports_nothing_when_its_connection_breaks_midway() -> None:
    class Breaking:
        def request(self, request: object, *_: object) -> asyncio.Future[Any]:
            if not isinstance(request, SaslHandshakeRequest):
                raise Disconnected("connection reset by peer")
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            answer.set_exception(Disconnected("connection reset by peer"))
            return answer

    reported: list[dict[str, Any]] = []

    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        connection: Any = Breaking()
        with pytest.raises(Disconnected):
            await BrokerProof(secrets("a")[0], 2)(connection, 1, 1000)
        await asyncio.sleep(0)
        gc.collect()

    run(test)
    assert reported == []


def test_proof_is_worth_nothing_on_another_connection() -> None:
    first = AcceptingSide(SECRET, 1, CLAIM, b"1" * 32)
    proof = challenge_of(first)
    first.verify(proof)
    for other in (
        AcceptingSide(SECRET, 1, CLAIM, b"2" * 32),
        AcceptingSide(SECRET, 3, CLAIM, b"1" * 32),
        AcceptingSide(SECRET, 1, Claim(5, CLAIM.nonce), b"1" * 32),
        AcceptingSide(bytes(32), 1, CLAIM, b"1" * 32),
    ):
        with pytest.raises(ProofError):
            other.verify(proof)


def test_challenge_is_no_proof() -> None:
    """A peer that sends back what it was sent has shown nothing."""
    accepting = AcceptingSide(SECRET, 1, CLAIM, b"1" * 32)
    with pytest.raises(ProofError):
        accepting.verify(accepting.challenge[32:])


def test_connecting_broker_sends_no_proof_when_its_challenge_fails() -> None:
    sent: list[bytes] = []

    class Rejecting(Accepting):
        async def answer(self, request: Any, version: int) -> Any:
            answer = await super().answer(request, version)
            if isinstance(request, SaslAuthenticateRequest):
                sent.append(request.auth_bytes)
                answer.error_code = ErrorCode.SASL_AUTHENTICATION_FAILED
            return answer

    async def test() -> None:
        ours, theirs = secrets("a", "b")
        connection: Any = Rejecting(theirs)
        with pytest.raises(Disconnected, match="SASL_AUTHENTICATION_FAILED"):
            await BrokerProof(ours, 2)(connection, 1, 1000)

    run(test)
    assert len(sent) == 1


@pytest.mark.parametrize("data", [b"", b"\1", b"\2" + bytes(36), b"\1" + bytes(37)])
def test_claim_is_rejected_when_it_has_another_form(data: bytes) -> None:
    with pytest.raises(ProofError):
        Claim.decode(data)


@pytest.mark.parametrize(("mechanism", "version"), [("PLAIN", 1), ("SCRAM-SHA-256", 1), ("ODRADEK-CLUSTER", 0)])
def test_handshake_of_a_client_is_answered_as_on_a_listener_without_sasl(mechanism: str, version: int) -> None:
    async def test() -> None:
        accepting = Accepting(secrets("a")[0])
        answer = await accepting.answer(SaslHandshakeRequest(mechanism), version)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        answer = await accepting.answer(SaslAuthenticateRequest(b"\0user\0password"), 2)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE

    run(test)


def test_wrong_proof_ends_the_exchange() -> None:
    async def test() -> None:
        accepting = Accepting(secrets("a")[0])
        await accepting.answer(SaslHandshakeRequest("ODRADEK-CLUSTER"), 1)
        await accepting.answer(SaslAuthenticateRequest(CLAIM.encode()), 2)
        answer = await accepting.answer(SaslAuthenticateRequest(bytes(32)), 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        answer = await accepting.answer(SaslAuthenticateRequest(bytes(32)), 2)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert not accepting.session.is_broker

    run(test)


def frame_of(key: int, version: int, body: bytes) -> memoryview:
    out = bytearray()
    encode_request_header(out, key, version, 7, "broker-2")
    return memoryview(out + body)


def error_code(parts: Any, key: int, version: int) -> int:
    view = memoryview(b"".join(parts))[4:]
    _, position = parse_response_header(view, key, version)
    answer: Any = response_class(key).decode(view, position, version)[0]
    code: int = answer.error_code
    return code


@pytest.mark.parametrize("body", ["readable", "unreadable"])
@pytest.mark.parametrize("key", RESTRICTED, ids=lambda key: ApiKey(key).name)
def test_request_between_brokers_is_rejected_when_a_client_sends_it(key: int, body: str) -> None:
    """Its body is not even decoded."""

    async def test() -> None:
        accepting: Any = Accepting(secrets("a")[0])
        version = APIS[key].max_version
        data = bytearray()
        if body == "readable":
            request_class(key)().encode(data, version)
        dispatcher = Dispatcher(accepting.services, asyncio.get_running_loop())
        answer = dispatcher(frame_of(key, version, bytes(data)), accepting)
        assert error_code(answer, key, version) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    run(test)


def test_fetch_of_a_follower_is_rejected_when_a_client_sends_it() -> None:
    from odradek.wire.messages import fetch

    async def test() -> None:
        accepting: Any = Accepting(secrets("a")[0])
        topic = fetch.FetchRequestTopic("t", bytes(16), [fetch.FetchRequestPartition(3)])
        request = FetchRequest(replica_id=2, topics=[topic], max_wait_ms=0)
        data = bytearray()
        request.encode(data, 12)
        dispatcher = Dispatcher(accepting.services, asyncio.get_running_loop())
        parts: Any = dispatcher(frame_of(ApiKey.FETCH, 12, bytes(data)), accepting)
        view = memoryview(b"".join(parts))[4:]
        _, position = parse_response_header(view, ApiKey.FETCH, 12)
        answer: Any = response_class(ApiKey.FETCH).decode(view, position, 12)[0]
        assert answer.error_code == ErrorCode.NONE
        (found,) = answer.responses[0].partitions
        assert (found.partition_index, found.error_code) == (3, ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    run(test)


def test_secret_error_names_no_secret() -> None:
    async def test() -> None:
        store = MemoryStore(MemoryTree())
        await store.close()
        with pytest.raises(KafkaError, match="/cluster/secret"):
            await ClusterSecret(store, SeededRandom("a")).read()

    run(test)


def test_requests_of_a_proof_have_versions_that_brokers_offer() -> None:
    """A broker that asked in another version could not prove itself, and the cluster would not form."""
    asked: list[tuple[int, int]] = []

    class Noting(Accepting):
        def request(self, request: Any, response: Any, version: int, timeout_ms: float) -> asyncio.Task[Any]:
            asked.append((request.API_KEY, version))
            return super().request(request, response, version, timeout_ms)

    async def test() -> None:
        ours, theirs = secrets("a", "b")
        accepting: Any = Noting(theirs)
        await BrokerProof(ours, 2)(accepting, 1, 1000)

    run(test)
    assert {key for key, _ in asked} == {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    assert all(APIS[key].min_version <= version <= APIS[key].max_version for key, version in asked)
