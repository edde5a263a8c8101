"""Frames come out whole, in order and writable, however the bytes come in."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.wire.frames import (
    SERVER_SPARE_BYTES,
    SHARED_BYTES,
    SPARE_BYTES,
    FrameError,
    FrameReader,
    FrameTooLarge,
    ReceiveBuffers,
)

LIMIT = 10_000_000


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def feed(reader: FrameReader, data: bytes, pieces: list[int]) -> list[bytes]:
    """Frames of `data` received in pieces of the sizes given, again and again."""
    frames, position, turn = [], 0, 0
    while position < len(data):
        space = reader.space()
        assert len(space) > 0
        size = min(len(space), pieces[turn % len(pieces)], len(data) - position)
        space[:size] = data[position : position + size]
        frames += [bytes(frame) for frame in reader.received(size)]
        position += size
        turn += 1
    return frames


@settings(max_examples=150, deadline=None, database=None)
@given(
    sizes=st.lists(st.one_of(st.integers(0, 300), st.integers(0, 200_000)), max_size=12),
    pieces=st.lists(st.one_of(st.integers(1, 100), st.integers(1, 300_000)), min_size=1, max_size=6).filter(
        lambda pieces: sum(pieces) > 500 * len(pieces)
    ),
)
def test_any_fragmentation_gives_the_same_frames(sizes: list[int], pieces: list[int]) -> None:
    payloads = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    reader = FrameReader(LIMIT)
    assert feed(reader, b"".join(map(framed, payloads)), pieces) == payloads
    assert reader.pending == 0


@settings(max_examples=50, deadline=None, database=None)
@given(sizes=st.lists(st.integers(0, 20), max_size=10), piece=st.integers(1, 7))
def test_small_pieces(sizes: list[int], piece: int) -> None:
    payloads = [bytes(range(size)) for size in sizes]
    assert feed(FrameReader(100), b"".join(map(framed, payloads)), [piece]) == payloads


def test_a_frame_lies_in_the_buffer_and_is_writable() -> None:
    reader = FrameReader(LIMIT)
    space = reader.space()
    space[:7] = framed(b"abc")
    (frame,) = reader.received(7)
    assert not frame.readonly
    frame[0:1] = b"X"
    assert bytes(space[4:7]) == b"Xbc"


def test_between_frames_a_reader_owns_nothing() -> None:
    reader = FrameReader(LIMIT)
    assert reader.capacity == 0
    for size in (0, 10, SHARED_BYTES - 4, SHARED_BYTES, 1_000_000, 5_000_000):
        assert feed(reader, framed(bytes(size)), [1 << 30]) == [bytes(size)]
        assert reader.capacity == 0
        assert reader.buffers.in_use == 0


def test_an_unfinished_frame_costs_its_bytes() -> None:
    reader = FrameReader(LIMIT)
    feed(reader, framed(b"a") + framed(bytes(50_000))[:40_000], [1 << 30])
    assert reader.capacity == reader.pending == 40_000


def test_large_buffers_go_from_frame_to_frame_and_reader_to_reader() -> None:
    buffers = ReceiveBuffers()
    first, second = FrameReader(LIMIT, buffers), FrameReader(LIMIT, buffers)
    made = set()
    batch = framed(bytes(1_000_000))
    for reader in (first, second) * 20:
        feed(reader, batch[:500_000], [1 << 30])
        assert reader._large is not None
        made.add(id(reader._large.obj))
        feed(reader, batch[500_000:], [1 << 30])
    assert len(made) == 1


@settings(max_examples=100, deadline=None, database=None)
@given(
    sizes=st.lists(
        st.lists(st.one_of(st.integers(0, 300), st.integers(0, 300_000)), max_size=5), min_size=2, max_size=4
    ),
    turns=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 200_000)), min_size=5, max_size=60),
)
def test_readers_with_the_same_buffers_do_not_disturb_each_other(
    sizes: list[list[int]], turns: list[tuple[int, int]]
) -> None:
    buffers = ReceiveBuffers()
    readers = [FrameReader(LIMIT, buffers) for _ in sizes]
    payloads = [[bytes([17 * who + n]) * size for n, size in enumerate(own)] for who, own in enumerate(sizes)]
    streams = [b"".join(map(framed, own)) for own in payloads]
    found: list[list[bytes]] = [[] for _ in sizes]
    for turn, piece in [*turns, *((who, 1 << 30) for who in range(len(sizes)))]:
        who = turn % len(sizes)
        found[who] += feed(readers[who], streams[who][:piece], [1 << 30])
        streams[who] = streams[who][piece:]
    assert found == payloads
    assert buffers.in_use == 0


def test_when_the_limit_is_reached_large_frames_wait_for_a_buffer() -> None:
    buffers = ReceiveBuffers(limit=1_500_000)
    first, second, third = (FrameReader(LIMIT, buffers) for _ in range(3))
    large = framed(bytes(1_000_000))
    feed(first, large[:200_000], [1 << 30])
    feed(second, large[:200_000], [1 << 30])
    feed(third, large[: SHARED_BYTES - 1], [1 << 30])
    assert len(third.space()) == 0
    calls: list[str] = []
    buffers.when_free(lambda: calls.append("third"))
    assert feed(first, large[200_000:], [1 << 30]) == [large[4:]]
    assert calls == ["third"]
    assert feed(third, large[SHARED_BYTES - 1 :], [1 << 30]) == [large[4:]]
    second.close()
    assert (buffers.in_use, second.pending) == (0, 0)


def of_a_server(limit: int | None = None) -> tuple[ReceiveBuffers, FrameReader]:
    buffers = ReceiveBuffers(limit, SERVER_SPARE_BYTES)
    return buffers, FrameReader(LIMIT, buffers)


@pytest.mark.parametrize(("limit", "readers"), [(1 << 20, 1), (8 << 20, 8), (8 << 20, 20)])
def test_frames_that_reach_the_limit_together_all_arrive(limit: int, readers: int) -> None:
    """Each has a buffer that it has filled: one at a time may grow beyond the limit."""
    frame, piece = framed(bytes(5 << 20)), 1 << 16
    buffers, most = ReceiveBuffers(limit), 0
    waiting, woken = dict.fromkeys(range(readers), 0), list(range(readers))
    streams = [FrameReader(LIMIT, buffers) for _ in range(readers)]
    while woken:
        number = woken.pop(0)
        space = streams[number].space()
        if not space:
            buffers.when_free(partial(woken.append, number))
            continue
        at = waiting[number]
        count = min(len(space), piece, len(frame) - at)
        space[:count] = frame[at : at + count]
        most = max(most, buffers.in_use)
        if list(streams[number].received(count)):
            del waiting[number]
        else:
            waiting[number] += count
            woken.append(number)
    assert (waiting, buffers.in_use) == ({}, 0)
    assert most <= limit + 3 * len(frame)


def test_next_large_frame_is_received_into_the_buffer_of_the_last() -> None:
    """Fresh buffers, and copies from one that a frame has outgrown, cost as much as to receive it."""
    buffers, reader = of_a_server()
    batch = framed(bytes(9_000_000))
    made = []
    for _ in range(4):
        feed(reader, batch[:200_000], [1 << 30])
        assert reader._large is not None
        made.append(id(reader._large.obj))
        assert [len(frame) for frame in feed(reader, batch[200_000:], [1 << 30])] == [9_000_000]
    assert len(set(made[1:])) == 1
    assert buffers.in_use == 0
    assert sum(map(len, buffers._spares)) <= SERVER_SPARE_BYTES


def test_large_buffers_that_are_no_longer_used_are_freed() -> None:
    buffers, reader = of_a_server()
    batch = framed(bytes(9_000_000))
    feed(reader, batch, [1 << 20])
    buffers.trim()
    feed(reader, batch, [1 << 20])
    buffers.trim()
    assert max(map(len, buffers._spares)) >= 9_000_000, "it was used since the call before"
    feed(reader, framed(bytes(1_000_000)), [1 << 20])
    buffers.trim()
    assert 0 < sum(map(len, buffers._spares)) <= SPARE_BYTES


def test_buffer_that_lies_idle_counts_as_in_use_when_it_is_taken() -> None:
    buffers, reader = of_a_server(limit=9_000_000)
    batch = framed(bytes(9_000_000))
    feed(reader, batch, [1 << 20])
    feed(reader, batch[:200_000], [1 << 30])
    assert buffers.in_use >= 9_000_000
    assert not buffers.has_room()
    reader.close()
    assert buffers.in_use == 0


def test_an_announced_size_alone_costs_no_memory() -> None:
    reader = FrameReader(1 << 30)
    assert feed(reader, (1 << 30).to_bytes(4, "big") + bytes(200_000), [1 << 30]) == []
    assert reader.capacity < 1_200_000
    assert reader.pending == 200_004


def test_little_of_a_large_frame_costs_what_has_come() -> None:
    reader = FrameReader(1 << 30)
    for size in (4, 1, 1000, 30_000):
        feed(reader, ((1 << 30) - 4).to_bytes(4, "big") if size == 4 else bytes(size), [1 << 30])
        assert reader.capacity == reader.pending
    assert reader.buffers.in_use == 0


def test_too_large_and_negative_sizes_are_errors() -> None:
    reader = FrameReader(100)
    reader.space()[:4] = (101).to_bytes(4, "big")
    with pytest.raises(FrameTooLarge) as failure:
        list(reader.received(4))
    assert failure.value.size == 101
    with pytest.raises(FrameTooLarge):
        reader.space()
    reader = FrameReader(100)
    reader.space()[:4] = b"\xff\xff\xff\xff"
    with pytest.raises(FrameError, match="-1"):
        list(reader.received(4))


def test_frames_before_a_broken_one_are_given_out() -> None:
    reader = FrameReader(100)
    data = framed(b"good") + (101).to_bytes(4, "big")
    reader.space()[: len(data)] = data
    frames = reader.received(len(data))
    assert bytes(next(frames)) == b"good"
    with pytest.raises(FrameTooLarge):
        next(frames)
    with pytest.raises(FrameTooLarge):
        reader.space()


def test_frames_that_were_not_taken_come_again() -> None:
    reader = FrameReader(100)
    data = framed(b"one") + framed(b"two") + framed(b"three")[:4]
    reader.space()[: len(data)] = data
    assert bytes(next(reader.received(len(data)))) == b"one"
    reader.space()[:5] = b"three"
    assert [bytes(frame) for frame in reader.received(5)] == [b"two", b"three"]


def test_received_needs_space_before_it() -> None:
    reader = FrameReader(100)
    reader.space()[:4] = framed(b"")
    assert len(list(reader.received(4))) == 1
    with pytest.raises(ValueError, match="space"):
        reader.received(1)


def test_tls_handshake_is_named() -> None:
    reader = FrameReader(1 << 20)
    reader.space()[:7] = bytes.fromhex("16030102000100")
    with pytest.raises(FrameError, match="the peer speaks TLS, this side plain text"):
        list(reader.received(7))


def test_tls_alert_is_recognized_where_frames_are_unlimited() -> None:
    reader = FrameReader(0x7FFFFFFF)
    reader.space()[:7] = bytes.fromhex("15030300020246")
    assert not list(reader.received(7))
    assert reader.begins_with_tls


def kept(reader: FrameReader, payload: bytes) -> memoryview:
    """The frame of that content, kept."""
    data, position = framed(payload), 0
    while True:
        space = reader.space()
        size = min(len(space), len(data) - position)
        space[:size] = data[position : position + size]
        position += size
        for frame in reader.received(size):
            return reader.keep(frame)


@pytest.mark.parametrize("size", [100, 400_000, 3_000_000])
@pytest.mark.parametrize("is_trusting", [False, True])
def test_kept_frames_stay_valid(size: int, is_trusting: bool) -> None:
    reader = FrameReader(LIMIT, is_trusting=is_trusting)
    frames = [kept(reader, bytes([number]) * size) for number in range(8)]
    assert [bytes(frame) for frame in frames] == [bytes([number]) * size for number in range(8)]
    assert reader.buffers.in_use == 0


def test_buffer_of_a_kept_frame_is_used_again_when_nothing_refers_to_it() -> None:
    reader = FrameReader(LIMIT, is_trusting=True)
    frame = kept(reader, bytes(3_000_000))
    part, buffer = frame[10:20], id(frame.obj)
    del frame
    other = kept(reader, b"\1" * 3_000_000)
    assert id(other.obj) != buffer, "a part of the frame is still in use"
    assert part == bytes(10)
    del part
    assert id(kept(reader, bytes(3_000_000)).obj) == buffer


def test_buffer_of_a_kept_frame_fits_a_slightly_larger_one() -> None:
    """Answers differ by some bytes; a fresh buffer for each would cost more than the records in it."""
    reader = FrameReader(LIMIT, is_trusting=True)
    frame = kept(reader, bytes(3_000_000))
    buffer = id(frame.obj)
    del frame
    assert id(kept(reader, bytes(3_000_007)).obj) == buffer


def test_bytes_behind_a_kept_frame_begin_the_next_one() -> None:
    reader = FrameReader(LIMIT)
    data = framed(b"\1" * 300_000) + framed(b"next")
    position = 0
    frames: list[memoryview] = []
    while position < len(data):
        space = reader.space()
        size = min(len(space), len(data) - position)
        space[:size] = data[position : position + size]
        position += size
        frames += [reader.keep(frame) for frame in reader.received(size)]
    assert [bytes(frame) for frame in frames] == [b"\1" * 300_000, b"next"]
