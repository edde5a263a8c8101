"""The connection: order of answers, backpressure, partial writes, file ranges."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.api.requests.session import Session
from odradek.broker.network.connection import (
    COPIED_BYTES,
    JOIN_BYTES,
    MOST_SENDS,
    Disconnect,
    InboundConnection,
    Pending,
    Shared,
)
from odradek.broker.network.turns import NEW_SECONDS, WAITING_SECONDS, Turns
from odradek.ports.disk import File, FileRange, SystemDisk
from odradek.ports.network import WOULD_BLOCK, Part
from odradek.wire.frames import FrameReader, ReceiveBuffers


class ScriptedStream:
    """A stream whose input is a list of chunks and whose socket takes as many bytes as `window` says."""

    peer_host = "127.0.0.1"
    peer_port = 1

    def __init__(self) -> None:
        self.incoming: list[bytes] = []
        self.sent = bytearray()
        self.window: int | None = None
        self.read_callback: Callable[[], None] | None = None
        self.write_callback: Callable[[], None] | None = None
        self.expected: list[int] = []
        self.closed = False

    def receive_into(self, buffer: memoryview) -> int:
        if not self.incoming:
            return WOULD_BLOCK
        chunk = self.incoming.pop(0)
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def _take(self, data: bytes) -> int:
        if self.window is None:
            self.sent += data
            return len(data)
        if not self.window:
            return WOULD_BLOCK
        taken = min(self.window, len(data))
        self.window -= taken
        self.sent += data[:taken]
        return taken

    def send(self, part: bytes | bytearray | memoryview, more: bool) -> int:
        return self._take(bytes(part))

    def send_file(self, part: FileRange) -> int:
        return self._take(part.file.read(part.position, part.size))

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        self.read_callback = callback

    def expect(self, size: int) -> None:
        self.expected.append(size)

    def gathered_bytes(self) -> int:
        return sum(map(len, self.incoming))

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        self.write_callback = callback

    def close(self) -> None:
        self.closed = True
        self.read_callback = self.write_callback = None

    def deliver(self, *frames: bytes) -> None:
        for frame in frames:
            self.incoming.append(len(frame).to_bytes(4, "big") + frame)
        while self.incoming and self.read_callback is not None:
            self.read_callback()


class Server:
    """Answers a frame by itself; frames that begin with `wait` or `hold` are answered on request."""

    def __init__(
        self,
        stream: ScriptedStream | None = None,
        *,
        max_in_flight: int = 100,
        max_frame_bytes: int = 1 << 20,
        buffers: ReceiveBuffers | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.stream = stream or ScriptedStream()
        self.served: list[bytes] = []
        self.waiting: dict[bytes, Pending] = {}
        self.reasons: list[str] = []
        self.extra: list[Part] = []
        self.connection = InboundConnection(
            self.stream,
            Shared(self.dispatch, lambda _, why: self.reasons.append(why), turns or Turns()),
            1,
            Session("PLAINTEXT", "127.0.0.1"),
            FrameReader(max_frame_bytes, buffers),
            max_in_flight,
        )

    def dispatch(self, frame: memoryview, connection: InboundConnection) -> list[Part] | Pending | None:
        request = bytes(frame)
        self.served.append(request)
        if request == b"bad":
            raise Disconnect("garbage")
        if request == b"silent":
            return None
        if request.startswith(b"throttle"):
            connection.throttle(1)
            return [b"T"]
        if request.startswith((b"wait", b"hold")):
            self.waiting[request] = Pending(connection, request.startswith(b"wait"))
            return self.waiting[request]
        return [request, *self.extra]


def test_answers_leave_in_request_order_when_later_ones_are_ready_first() -> None:
    server = Server()
    server.stream.deliver(b"a", b"wait1", b"b", b"wait2", b"silent", b"c")
    assert server.served == [b"a", b"wait1", b"b", b"wait2", b"silent", b"c"]
    assert server.stream.sent == b"a"
    server.waiting[b"wait2"].answer([b"2"])
    assert server.stream.sent == b"a"
    server.waiting[b"wait1"].answer([b"1"])
    assert server.stream.sent == b"a1b2c"


def test_a_request_that_must_not_be_overtaken_holds_up_the_next_ones() -> None:
    server = Server()
    server.stream.deliver(b"hold1")
    server.stream.incoming.append(b"".join(len(f).to_bytes(4, "big") + f for f in (b"a", b"hold2", b"b")))
    server.stream.deliver()
    assert server.served == [b"hold1"]
    server.waiting[b"hold1"].answer([b"1"])
    assert server.served == [b"hold1", b"a", b"hold2"]
    assert server.stream.sent == b"1a"
    server.waiting[b"hold2"].answer(None)
    assert server.stream.sent == b"1ab"


def test_reading_stops_while_the_peer_takes_no_answers() -> None:
    server = Server()
    server.stream.window = 3
    server.stream.deliver(b"answer")
    assert server.stream.sent == b"ans"
    assert server.stream.read_callback is None
    assert (server.connection.is_blocked, server.connection.sends_resumed) == (True, 0)
    server.stream.window = None
    assert server.stream.write_callback is not None
    server.stream.write_callback()
    assert (server.connection.is_blocked, server.connection.sends_resumed) == (False, 1)
    assert server.stream.sent == b"answer"
    assert server.stream.write_callback is None
    assert server.stream.read_callback is not None


class CountingStream(ScriptedStream):
    """Remembers what each system call sent."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def send(self, part: bytes | bytearray | memoryview, more: bool) -> int:
        self.calls.append("send")
        return super().send(part, more)

    def send_file(self, part: FileRange) -> int:
        self.calls.append("sendfile")
        return super().send_file(part)


def file_of(path: Path, size: int) -> File:
    (path / "log").write_bytes(random.Random(1).randbytes(size))
    return SystemDisk().open(str(path / "log"))


def test_small_ranges_are_joined_to_the_parts_before_them(tmp_path: Path) -> None:
    server, file = Server(CountingStream()), file_of(tmp_path, 20_000)
    server.extra = [
        FileRange(file, 0, 100),
        b"-",
        FileRange(file, 100, 100),
        b"-",
        FileRange(file, 0, COPIED_BYTES + 1),
    ]
    server.stream.deliver(b"a")
    assert server.stream.calls == ["send", "sendfile"]  # type: ignore[attr-defined]
    assert server.stream.sent == b"a" + file.read(0, 100) + b"-" + file.read(100, 100) + b"-" + file.read(
        0, COPIED_BYTES + 1
    )


def test_range_that_the_file_does_not_have_closes_the_connection(tmp_path: Path) -> None:
    server, file = Server(), file_of(tmp_path, 100)
    server.extra = [FileRange(file, 50, 51)]
    server.stream.deliver(b"a")
    assert server.reasons == [f"{tmp_path}/log: ends before byte 101"]


def test_answer_of_many_parts_is_sent_in_pieces(tmp_path: Path) -> None:
    """Others are served between them."""
    server, file = Server(CountingStream()), file_of(tmp_path, COPIED_BYTES + 1)
    large = FileRange(file, 0, COPIED_BYTES + 1)
    server.extra = [large] * (2 * MOST_SENDS)
    server.stream.deliver(b"a")
    turns = []
    while server.stream.write_callback is not None:
        turns.append(len(server.stream.calls))  # type: ignore[attr-defined]
        assert server.stream.read_callback is None
        server.stream.write_callback()
    assert turns == [MOST_SENDS, 2 * MOST_SENDS]
    assert server.stream.sent == b"a" + file.read(0, large.size) * 2 * MOST_SENDS


def test_reading_stops_at_the_limit_of_open_requests() -> None:
    async def answered() -> None:
        server = Server(max_in_flight=2)
        server.stream.deliver(b"wait1", b"wait2")
        assert server.stream.read_callback is None
        server.waiting[b"wait1"].answer([b"1"])
        assert server.stream.read_callback is not None

    asyncio.run(answered())


def test_answer_to_an_earlier_request_precedes_the_next_request() -> None:
    """As a Produce does that moves the high watermark, while others of its connection are held back."""

    async def scenario() -> None:
        server = Server(max_in_flight=2)
        frames = (b"wait1", b"wait2", b"commits", b"next")
        server.stream.incoming.append(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
        server.stream.deliver()
        serve = server.dispatch

        def dispatch(frame: memoryview, connection: InboundConnection) -> list[Part] | Pending | None:
            if bytes(frame) == b"commits":
                server.waiting[b"wait2"].answer([b"2"])
            return serve(frame, connection)

        server.connection._dispatch = dispatch
        server.waiting[b"wait1"].answer([b"1"])
        await asyncio.sleep(0)
        assert server.stream.sent == b"12commitsnext"
        assert server.served == [b"wait1", b"wait2", b"commits", b"next"]

    asyncio.run(scenario())


def test_answers_of_one_turn_of_the_loop_go_out_together() -> None:
    async def answered() -> None:
        server = Server()
        server.stream.deliver(b"wait1", b"wait2", b"wait3")
        server.waiting[b"wait1"].answer([b"1"])
        server.waiting[b"wait2"].answer([b"2"])
        assert server.stream.sent == b""
        await asyncio.sleep(0)
        assert server.stream.sent == b"12"
        server.waiting[b"wait3"].answer([b"3"])
        assert server.stream.sent == b"123"

    asyncio.run(answered())


def test_a_frame_over_the_limit_closes_the_connection() -> None:
    server = Server(max_frame_bytes=10)
    server.stream.deliver(b"x" * 11)
    assert server.stream.closed
    assert len(server.reasons) == 1


def test_garbage_closes_the_connection_once_and_late_answers_are_dropped() -> None:
    server = Server()
    server.stream.deliver(b"wait1", b"bad", b"a")
    assert server.stream.closed
    assert server.served == [b"wait1", b"bad"]
    server.waiting[b"wait1"].answer([b"1"])
    server.connection.close("again")
    assert server.reasons == ["garbage"]
    assert server.stream.sent == b""


def test_a_broken_stream_ends_the_connection() -> None:
    server = Server()
    server.stream.incoming.append(b"")
    server.stream.deliver()
    assert server.reasons == ["closed by the peer"]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(1, 5))
def test_any_window_of_the_socket_sends_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, windows: list[int], answers: int
) -> None:
    disk = SystemDisk()
    path = str(tmp_path_factory.mktemp("ranges") / "data")
    disk.write_atomic(path, bytes(range(200)), sync=False)
    file = disk.open(path)
    server = Server()
    server.extra = [FileRange(file, 10, 50), b"-", memoryview(b"tail" * 10), FileRange(file, 100, 30)]
    one = bytes(range(10, 60)) + b"-" + b"tail" * 10 + bytes(range(100, 130))
    server.stream.window = 0
    for i in range(answers):
        server.stream.deliver(b"q%d" % i)
    for window in windows:
        server.stream.window = window
        if server.stream.write_callback is not None:
            server.stream.write_callback()
        if server.stream.read_callback is not None:
            server.stream.deliver()
    while server.stream.write_callback is not None or server.stream.incoming:
        server.stream.window = None
        if server.stream.write_callback is not None:
            server.stream.write_callback()
        server.stream.deliver()
    assert bytes(server.stream.sent) == b"".join(b"q%d" % i + one for i in range(answers))


def test_a_closed_connection_gives_up_what_it_waited_for() -> None:
    server = Server()
    abandoned: list[str] = []
    server.stream.deliver(b"wait1", b"wait2")
    server.waiting[b"wait1"].abandon = lambda: abandoned.append("wait1")
    server.waiting[b"wait2"].answer([b"2"])
    server.waiting[b"wait2"].abandon = lambda: abandoned.append("wait2")
    server.connection.close("gone")
    assert abandoned == ["wait1"]


def together(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def test_a_client_that_has_to_pause_is_answered_first_and_served_later() -> None:
    async def play() -> None:
        server = Server()
        server.stream.incoming.append(together(b"wait", b"throttle", b"throttle", b"a"))
        server.stream.deliver()
        assert server.served == [b"wait", b"throttle"]
        assert server.stream.read_callback is None
        server.waiting[b"wait"].answer([b"w"])
        assert server.stream.sent == b"wT", "answers are not held back"
        assert server.served == [b"wait", b"throttle"]
        assert not server.connection.idle
        while server.stream.read_callback is None:
            await asyncio.sleep(0)
        assert server.served == [b"wait", b"throttle", b"throttle", b"a"]
        assert server.stream.sent == b"wTTa"
        server.stream.deliver(b"b")
        assert server.stream.sent == b"wTTab"

    asyncio.run(play())


def test_a_pause_outlives_its_connection() -> None:
    async def play() -> None:
        server = Server()
        server.stream.incoming.append(together(b"throttle", b"a"))
        server.stream.deliver()
        server.connection.close("gone")
        await asyncio.sleep(0.01)
        assert server.served == [b"throttle"]

    asyncio.run(play())


def test_a_large_frame_waits_until_there_is_a_buffer_for_it() -> None:
    buffers = ReceiveBuffers(limit=1000)
    greedy, other = (Server(max_frame_bytes=1 << 21, buffers=buffers) for _ in range(2))
    large = together(bytes(300_000))
    greedy.stream.incoming = [large[:100_000], large[100_000:200_000]]
    greedy.stream.deliver()
    assert buffers.in_use
    other.stream.incoming = [large[:100_000], large[100_000:]]
    other.stream.deliver()
    assert other.stream.read_callback is None
    assert (other.served, len(other.stream.incoming)) == ([], 1)
    greedy.stream.incoming = [large[200_000:]]
    greedy.stream.deliver()
    assert greedy.served == [large[4:]]
    other.stream.deliver()
    assert other.served == [large[4:]]
    assert buffers.in_use == 0


def test_bytes_that_a_large_frame_lacks_are_expected() -> None:
    server = Server(max_frame_bytes=1 << 21)
    large = together(bytes(300_000))
    server.stream.incoming = [large[:100_000], large[100_000:200_000], large[200_000:250_000]]
    server.stream.deliver()
    assert server.stream.expected == [300_004 - 200_000, 300_004 - 250_000]
    server.stream.incoming = [large[250_000:]]
    server.stream.deliver()
    assert server.stream.expected[2:] == [0]
    server.stream.incoming = [together(b"small")]
    server.stream.deliver()
    assert server.stream.expected[3:] == []


def test_large_request_counts_what_has_gathered_in_its_socket() -> None:
    """A slow peer makes progress although its bytes are too few to wake the reader."""
    server = Server(max_frame_bytes=1 << 22)
    assert server.connection.large_request_bytes is None
    large = together(bytes(3 << 20))
    server.stream.incoming = [large[:100_000], large[100_000:200_000]]
    server.stream.deliver()
    assert server.connection.large_request_bytes == 200_000
    server.stream.incoming = [large[200_000:270_000]]
    assert server.connection.large_request_bytes == 270_000
    server.stream.deliver()
    assert server.connection.large_request_bytes == 270_000, "bytes count once"


def test_requests_that_are_held_count_as_bytes_in_use() -> None:
    buffers = ReceiveBuffers()
    server = Server(buffers=buffers)
    server.stream.incoming.append(together(b"hold", b"a", b"bc"))
    server.stream.deliver()
    assert buffers.in_use == 3
    server.waiting[b"hold"].answer(None)
    assert buffers.in_use == 0
    server.stream.incoming.append(together(b"hold", b"a", b"bc"))
    server.stream.deliver()
    server.connection.close("gone")
    assert buffers.in_use == 0


def test_full_read_is_answered_only_as_far_as_the_peer_reads() -> None:
    server = Server()
    server.extra = [b"x" * 20_000]
    server.stream.window = 100_000
    requests = [b"%03d" % number for number in range(500)]
    server.stream.incoming.append(b"".join(len(request).to_bytes(4, "big") + request for request in requests))
    server.stream.deliver()
    assert len(server.served) < 10
    server.stream.window = None
    while server.stream.write_callback is not None:
        server.stream.write_callback()
    assert server.served == requests
    assert server.stream.sent == b"".join(request + b"x" * 20_000 for request in requests)


def test_answers_that_wait_for_an_earlier_one_are_bounded() -> None:
    server = Server(max_in_flight=3)
    requests = [b"wait", *(b"%d" % number for number in range(9))]
    server.stream.incoming.append(b"".join(len(request).to_bytes(4, "big") + request for request in requests))
    server.stream.deliver()
    assert server.served == requests[:3]
    server.waiting[b"wait"].answer([b"w"])
    assert server.served == requests
    assert server.stream.sent == b"w012345678"


class Turn:
    """Connections of which each request takes as long as the waiting ones have in a turn."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.order: list[bytes] = []
        """Whose requests were served."""

    def server(self, name: bytes) -> Server:
        server = Server(turns=self.turns)
        serve = server.dispatch

        def dispatch(frame: memoryview, connection: InboundConnection) -> list[Part] | Pending | None:
            self.order.append(name)
            self.turns.worked += WAITING_SECONDS
            return serve(frame, connection)

        server.connection._dispatch = dispatch
        return server


async def next_turn() -> None:
    """Let what was called for this turn of the loop run."""
    await asyncio.sleep(0)


def test_connection_that_comes_late_in_a_turn_is_read_in_the_next_one() -> None:
    async def main() -> None:
        turn = Turn()
        late = turn.server(b"late")
        turn.turns.worked = NEW_SECONDS * 2
        late.stream.deliver(b"a")
        assert late.served == []
        assert late.stream.read_callback is None, "it is not called back until then"
        assert not late.connection.awaits_peer
        await next_turn()
        assert late.served == [b"a"]
        assert late.stream.sent == b"a"
        assert late.stream.read_callback is not None
        assert late.connection.awaits_peer

    asyncio.run(main())


def test_waiting_connections_are_read_in_order_and_new_ones_between() -> None:
    async def main() -> None:
        turn = Turn()
        waiting = [turn.server(b"%d" % number) for number in range(3)]
        turn.turns.worked = NEW_SECONDS * 2
        for server in waiting:
            server.stream.deliver(b"a")
        assert turn.order == []
        await next_turn()
        assert turn.order == [b"0"], "one has used the time of those that wait"
        turn.server(b"new").stream.deliver(b"a")
        assert turn.order == [b"0", b"new"]
        await next_turn()
        await next_turn()
        assert turn.order == [b"0", b"new", b"1", b"2"]

    asyncio.run(main())


def test_turn_whose_time_is_over_ends_with_the_next_one() -> None:
    """A poll brings 1,024 sockets at most; the loop polls for more before it runs timers and tasks."""

    async def main() -> None:
        turn = Turn()
        servers = [turn.server(b"%d" % number) for number in range(4)]
        for server in servers:
            server.stream.deliver(b"a")
        assert turn.order == [b"0", b"1"], "these took longer than a turn has for new ones"
        await next_turn()
        assert turn.order == [b"0", b"1", b"2"]
        await next_turn()
        assert turn.order == [b"0", b"1", b"2", b"3"]
        assert turn.turns.worked == 0.0

    asyncio.run(main())


def test_little_work_of_many_turns_makes_none_of_them_late() -> None:
    async def main() -> None:
        turn = Turn()
        server = turn.server(b"busy")
        for _ in range(100):
            server.stream.deliver(b"a")
            await next_turn()
        assert len(server.served) == 100
        assert not turn.turns._waiting

    asyncio.run(main())


def test_connection_that_is_closed_while_it_waits_for_its_turn_is_not_read() -> None:
    async def main() -> None:
        turn = Turn()
        late, other = turn.server(b"late"), turn.server(b"other")
        turn.turns.worked = NEW_SECONDS * 2
        late.stream.deliver(b"a")
        other.stream.deliver(b"b")
        late.connection.close("the broker stops")
        await next_turn()
        assert turn.order == [b"other"]

    asyncio.run(main())


def test_only_the_last_part_of_an_answer_is_sent_without_more_to_come() -> None:
    """The kernel delays what is sent with more to come: the peer would wait for the end of each answer."""
    flags: list[tuple[int, bool]] = []

    class Noting(ScriptedStream):
        def send(self, part: bytes | bytearray | memoryview, more: bool) -> int:
            flags.append((len(part), more))
            return super().send(part, more)

    server = Server(Noting())
    server.extra = [bytes(JOIN_BYTES), bytes(JOIN_BYTES + 1)]
    server.stream.deliver(b"x" * JOIN_BYTES)
    assert flags == [(JOIN_BYTES, True), (JOIN_BYTES, True), (JOIN_BYTES + 1, False)]
    server.extra = []
    server.stream.deliver(b"a")
    assert flags[3:] == [(1, False)]
