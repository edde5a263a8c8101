"""Peers that have proven nothing yet: thousands of half-open connections, slow ones, and clients beside them."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers.broker import BrokerProcess
from bench.servers import free_port
from tests.certificates import Authority
from tests.conftest import MakeBroker
from tests.fuzz.test_requests import resident_bytes
from tests.integration.waiting import until

SECONDS = 30
TIMEOUT_MS = 3000
PEERS = 2000
API_VERSIONS = bytes.fromhex("0000000b0012000000000007000174")
# Record and handshake headers of a ClientHello of 512 bytes, and the first of them.
HALF_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(100)


class Listening:
    """A broker process with a TLS listener and a plain one."""

    def __init__(self, make_broker: MakeBroker, folder: Path) -> None:
        authority = Authority(folder / "certificates")
        self.context = ssl.create_default_context(cafile=authority.file)
        self.tls_port = free_port()
        self.process: BrokerProcess = make_broker(
            {
                "listeners": f"PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:{self.tls_port}",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": authority.issue("/CN=localhost").both,
                "odradek.unauthenticated.timeout.ms": TIMEOUT_MS,
            }
        ).start()
        self.plain_port = self.process.port

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def asks(self, port: int) -> bool:
        """Whether a client is served at that port."""
        with contextlib.ExitStack() as stack:
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), SECONDS))
            if port == self.tls_port:
                client = stack.enter_context(self.context.wrap_socket(client, server_hostname="localhost"))
            client.sendall(API_VERSIONS)
            return client.recv(100)[4:8] == API_VERSIONS[8:12]


@pytest.fixture
def listening(make_broker: MakeBroker, tmp_path: Path) -> Listening:
    return Listening(make_broker, tmp_path)


@contextlib.contextmanager
def peers(port: int, first: bytes) -> Iterator[list[socket.socket]]:
    """Many connections that have sent so much and no more."""
    opened = []
    try:
        for _ in range(PEERS):
            opened.append(socket.create_connection(("127.0.0.1", port), SECONDS))
            opened[-1].sendall(first)
        yield opened
    finally:
        for each in opened:
            each.close()


def ended(peer: socket.socket) -> bool:
    try:
        return not peer.recv(1000)
    except ConnectionError:
        return True


@pytest.mark.parametrize("first", [b"", HALF_HELLO])
def test_half_handshakes_are_bounded_while_clients_are_served(listening: Listening, first: bytes) -> None:
    assert listening.asks(listening.tls_port)
    memory, descriptors = resident_bytes(listening.process.pid), listening.descriptors()
    with peers(listening.tls_port, first) as opened:
        until(lambda: listening.asks(listening.plain_port), "clients of the plain listener are served")
        # All peers have the client's address: its handshake may wait until one of theirs is old enough to give way.
        until(lambda: served(listening), "clients of the TLS listener are served")
        assert listening.descriptors() - descriptors < 400
        assert resident_bytes(listening.process.pid) - memory < PEERS * 65_536 // 4
        assert all(ended(each) for each in opened)
    until(lambda: listening.descriptors() <= descriptors, "no descriptor is left")


def served(listening: Listening) -> bool:
    try:
        return listening.asks(listening.tls_port)
    except (OSError, ssl.SSLError):
        return False


# A frame of 500 bytes, begun.
@pytest.mark.parametrize("first", [b"", (500).to_bytes(4, "big") + bytes(100)])
def test_peers_without_a_complete_request_are_closed(listening: Listening, first: bytes) -> None:
    assert listening.asks(listening.plain_port)
    with socket.create_connection(("127.0.0.1", listening.plain_port), SECONDS) as idle:
        idle.sendall(API_VERSIONS)
        assert idle.recv(10_000)
        memory, descriptors = resident_bytes(listening.process.pid), listening.descriptors()
        with peers(listening.plain_port, first) as opened:
            assert listening.asks(listening.plain_port)
            assert resident_bytes(listening.process.pid) - memory < PEERS * 65_536 // 4
            assert all(ended(each) for each in opened)
        until(lambda: listening.descriptors() <= descriptors, "no descriptor is left")
        idle.sendall(API_VERSIONS)
        assert idle.recv(10_000), "a client that is idle stays"
