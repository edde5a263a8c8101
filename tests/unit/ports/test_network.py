"""TCP streams on the event loop: readiness, partial writes, file ranges, failures."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from pathlib import Path

import pytest

from odradek.ports.disk import FileRange, SystemDisk
from odradek.ports.network import (
    GATHERED_BYTES,
    WOULD_BLOCK,
    Stream,
    TcpNetwork,
    TcpStream,
    inherited_listener,
    listening_socket,
    most_gathered_bytes,
)


async def pair() -> tuple[Stream, Stream]:
    """(client, server) ends of one connection."""
    accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
    network = TcpNetwork()
    listener = network.listen("127.0.0.1", 0, accepted.set_result)
    client = await network.connect("127.0.0.1", listener.port, 60)
    server = await accepted
    listener.close()
    return client, server


async def read_exactly(stream: Stream, count: int) -> bytes:
    got = bytearray()
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    buffer = memoryview(bytearray(65536))

    def readable() -> None:
        size = stream.receive_into(buffer)
        if size == WOULD_BLOCK:
            return
        got.extend(buffer[:size])
        if (not size or len(got) >= count) and not done.done():
            done.set_result(None)

    stream.watch_reads(readable)
    await asyncio.wait_for(done, 10)
    stream.watch_reads(None)
    return bytes(got)


def test_bytes_arrive_and_an_empty_stream_would_block() -> None:
    async def main() -> None:
        client, server = await pair()
        assert server.receive_into(memoryview(bytearray(10))) == WOULD_BLOCK
        assert client.send(b"hello ", True) == 6
        assert client.send(memoryview(b"world"), False) == 5
        assert await read_exactly(server, 11) == b"hello world"
        assert server.peer_host == "127.0.0.1"
        client.close()
        assert await read_exactly(server, 1) == b"", "the end of the stream"
        server.close()

    asyncio.run(main())


def test_listeners_on_one_inherited_socket_share_its_connections() -> None:
    async def main() -> None:
        accepted: list[tuple[str, Stream]] = []
        opened = listening_socket("127.0.0.1", 0)
        port = opened.getsockname()[1]
        first, second = (
            inherited_listener(os.dup(opened.fileno()), lambda stream, name=name: accepted.append((name, stream)))  # type: ignore[misc]
            for name in ("first", "second")
        )
        assert (first.port, second.port) == (port, port)
        client = await TcpNetwork().connect("127.0.0.1", port, 60)
        while not accepted:
            await asyncio.sleep(0)
        first.close()
        other = await TcpNetwork().connect("127.0.0.1", port, 60)
        while len(accepted) < 2:
            await asyncio.sleep(0)
        assert accepted[1][0] == "second"
        second.close()
        # The one that opened the socket keeps it: clients that connect now wait until it is served again.
        waiting = await TcpNetwork().connect("127.0.0.1", port, 60)
        assert len(accepted) == 2
        opened.close()
        for stream in (client, other, waiting, *(stream for _, stream in accepted)):
            stream.close()

    asyncio.run(main())


def test_full_socket_blocks_and_reports_when_it_has_room() -> None:
    async def main() -> None:
        client, server = await pair()
        data, sent = b"x" * (1 << 20), 0
        while (taken := client.send(data, False)) != WOULD_BLOCK:
            sent += taken
        writable = asyncio.Event()
        client.watch_writes(writable.set)
        assert len(await read_exactly(server, sent)) == sent
        await asyncio.wait_for(writable.wait(), 10)
        client.watch_writes(None)
        client.close()
        server.close()

    asyncio.run(main())


def test_reader_is_called_when_the_bytes_that_it_expects_have_come() -> None:
    async def main() -> None:
        client, server = await pair()
        other, echo = await pair()
        readable = asyncio.Event()
        server.expect(50_000)
        server.watch_reads(readable.set)
        client.send(b"x" * 20_000, False)
        other.send(b"y", False)
        await read_exactly(echo, 1)  # sent later: what is readable of the first connection has been reported
        assert not readable.is_set()
        client.send(b"x" * 30_000, False)
        await asyncio.wait_for(readable.wait(), 30)
        server.watch_reads(None)
        assert len(await read_exactly(server, 50_000)) == 50_000
        server.expect(0)
        client.send(b"x", False)
        assert await read_exactly(server, 1) == b"x"
        server.expect(50_000)
        client.close()
        assert await read_exactly(server, 1) == b"", "the end wakes the reader, too"
        for stream in (server, other, echo):
            stream.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("system", "release", "most"),
    [
        ("Linux", "6.18.44-v1", 1 << 20),
        ("Linux", "4.18.0", 1 << 20),
        ("Linux", "4.17.19", GATHERED_BYTES),  # the buffer does not grow with the mark
        ("Linux", "3.10.0-1160.el7", GATHERED_BYTES),
        ("Linux", "6", GATHERED_BYTES),
        ("Darwin", "24.1.0", GATHERED_BYTES),
    ],
)
def test_more_may_gather_where_the_socket_buffer_grows(system: str, release: str, most: int) -> None:
    assert most_gathered_bytes(system, release) == most


def test_bytes_that_gather_in_a_socket_are_counted() -> None:
    async def main() -> None:
        client, server = await pair()
        other, echo = await pair()
        readable = asyncio.Event()
        server.expect(3 << 20)
        server.watch_reads(readable.set)
        assert server.gathered_bytes() == 0
        for size in (30_000, 60_000):
            client.send(b"x" * 30_000, False)
            other.send(b"y", False)
            await read_exactly(echo, 1)  # sent later: the bytes before it have come
            assert (server.gathered_bytes(), readable.is_set()) == (size, False)
        client.close()
        await asyncio.wait_for(readable.wait(), 30)
        server.watch_reads(None)
        assert len(await read_exactly(server, 60_000)) == 60_000
        assert server.gathered_bytes() == 0
        for stream in (server, other, echo):
            stream.close()

    asyncio.run(main())


def test_reset_wakes_the_reader_of_a_large_frame() -> None:
    async def main() -> None:
        client, server = await pair()
        failed: asyncio.Future[OSError] = asyncio.get_running_loop().create_future()

        def readable() -> None:
            try:
                server.receive_into(memoryview(bytearray(10)))
            except OSError as error:
                server.watch_reads(None)
                failed.set_result(error)

        server.expect(3 << 20)
        server.watch_reads(readable)
        assert isinstance(client, TcpStream)
        client.detach().setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        assert isinstance(await asyncio.wait_for(failed, 30), ConnectionResetError)
        server.close()

    asyncio.run(main())


@pytest.mark.parametrize("buffer", [None, 65_536])
def test_large_frame_arrives_whatever_the_size_of_its_socket_buffer(buffer: int | None) -> None:
    """The kernel wakes the reader of a buffer that is full below the mark."""

    async def main() -> None:
        client, server = await pair()
        if buffer is not None:
            assert isinstance(server, TcpStream)
            server.detach().setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        left, received, wakes = memoryview(bytes(4 << 20)), 0, 0
        done = asyncio.get_running_loop().create_future()
        space = memoryview(bytearray(2 << 20))

        def send() -> None:
            nonlocal left
            while left and (sent := client.send(left, False)) != WOULD_BLOCK:
                left = left[sent:]
            if not left:
                client.watch_writes(None)

        def receive() -> None:
            nonlocal received, wakes
            count = server.receive_into(space)
            received, wakes = received + count, wakes + 1
            server.expect((4 << 20) - received)
            if received == 4 << 20:
                server.watch_reads(None)
                done.set_result(None)

        server.expect(4 << 20)
        server.watch_reads(receive)
        client.watch_writes(send)
        await asyncio.wait_for(done, 60)
        if buffer is None and most_gathered_bytes(os.uname().sysname, os.uname().release) > GATHERED_BYTES:
            assert wakes <= 16, "up to 1 MB at a time"
        client.close()
        server.close()

    asyncio.run(main())


def test_a_file_range_is_sent_and_a_file_that_is_too_short_is_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        disk = SystemDisk()
        path = str(tmp_path / "file")
        disk.write_atomic(path, bytes(range(100)), sync=False)
        file = disk.open(path)
        client, server = await pair()
        assert client.send_file(FileRange(file, 10, 50)) == 50
        assert await read_exactly(server, 50) == bytes(range(10, 60))
        with pytest.raises(OSError, match="ends before byte 120"):
            client.send_file(FileRange(file, 100, 20))
        client.close()
        server.close()

    asyncio.run(main())


def test_connection_to_a_closed_port_is_refused_in_time() -> None:
    async def main() -> None:
        # Bound, so that no other process listens there meanwhile.
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            with pytest.raises(ConnectionRefusedError):
                await TcpNetwork().connect("127.0.0.1", bound.getsockname()[1], 60)

    asyncio.run(main())


def test_a_port_in_use_is_an_error() -> None:
    async def main() -> None:
        network = TcpNetwork()
        listener = network.listen("127.0.0.1", 0, lambda stream: None)
        with pytest.raises(OSError, match="in use"):
            network.listen("127.0.0.1", listener.port, lambda stream: None)
        listener.close()

    asyncio.run(main())


def test_own_host_of_an_unnamed_machine_is_not_localhost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda: "kafka1.example.org")
    assert TcpNetwork().own_host() == "kafka1.example.org"
    monkeypatch.setattr(socket, "getfqdn", lambda: "localhost.localdomain")
    host = TcpNetwork().own_host()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            assert host == "localhost.localdomain"
        else:
            assert host == probe.getsockname()[0]


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has a user timeout")
def test_connection_breaks_after_the_silence_that_was_asked_for() -> None:
    async def scenario() -> None:
        network = TcpNetwork()
        listener = network.listen("127.0.0.1", 0, lambda stream: stream.close())
        stream = await network.connect("127.0.0.1", listener.port, 30.0, silence=3.0)
        connection = stream.detach()
        options = {
            socket.TCP_USER_TIMEOUT: 3000,
            socket.TCP_KEEPIDLE: 1,
            socket.TCP_KEEPINTVL: 1,
            socket.TCP_KEEPCNT: 3,
        }
        assert {each: connection.getsockopt(socket.IPPROTO_TCP, each) for each in options} == options
        connection.close()
        listener.close()

    asyncio.run(scenario())
