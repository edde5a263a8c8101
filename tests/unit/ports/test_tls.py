"""TLS streams on the event loop: handshakes, records that no readiness announces, both ends of a connection."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from pathlib import Path
from random import Random

import pytest

from odradek.ports.disk import FileRange, SystemDisk
from odradek.ports.network import WOULD_BLOCK, Stream, TcpNetwork, TlsError
from odradek.ports.tls import MOST_UNSENT_BYTES, Handshake, TlsStream, connect_tls
from tests.certificates import Authority
from tests.unit.ports.test_network import pair, read_exactly

SECONDS = 30


class Contexts:
    """A server's context, and a client's that trusts it."""

    def __init__(self, folder: Path, subject: str = "/CN=localhost") -> None:
        self.authority = Authority(folder)
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(self.authority.issue(subject).both)
        self.client = ssl.create_default_context(cafile=self.authority.file)

    async def pair(self, host: str = "localhost", client: ssl.SSLContext | None = None) -> tuple[TlsStream, TlsStream]:
        """(client, server) ends after their handshake. Raises TlsError."""
        plain, accepted = await pair()
        server = TlsStream(accepted, self.server, is_server=True)
        accepting = asyncio.create_task(accept(server))
        try:
            return await connect_tls(plain, client or self.client, host, SECONDS), await accepting
        finally:
            accepting.cancel()


async def accept(server: TlsStream) -> TlsStream:
    while (wanted := server.handshake()) is not Handshake.COMPLETE:
        assert wanted is Handshake.WANTS_READ
        ready = asyncio.Event()
        server.watch_reads(ready.set)
        await asyncio.wait_for(ready.wait(), SECONDS)
        server.watch_reads(None)
    return server


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    return Contexts(tmp_path_factory.mktemp("certificates"))


def test_bytes_arrive_both_ways(contexts: Contexts) -> None:
    async def main() -> None:
        client, server = await contexts.pair()
        assert client.version == "TLSv1.3"
        assert server.receive_into(memoryview(bytearray(10))) == WOULD_BLOCK
        assert client.send(b"hello ", True) == 6
        assert client.send(memoryview(b"world"), False) == 5
        assert await read_exactly(server, 11) == b"hello world"
        assert server.send(b"back", False) == 4
        assert await read_exactly(client, 4) == b"back"
        client.close()
        assert await read_exactly(server, 1) == b"", "the end of the stream"
        server.close()

    asyncio.run(main())


def test_bytes_of_a_record_arrive_with_small_reads(contexts: Contexts) -> None:
    """Most of a record lies decrypted in OpenSSL after the first read: the socket is not readable for it."""

    async def main() -> None:
        client, server = await contexts.pair()
        data = bytes(range(256)) * 40
        client.send(data, False)
        got = bytearray()
        done = asyncio.Event()
        small = memoryview(bytearray(100))

        def readable() -> None:
            size = server.receive_into(small)
            if size > 0:
                got.extend(small[:size])
            if len(got) == len(data):
                done.set()

        server.watch_reads(readable)
        await asyncio.wait_for(done.wait(), SECONDS)
        assert got == data
        client.close()
        server.close()

    asyncio.run(main())


def test_pending_bytes_wait_while_reads_are_not_watched(contexts: Contexts) -> None:
    async def main() -> None:
        client, server = await contexts.pair()
        client.send(b"ab", False)
        assert await read_exactly(server, 1) == b"ab"
        client.send(b"x" * 1000, False)
        first = asyncio.Event()
        server.watch_reads(first.set)
        await asyncio.wait_for(first.wait(), SECONDS)
        buffer = memoryview(bytearray(10))
        assert server.receive_into(buffer) == 10
        server.watch_reads(None)
        await asyncio.sleep(0)
        assert len(await read_exactly(server, 990)) == 990
        client.close()
        server.close()

    asyncio.run(main())


def test_connections_of_a_loop_do_not_mix_their_bytes(contexts: Contexts) -> None:
    """All of them pass through the same memory, whatever parts of records, full buffers and sockets leave there."""

    async def main() -> None:
        random = Random(7)
        pairs = [await contexts.pair() for _ in range(4)]
        ways = [Way(*ends, random) for client, server in pairs for ends in ((client, server), (server, client))]
        await asyncio.wait_for(asyncio.gather(*(way.done for way in ways)), SECONDS)
        for way in ways:
            assert way.got == way.data
        for each in (stream for both in pairs for stream in both):
            each.close()

    asyncio.run(main())


class Way:
    """Bytes of one direction, sent in pieces and received into buffers of random sizes."""

    def __init__(self, sender: TlsStream, receiver: TlsStream, random: Random) -> None:
        self.data = random.randbytes(400_000)
        self.got = bytearray()
        self.done = asyncio.get_running_loop().create_future()
        self._rest = memoryview(self.data)
        self._piece = self._rest[:0]
        self._sender, self._receiver, self._random = sender, receiver, random
        receiver.watch_reads(self._readable)
        sender.watch_writes(self._writable)

    def _writable(self) -> None:
        if not self._piece:
            self._piece = self._rest[: self._random.choice((1, 700, 3000, 100_000))]
        sent = max(0, self._sender.send(self._piece, False))
        self._piece, self._rest = self._piece[sent:], self._rest[sent:]
        if not self._rest:
            self._sender.watch_writes(None)

    def _readable(self) -> None:
        buffer = memoryview(bytearray(self._random.choice((1, 50, 5000, 200_000))))
        count = self._receiver.receive_into(buffer)
        assert count, "the other side stays open"
        if count != WOULD_BLOCK:
            self.got += buffer[:count]
            self._receiver.expect(len(self.data) - len(self.got))
        if len(self.got) == len(self.data):
            self._receiver.watch_reads(None)
            self.done.set_result(None)


def test_damaged_record_is_an_error_after_the_bytes_before_it(contexts: Contexts) -> None:
    async def main() -> None:
        client, server = await contexts.pair()
        client.send(b"good", False)
        client._socket.send(b"\x17\x03\x03\0\x20" + bytes(32))
        assert await read_exactly(server, 4) == b"good"
        await readable(server)
        with pytest.raises(TlsError, match="decryption failed or bad record mac"):
            server.receive_into(memoryview(bytearray(10)))
        client.close()
        server.close()

    asyncio.run(main())


def test_end_behind_bytes_is_received_without_a_further_event(contexts: Contexts) -> None:
    """The peer's close_notify came with the bytes: no event of the socket announces it."""

    async def main() -> None:
        client, server = await contexts.pair()
        client.send(b"last", False)
        with pytest.raises(ssl.SSLWantReadError):
            client._tls.unwrap()
        client._send_records()
        await readable(server)
        buffer = memoryview(bytearray(10))
        seen = []
        ended = asyncio.Event()

        def read() -> None:
            seen.append(server.receive_into(buffer))
            if not seen[-1]:
                server.watch_reads(None)
                ended.set()

        server.watch_reads(read)
        await asyncio.wait_for(ended.wait(), SECONDS)
        assert [each for each in seen if each != WOULD_BLOCK] == [4, 0]
        client.close()
        server.close()

    asyncio.run(main())


async def readable(stream: Stream) -> None:
    ready = asyncio.Event()
    stream.watch_reads(ready.set)
    await asyncio.wait_for(ready.wait(), SECONDS)
    stream.watch_reads(None)


def test_answers_to_a_peer_that_does_not_read_are_bounded(contexts: Contexts) -> None:
    """A peer may ask for new keys without an end, and each time OpenSSL writes an answer."""

    async def main() -> None:
        client, server = await contexts.pair()
        while server.send(bytes(100_000), False) != WOULD_BLOCK:
            pass
        server._records.outgoing.write(bytes(MOST_UNSENT_BYTES))
        server._answer()
        assert server.receive_into(memoryview(bytearray(10))) == WOULD_BLOCK
        server._records.outgoing.write(bytes(MOST_UNSENT_BYTES))
        server._answer()
        with pytest.raises(TlsError, match="asks for new keys and does not read the answers"):
            server.receive_into(memoryview(bytearray(10)))
        client.close()
        server.close()

    asyncio.run(main())


def test_key_updates_of_the_peer_are_answered(contexts: Contexts) -> None:
    """`K` at the beginning of a line has s_client ask for new keys, in both directions."""

    async def main() -> None:
        accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
        listener = TcpNetwork().listen("127.0.0.1", 0, accepted.set_result)
        client = await asyncio.create_subprocess_exec(
            *("openssl", "s_client", "-connect", f"127.0.0.1:{listener.port}", "-quiet", "-no_ign_eof"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        server = await accept(TlsStream(await accepted, contexts.server, is_server=True))
        assert client.stdin is not None
        assert client.stdout is not None
        for word in (b"one\n", b"two\n"):
            client.stdin.write(word)
            assert await read_exactly(server, 4) == word
            client.stdin.write(b"K\n")
            await readable(server)
            assert server.receive_into(memoryview(bytearray(10))) == WOULD_BLOCK
            assert server.send(b"back\n", False) == 5
            assert await asyncio.wait_for(client.stdout.readexactly(5), SECONDS) == b"back\n"
        listener.close()
        server.close()
        client.kill()
        await client.wait()

    asyncio.run(main())


def test_second_connection_resumes_the_session(contexts: Contexts) -> None:
    """It costs the server no signature."""

    async def connected(session: ssl.SSLSession | None) -> tuple[bool, ssl.SSLSession | None]:
        accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
        listener = TcpNetwork().listen("127.0.0.1", 0, accepted.set_result)

        def use() -> tuple[bool, ssl.SSLSession | None]:
            with socket.create_connection(("127.0.0.1", listener.port), SECONDS) as plain:
                client = contexts.client.wrap_socket(plain, server_hostname="localhost", session=session)
                client.recv(2)  # the ticket comes before it
                return bool(client.session_reused), client.session

        using = asyncio.create_task(asyncio.to_thread(use))
        server = await accept(TlsStream(await accepted, contexts.server, is_server=True))
        server.send(b"ok", False)
        found = await using
        listener.close()
        server.close()
        return found

    async def main() -> None:
        is_first_reused, session = await connected(None)
        is_second_reused, _ = await connected(session)
        assert (is_first_reused, is_second_reused) == (False, True)

    asyncio.run(main())


def test_blocked_parts_are_sent_whole(contexts: Contexts, tmp_path: Path) -> None:
    """Bytes and a file, each larger than the socket takes at once."""

    async def main() -> None:
        client, server = await contexts.pair()
        content = bytes(range(251)) * 40_000
        file = SystemDisk().open(str(tmp_path / "f"), create=True)
        file.append([content])
        sender = asyncio.create_task(send_all(server, content, FileRange(file, 5, len(content) - 5)))
        assert await read_exactly(client, 2 * len(content) - 5) == content + content[5:]
        await sender
        client.close()
        server.close()

    asyncio.run(main())


async def send_all(stream: Stream, data: bytes, part: FileRange) -> None:
    view = memoryview(data)
    blocked = 0
    while view:
        sent = stream.send(view, False)
        if sent == WOULD_BLOCK:
            blocked += 1
            await writable(stream)
        else:
            view = view[sent:]
    while part.size:
        sent = stream.send_file(part)
        if sent == WOULD_BLOCK:
            blocked += 1
            await writable(stream)
        else:
            part = FileRange(part.file, part.position + sent, part.size - sent)
    assert blocked, "the socket takes less"


async def writable(stream: Stream) -> None:
    ready = asyncio.Event()
    stream.watch_writes(ready.set)
    await asyncio.wait_for(ready.wait(), SECONDS)
    stream.watch_writes(None)


def test_file_that_ends_early_is_an_error(contexts: Contexts, tmp_path: Path) -> None:
    async def main() -> None:
        client, server = await contexts.pair()
        file = SystemDisk().open(str(tmp_path / "f"), create=True)
        file.append([b"abc"])
        with pytest.raises(OSError, match="ends before byte 10"):
            server.send_file(FileRange(file, 3, 7))
        client.close()
        server.close()

    asyncio.run(main())


def test_client_rejects_another_host_name(contexts: Contexts) -> None:
    async def main() -> None:
        with pytest.raises(TlsError, match="not valid: Hostname mismatch"):
            await contexts.pair("elsewhere.example")

    asyncio.run(main())


def test_client_rejects_an_unknown_authority(contexts: Contexts, tmp_path: Path) -> None:
    async def main() -> None:
        stranger = ssl.create_default_context(cafile=Authority(tmp_path, "other").file)
        with pytest.raises(TlsError, match="the peer's certificate is not valid: unable to get local issuer"):
            await contexts.pair(client=stranger)

    asyncio.run(main())


def test_plain_text_peer_is_named_and_closed_cleanly(contexts: Contexts) -> None:
    """The rest of what the peer sent is read: a close with unread bytes would be a reset."""

    async def main() -> None:
        plain, accepted = await pair()
        plain.send(b"\x00\x00\x00\x1f\x00\x12" + bytes(1000), False)
        server = TlsStream(accepted, contexts.server, is_server=True)
        with pytest.raises(TlsError, match="does not speak TLS"):
            await accept(server)
        server.abort()
        alert = await read_exactly(plain, 7)
        assert alert[:2] in (b"\x15\x03", b"")
        plain.close()

    asyncio.run(main())


def test_silent_server_ends_the_attempt(contexts: Contexts) -> None:
    async def main() -> None:
        plain, accepted = await pair()
        with pytest.raises(TimeoutError):
            await connect_tls(plain, contexts.client, "localhost", 0.01)
        accepted.close()

    asyncio.run(main())


def test_simulated_stream_is_rejected(contexts: Contexts) -> None:
    class Other:
        peer_host = "h"
        peer_port = 1

    async def main() -> None:
        with pytest.raises(TypeError, match="TLS needs a TCP stream"):
            TlsStream(Other(), contexts.server, is_server=True)  # type: ignore[arg-type]

    asyncio.run(main())
