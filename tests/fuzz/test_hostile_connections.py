"""Connections that are many, slow, greedy or torn: the broker's memory stays bounded and others are served."""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek.records.builder import encode_batch
from odradek.wire.messages import create_topics, fetch, metadata, produce
from tests.fuzz.test_requests import frame, resident_bytes

Connect = Callable[[str], Any]
METADATA = metadata.MetadataRequest(topics=[])
BYTES_PER_IDLE_CONNECTION = 8_000


@pytest.fixture
def broker(make_broker: Callable[..., Any], connect: Connect) -> Iterator[Any]:
    """A broker of this test's own; at the end a new client must be served as at the beginning."""
    running = make_broker({"queued.max.request.bytes": 20_000_000}).start()
    assert connect(running.bootstrap).call(METADATA, 12).brokers
    yield running
    assert connect(running.bootstrap).call(METADATA, 12).brokers
    assert "Traceback" not in running.log(1_000_000)


def opened(broker: Any, count: int) -> list[socket.socket]:
    host, _, port = broker.bootstrap.rpartition(":")
    return [socket.create_connection((host, int(port)), 20) for _ in range(count)]


def metadata_frame() -> bytes:
    body = bytearray()
    METADATA.encode(body, 12)
    return frame(3, 12, bytes(body))


def answer(client: socket.socket) -> bytes:
    with client.makefile("rb", buffering=0) as file:
        head = file.read(4) or b""
        size, data = int.from_bytes(head, "big"), b""
        while len(data) < size:
            data += file.read(size - len(data)) or b""
        return data


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.long)])
def test_idle_connections_are_cheap(broker: Any, connect: Connect, count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count + 500:
        pytest.skip(f"{hard} descriptors at most")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 500), hard))
    request = metadata_frame()
    before = resident_bytes(broker.pid)
    clients = opened(broker, count)
    try:
        for client in clients:
            client.sendall(request)
            assert len(answer(client)) > 4
        grown = resident_bytes(broker.pid) - before
        # What the allocator takes at once weighs more among few.
        assert grown < count * BYTES_PER_IDLE_CONNECTION + 4_000_000
        assert connect(broker.bootstrap).call(METADATA, 12).brokers
        clients[0].sendall(request)
        assert answer(clients[0])
    finally:
        for client in clients:
            client.close()


def test_frames_that_never_end_occupy_no_more_than_allowed(broker: Any, connect: Connect) -> None:
    """They announce 100 MB each and send 300 kB of it: what is not taken stays with them."""
    before = resident_bytes(broker.pid)
    clients = opened(broker, 60)
    piece = (100_000_000).to_bytes(4, "big") + bytes(300_000)
    for client in clients:
        client.setblocking(False)
        client.send(piece)
    bystander = connect(broker.bootstrap)
    for _ in range(50):
        assert bystander.call(METADATA, 12).brokers
    assert resident_bytes(broker.pid) < before + 60_000_000
    for client in clients:
        client.close()


def test_those_who_wait_for_a_buffer_get_one(make_broker: Callable[..., Any], connect: Connect) -> None:
    running = make_broker({"queued.max.request.bytes": 1_000_000}).start()
    first, second = connect(running.bootstrap), connect(running.bootstrap)
    wanted = create_topics.CreateTopicsRequest([create_topics.CreateTopicsRequestTopic("t", 1, 1)], 10_000)
    assert first.call(wanted, 7).topics[0].error_code == 0
    batch = memoryview(encode_batch([(0, None, bytes(600_000), ())]))
    part = produce.ProduceRequestPartition(0, batch)
    body = bytearray()
    produce.ProduceRequest(None, 1, 10_000, [produce.ProduceRequestTopic("t", partition_data=[part])]).encode(body, 9)
    data = frame(0, 9, bytes(body))
    first.socket.sendall(data[:500_000])
    # Once the small request behind it is answered, the half of the first frame has been taken.
    assert connect(running.bootstrap).call(METADATA, 12).brokers
    second.socket.settimeout(20)
    second.socket.sendall(data[:500_000])
    assert connect(running.bootstrap).call(METADATA, 12).brokers, "others continue"
    first.socket.sendall(data[500_000:])
    assert first.receive_frame()
    second.socket.sendall(data[500_000:])
    assert second.receive_frame(), "what the first one occupied is free"
    other = connect(running.bootstrap)
    other.socket.sendall(data)
    assert other.receive_frame()


def test_requests_whose_answers_are_not_read_do_not_pile_up(broker: Any, connect: Connect) -> None:
    before = resident_bytes(broker.pid)
    (client,) = opened(broker, 1)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    request = metadata_frame() * 1000
    rest = memoryview(request)
    for _ in range(300):
        try:
            # Of the last one only a part is taken, and what comes behind it, once there is room again, is the rest.
            rest = rest[client.send(rest) :] or memoryview(request)
        except BlockingIOError:
            break
    else:
        pytest.fail("the broker took all requests of one who reads no answer")
    bystander = connect(broker.bootstrap)
    for _ in range(50):
        assert bystander.call(METADATA, 12).brokers
    assert resident_bytes(broker.pid) < before + 60_000_000
    client.close()


def test_torn_connections_leave_nothing(broker: Any, connect: Connect) -> None:
    request = metadata_frame()
    for turn in range(200):
        (client,) = opened(broker, 1)
        client.sendall(request * 3 + request[: turn % len(request)])
        if turn % 2:
            # Not closed but reset, with answers under way.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    assert connect(broker.bootstrap).call(METADATA, 12).brokers


def test_slow_writers_delay_no_other_client(broker: Any, connect: Connect) -> None:
    request = metadata_frame()
    clients = opened(broker, 50)
    bystander = connect(broker.bootstrap)
    for byte in request[:-1]:
        for client in clients:
            client.sendall(bytes((byte,)))
        assert bystander.call(METADATA, 12).brokers
    for client in clients:
        client.sendall(request[-1:])
    assert all(len(answer(client)) > 4 for client in clients)
    for client in clients:
        client.close()


def test_fetches_are_bounded_by_the_broker(make_broker: Callable[..., Any], connect: Connect) -> None:
    """`fetch.max.bytes`: whatever a client asks for, one answer holds at most so much, or one batch."""
    running = make_broker({"fetch.max.bytes": 1024 * 1024}).start()
    client = connect(running.bootstrap)
    wanted = create_topics.CreateTopicsRequest([create_topics.CreateTopicsRequestTopic("t", 1, 1)], 10_000)
    assert client.call(wanted, 7).topics[0].error_code == 0
    batch = memoryview(encode_batch([(0, None, bytes(400_000), ())]))
    part = produce.ProduceRequestPartition(0, batch)
    request = produce.ProduceRequest(None, 1, 10_000, [produce.ProduceRequestTopic("t", partition_data=[part])])
    for _ in range(8):
        assert client.call(request, 9).responses[0].partition_responses[0].error_code == 0
    asked = fetch.FetchRequestPartition(0, fetch_offset=0, partition_max_bytes=1 << 30)
    topic = fetch.FetchRequestTopic(topic="t", partitions=[asked])
    found = client.call(fetch.FetchRequest(min_bytes=1, max_bytes=1 << 30, topics=[topic]), 12)
    assert 400_000 < len(found.responses[0].partitions[0].records) <= 1024 * 1024
