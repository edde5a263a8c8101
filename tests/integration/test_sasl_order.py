"""What a peer of a SASL listener may send and when: order, re-authentication, expiry, limits, brokers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.client import Admin, Producer
from odradek.security.scram import Mechanism, ScramClient
from odradek.wire.apis import response_class
from odradek.wire.errors import ErrorCode
from odradek.wire.headers import encode_request_header, parse_response_header
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.integration.sasl_brokers import ALICE, ALICE_PASSWORD, login, sasl_settings, with_sasl_broker

GOOD = b"\0admin\0admin-secret"
BAD = b"\0admin\0wrong"
QUICK = {"connection_failed_authentication_delay_ms": "0"}


class Peer:
    """A client that sends what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: Any, version: int) -> Any:
        """The response; None if the broker closed the connection instead."""
        out = bytearray()
        encode_request_header(out, request.API_KEY, version, 7, "peer")
        request.encode(out, version)
        frame = await self.raw(bytes(out))
        if frame is None:
            return None
        _, position = parse_response_header(memoryview(frame), request.API_KEY, version)
        return response_class(request.API_KEY).decode(memoryview(frame), position, version)[0]

    async def raw(self, data: bytes) -> bytes | None:
        """The frame after this one; None if the broker closed the connection instead."""
        try:
            self.writer.write(len(data).to_bytes(4, "big") + data)
            return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4), "big"))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def versions(self) -> Any:
        return await self.ask(ApiVersionsRequest("peer", "1"), 3)

    async def choose(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        return await self.ask(SaslHandshakeRequest(mechanism), version)

    async def prove(self, message: bytes = GOOD, version: int = 2) -> Any:
        return await self.ask(SaslAuthenticateRequest(message), version)

    async def metadata(self) -> Any:
        return await self.ask(MetadataRequest([]), 12)


def with_peer(tmp_path: Path, use: Callable[[Peer], Awaitable[Any]], **settings: str) -> Any:
    async def connected(bootstrap: str) -> Any:
        return await with_connection(bootstrap, use)

    return with_sasl_broker(sasl_settings(tmp_path, **(QUICK | settings)), connected)


async def with_connection(bootstrap: str, use: Callable[[Peer], Awaitable[Any]]) -> Any:
    host, _, port = bootstrap.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        return await asyncio.wait_for(use(Peer(reader, writer)), 30)
    finally:
        writer.close()


def test_peer_is_served_once_it_is_authenticated(tmp_path: Path) -> None:
    async def use(peer: Peer) -> None:
        versions = await peer.versions()
        assert {17, 36} <= {each.api_key for each in versions.api_keys}
        chosen = await peer.choose()
        assert (chosen.error_code, chosen.mechanisms) == (0, ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
        answer = await peer.prove()
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
        assert (await peer.metadata()).brokers
        assert (await peer.choose()).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await peer.prove()).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await peer.metadata()).brokers

    with_peer(tmp_path, use)


@pytest.mark.parametrize("before", [(), ("versions",), ("choose",), ("versions", "choose"), ("failed",), ("unknown",)])
@pytest.mark.parametrize("request_name", ["metadata", "large"])
def test_no_other_request_is_served_before_that(before: tuple[str, ...], request_name: str, tmp_path: Path) -> None:
    async def use(peer: Peer) -> Any:
        for step in before:
            if step == "failed":
                assert (await peer.choose()).error_code == 0
                assert (await peer.prove(BAD)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            elif step == "unknown":
                assert (await peer.choose("GSSAPI")).error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            else:
                await getattr(peer, step)()
        if request_name == "large":
            return await peer.raw(b"\0\x24\0\2" + bytes(70_000))
        answer = await peer.metadata()
        return None if answer is None else answer.brokers or None

    assert with_peer(tmp_path, use) is None


@pytest.mark.parametrize("step", ["choose", "versions", "metadata"])
def test_other_request_in_place_of_a_token_is_answered_and_ends_the_login(step: str, tmp_path: Path) -> None:
    """As Kafka's SaslServerAuthenticator: ILLEGAL_SASL_STATE in an answer of the request's own kind, then the end."""

    async def use(peer: Peer) -> Any:
        assert (await peer.choose()).error_code == 0
        if step == "metadata":
            answer = await peer.ask(MetadataRequest([MetadataRequestTopic(bytes(16), "t")]), 12)
            code = answer.topics[0].error_code
        else:
            code = (await getattr(peer, step)()).error_code
        assert code == ErrorCode.ILLEGAL_SASL_STATE
        return await peer.prove()

    assert with_peer(tmp_path, use) is None


@pytest.mark.parametrize("steps", [("prove",), ("versions", "versions")])
def test_wrong_order_closes_the_connection(steps: tuple[str, ...], tmp_path: Path) -> None:
    async def use(peer: Peer) -> Any:
        for step in steps:
            answer = await getattr(peer, step)()
        return answer

    assert with_peer(tmp_path, use) is None


def test_log_says_why_a_client_without_a_login_is_closed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "odradek.security")

    async def use(peer: Peer) -> Any:
        await peer.versions()
        return await peer.metadata()

    assert with_peer(tmp_path, use) is None
    assert (
        "Metadata request without a login; this listener has SASL, the client needs security.protocol=" in caplog.text
    )


def test_login_on_a_listener_without_sasl_is_answered_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "odradek.security")

    async def use(peer: Peer) -> None:
        assert (await peer.choose()).error_code == ErrorCode.ILLEGAL_SASL_STATE
        answer = await peer.prove()
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert answer.error_message == "SaslAuthenticate request received after successful authentication"
        assert (await peer.metadata()).brokers

    async def scenario() -> None:
        settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
        broker = Broker(BrokerConfig(settings))
        await broker.start()
        try:
            await with_connection(broker.bootstrap, use)
        finally:
            await broker.stop()

    asyncio.run(scenario())
    assert "asks for the SASL mechanism 'PLAIN' on listener PLAINTEXT, which has no SASL" in caplog.text


def test_raw_tokens_follow_the_oldest_handshake(tmp_path: Path) -> None:
    """Clients of Kafka 0.10 send the mechanism's messages as frames of their own."""

    async def use(peer: Peer) -> None:
        assert (await peer.choose("SCRAM-SHA-256", version=0)).error_code == 0
        client = ScramClient(Mechanism.SCRAM_SHA_256, ALICE, ALICE_PASSWORD, "nonce")
        challenge = await peer.raw(client.first)
        assert challenge is not None
        client.finish(await peer.raw(client.prove(challenge)) or b"")
        assert (await peer.metadata()).brokers

    with_peer(tmp_path, use)


def test_wrong_raw_token_closes_the_connection(tmp_path: Path) -> None:
    async def use(peer: Peer) -> Any:
        assert (await peer.choose(version=0)).error_code == 0
        return await peer.raw(BAD)

    assert with_peer(tmp_path, use) is None


def test_unknown_user_gets_a_challenge_like_the_others(tmp_path: Path) -> None:
    async def challenge(name: str, peer: Peer) -> tuple[int, str, str]:
        await peer.choose("SCRAM-SHA-256")
        answer = await peer.prove(f"n,,n={name},r=nonce".encode())
        _, salt, iterations = bytes(answer.auth_bytes).decode().split(",")
        proof = await peer.prove(b"c=biws," + bytes(answer.auth_bytes).split(b",")[0] + b",p=" + b"A" * 43 + b"=")
        assert proof.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        return proof.error_message, salt, iterations

    async def use(bootstrap: str) -> list[tuple[int, str, str]]:
        return [
            await with_connection(bootstrap, partial(challenge, name)) for name in (ALICE, "ghost", "ghost", "spirit")
        ]

    alice, ghost, again, spirit = with_sasl_broker(sasl_settings(tmp_path, **QUICK), use)
    assert ghost == again != spirit
    assert (alice[0], len(alice[1]), alice[2]) == (ghost[0], len(ghost[1]), ghost[2])


def test_session_expires_without_a_new_login(tmp_path: Path) -> None:
    async def use(peer: Peer) -> None:
        await peer.choose()
        assert 0 < (await peer.prove()).session_lifetime_ms <= 1500
        while await peer.metadata() is not None:
            await asyncio.sleep(0.1)

    with_peer(tmp_path, use, connections_max_reauth_ms="1500")


def test_session_outlives_its_first_login_when_renewed(tmp_path: Path) -> None:
    lifetime_s = 5.0

    async def use(peer: Peer) -> None:
        began = time.monotonic()
        while time.monotonic() < began + lifetime_s + 1:
            assert (await peer.choose()).error_code == 0
            assert (await peer.prove()).session_lifetime_ms > 0
            await asyncio.sleep(1.2)  # Sooner the broker rejects a new login.
            assert (await peer.metadata()).brokers

    with_peer(tmp_path, use, connections_max_reauth_ms=str(int(lifetime_s * 1000)))


@pytest.mark.parametrize("change", ["principal", "mechanism", "password"])
def test_reauthentication_changes_nothing(change: str, tmp_path: Path) -> None:
    plain = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    module = sasl_settings(tmp_path)[plain].replace(";", ' user_bob="b";')

    async def use(peer: Peer) -> None:
        await peer.choose()
        assert (await peer.prove()).error_code == 0
        assert (await peer.choose("SCRAM-SHA-256" if change == "mechanism" else "PLAIN")).error_code == 0
        answer = await peer.prove({"principal": b"\0bob\0b", "mechanism": b"n,,n=alice,r=x", "password": BAD}[change])
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await peer.metadata() is None

    async def connected(bootstrap: str) -> None:
        await with_connection(bootstrap, use)

    settings = sasl_settings(tmp_path, **QUICK, connections_max_reauth_ms="60000") | {plain: module}
    with_sasl_broker(settings, connected)


def test_our_client_authenticates_again_before_its_session_ends(tmp_path: Path) -> None:
    async def use(bootstrap: str) -> int:
        async with Producer(**login(bootstrap, "SCRAM-SHA-512", ALICE, ALICE_PASSWORD), linger_ms=0) as producer:
            await producer.send("t", b"x")
            ids: set[int] = set()
            for _ in range(45):
                await (await producer.send("t", b"x", partition=0))
                await asyncio.sleep(0.2)
                cluster: Any = producer._cluster
                ids.update(id(slot.connection) for slot in cluster.connections._by_address.values())
            assert producer.metrics().value("successful-reauthentication-total") >= 1
            assert producer.metrics().value("reauthentication-latency-max") > 0
            return len(ids)

    # Without it nine seconds would need three; one is for a machine that stalls.
    assert with_sasl_broker(sasl_settings(tmp_path, connections_max_reauth_ms="4000"), use) <= 2


def test_address_with_many_failures_is_rejected_unseen(tmp_path: Path) -> None:
    async def fail(peer: Peer) -> Any:
        await peer.choose()
        return (await peer.prove(BAD)).error_code

    async def succeed(peer: Peer) -> Any:
        return await peer.choose()

    async def use(bootstrap: str) -> Any:
        for _ in range(3):
            assert await with_connection(bootstrap, fail) == ErrorCode.SASL_AUTHENTICATION_FAILED
        return await with_connection(bootstrap, succeed)

    assert with_sasl_broker(sasl_settings(tmp_path, **QUICK, odradek_login_max_failures="3"), use) is None


def test_failed_login_is_answered_after_the_delay(tmp_path: Path) -> None:
    async def use(peer: Peer) -> float:
        loop = asyncio.get_running_loop()
        await peer.choose()
        began = loop.time()
        await peer.prove(BAD)
        return loop.time() - began

    assert with_peer(tmp_path, use, connection_failed_authentication_delay_ms="300") >= 0.3


def test_brokers_prove_themselves_on_a_sasl_listener(tmp_path: Path) -> None:
    """A topic with two replicas is created and written through SASL listeners only."""

    async def scenario() -> list[int]:
        brokers = [
            Broker(
                BrokerConfig(
                    sasl_settings(tmp_path / str(node), node_id=str(node))
                    | {"odradek.metadata.store": str(tmp_path / "store.db")}
                )
            )
            for node in (1, 2)
        ]
        for broker in brokers:
            await broker.start()
        try:
            common = login(",".join(each.bootstrap for each in brokers))
            async with Admin(**common) as admin, Producer(**common, acks="all") as producer:
                await admin.create_topics([_two_replicas()])
                await producer.send("t", b"x")
                topic: Any = (await admin.describe_topics(["t"]))["t"]
                return sorted(topic.partitions[0].isr)
        finally:
            for broker in reversed(brokers):
                await broker.stop()

    assert asyncio.run(scenario()) == [1, 2]


def _two_replicas() -> Any:
    from odradek.client.admin import NewTopic

    return NewTopic("t", 1, 2)
