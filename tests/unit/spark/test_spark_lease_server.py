"""The lease server towards peers that have shown no token, and how executors reach it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from odradek.spark import lease_server
from odradek.spark.lease_connections import Connections
from odradek.spark.lease_server import _Owner, _Server
from odradek.spark.leases import Address, Following, LeaseError, LeaseServer, ListeningPlace
from odradek.spark.option_names import OptionError
from odradek.spark.options import SinkOptions
from tests.certificates import Authority

SECONDS = 30


@pytest.fixture(scope="module")
def server() -> Iterator[LeaseServer]:
    made = LeaseServer("127.0.0.1", os.getpid())
    yield made
    made.close()


def answer_to(address: Address, sent: bytes) -> object:
    """What the server says before it closes the connection."""

    async def run() -> bytes:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(sent)
        answer = await reader.read()
        writer.close()
        return answer

    return json.loads(asyncio.run(asyncio.wait_for(run(), SECONDS)))


def test_long_line_without_a_token_is_rejected(server: LeaseServer) -> None:
    """Also while its end has not come: nothing more than it may have is kept."""
    address, _ = server.open_batch("q")
    assert answer_to(address, b"x" * 5000) == {"error": "the line is too long"}
    assert answer_to(address, b'{"join": "' + b"x" * 5000 + b'", "task": 1}\n') == {"error": "the line is too long"}


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1",
        b"\xff\xfe",
        b"[" * 4000,
        b"[]",
        b"{}",
        b'{"join": 1, "task": 1}',
        b'{"join": "x"}',
        b'{"drop": null}',
        b'{"acquire": [[]]}',
    ],
)
def test_line_that_is_no_message_is_rejected(server: LeaseServer, line: bytes) -> None:
    address, _ = server.open_batch("q")
    assert answer_to(address, line + b"\n") == {"error": "the line is no message of a task"}


def test_token_that_is_no_text_is_rejected(server: LeaseServer) -> None:
    address, _ = server.open_batch("q")
    found = answer_to(address, b'{"complete": "\\ud800"}\n')
    assert found == {"error": "this transaction is no longer being written"}


async def opened_peers(peers: int) -> tuple[asyncio.Server, list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]:
    """A server in this process, and connections to it, in the order in which it accepts them."""
    serving = await asyncio.get_running_loop().create_server(_Server(os.getpid()).converse, "127.0.0.1", 0)
    port = serving.sockets[0].getsockname()[1]
    return serving, [await asyncio.open_connection("127.0.0.1", port) for _ in range(peers)]


def test_peer_that_shows_no_token_in_time_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_server, "FIRST_LINE_S", 0.05)

    async def run() -> None:
        serving, ((reader, writer),) = await opened_peers(1)
        writer.write(b'{"join": ')
        assert await reader.read() == b'{"error": "no token in time"}\n'
        writer.close()
        serving.close()

    asyncio.run(asyncio.wait_for(run(), SECONDS))


def test_peers_without_a_token_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_server, "FIRST_LINE_S", 2 * SECONDS)
    monkeypatch.setattr(lease_server, "_UNKNOWN_PEERS", 2)

    async def run() -> None:
        serving, peers = await opened_peers(3)
        assert await peers[2][0].read() == b'{"error": "too many connections"}\n'
        peers[0][1].write(b"no message\n")
        assert await peers[0][0].read() == b'{"error": "the line is no message of a task"}\n'
        for _, writer in peers:
            writer.close()
        serving.close()

    asyncio.run(asyncio.wait_for(run(), SECONDS))


def test_token_is_neither_an_argument_nor_printed(server: LeaseServer) -> None:
    address, _ = server.open_batch("q")
    process = Path(f"/proc/{server._process.pid}")
    assert address.token.encode() not in (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    assert address.token not in repr(address)


async def write_once(address: Address) -> dict[str, int]:
    with closing(Connections()) as connections:
        task = await connections.join(address, 1)
        ((lease, _),) = await task.acquire(["t-0"])
        task.release(lease, 5)
        await task.leave()
        task.close()
        return await connections.complete(address)


def test_tasks_reach_the_server_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    place = ListeningPlace("127.0.0.1", 0, authority.issue("/CN=localhost").both)
    server = LeaseServer(place, os.getpid())
    try:
        address, _ = server.open_batch("q", authority.file)
        assert asyncio.run(asyncio.wait_for(write_once(address), SECONDS)) == {"t-0": 5}
        with pytest.raises((LeaseError, OSError)):
            asyncio.run(asyncio.wait_for(write_once(address._replace(authority="")), SECONDS))
        other, _ = server.open_batch("q", Authority(tmp_path / "other").file)
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            asyncio.run(asyncio.wait_for(write_once(other), SECONDS))
        corrected, _ = server.open_batch("q", authority.file)
        assert asyncio.run(asyncio.wait_for(write_once(corrected), SECONDS)) == {"t-0": 5}
    finally:
        server.close()


def test_fixed_port_is_the_first_free_one_from_there_on() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = LeaseServer(ListeningPlace("127.0.0.1", port), os.getpid())
        try:
            assert port < server.open_batch("q")[0].port < port + 16
        finally:
            server.close()


def test_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = LeaseServer(ListeningPlace("127.0.0.1", 0, authority.file), os.getpid())
    try:
        with pytest.raises(LeaseError, match=r"did not start on 127\.0\.0\.1: .*key"):
            server.open_batch("q")
    finally:
        server.close()


def test_what_a_commit_has_left_is_forgotten_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers forget the ids of producers that write nothing, too."""
    owner, left = _Owner("token", follows=True), Following(7, 2, 11, "the-query")
    assert owner.following is None
    owner.committed(left)
    assert owner.following == left
    monkeypatch.setattr(lease_server, "_FOLLOWING_S", 0.0)
    assert owner.following is None


def test_options_say_where_the_server_listens() -> None:
    given = {
        "kafka.bootstrap.servers": "x:1",
        "transactionalid": "q",
        "leasehost": "driver",
        "leaseport": "40000",
        "leasecertificate": "driver.pem",
        "leaseauthority": "ca.pem",
    }
    found = SinkOptions.parse(given, streaming=True)
    assert found[-4:] == ("driver", 40000, "driver.pem", "ca.pem")
    with pytest.raises(OptionError, match="leasePort: 70000 is no port"):
        SinkOptions.parse(given | {"leaseport": "70000"}, streaming=True)
    with pytest.raises(OptionError, match="one is missing"):
        SinkOptions.parse(given | {"leaseauthority": ""}, streaming=True)
