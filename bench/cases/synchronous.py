"""One producer that waits for each answer before it sends the next record: 100-byte records, acks=1.

Once over a plain blocking socket, which adds least to the broker's own time, and once by confluent-kafka with a flush
after each record, which is what a program sees.
"""

import socket
import struct
import time

import fastcrc
from confluent_kafka import KafkaError, Message, Producer

from bench.cases import topics
from bench.metrics import percentile
from bench.servers import Running

REQUESTS = 20_000
WARM_UP_REQUESTS = 3_000
SIZE = 100


def record_batch(value: bytes) -> bytes:
    """A record batch of format 2 with one record, no key and no headers (KIP-98)."""
    length = varint(len(value))
    body = b"\x00\x00\x00" + varint(-1) + length + value + varint(0)  # attributes, time and offset deltas, key, headers
    record = varint(len(body)) + body
    now_ms = int(time.time() * 1000)
    counted = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + record
    return struct.pack(">qiibI", 0, 9 + len(counted), -1, 2, fastcrc.crc32.iscsi(counted)) + counted


def varint(number: int) -> bytes:
    zigzag, out = (number << 1) ^ (number >> 63), bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*out, zigzag])


def produce_request(topic: str, batch: bytes) -> bytes:
    """Produce version 7, acks=1, partition 0."""
    name = topic.encode()
    header = struct.pack(">hhih5s", 0, 7, 1, 5, b"bench")
    body = struct.pack(">hhii", -1, 1, 30_000, 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">iii", 1, 0, len(batch)) + batch
    return struct.pack(">i", len(header) + len(body)) + header + body


def wait_until_accepted(sock: socket.socket, request: bytes, topic: str) -> None:
    """A new topic's partition may not have its leader yet."""
    deadline = time.monotonic() + 10
    while True:
        sock.sendall(request)
        (error,) = struct.unpack_from(">h", sock.recv(4096), 4 + 4 + 4 + 2 + len(topic) + 4 + 4)
        if not error:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"the broker answers error {error}")
        time.sleep(0.05)


def round_trips(sock: socket.socket, request: bytes, count: int) -> list[float]:
    """Microseconds of each."""
    took = []
    for _ in range(count):
        began = time.perf_counter_ns()
        sock.sendall(request)
        answer = sock.recv(4096)
        took.append((time.perf_counter_ns() - began) / 1000)
        (size,) = struct.unpack_from(">i", answer)
        if len(answer) != size + 4:
            raise RuntimeError("the answer did not come in one piece")
    return took


def flushes(bootstrap: str, topic: str, count: int) -> list[float]:
    """Microseconds of each produce and flush by confluent-kafka."""
    failed: list[str] = []

    def report(error: KafkaError | None, _: Message) -> None:
        if error:
            failed.append(str(error))

    producer, value, took = Producer({"bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 0}), b"x" * SIZE, []
    for _ in range(count):
        began = time.perf_counter_ns()
        producer.produce(topic, value, on_delivery=report)
        producer.flush()
        took.append((time.perf_counter_ns() - began) / 1000)
    if failed:
        raise RuntimeError(f"{len(failed)} failed: {failed[:1]}")
    return took


def run(broker: Running, scale: float) -> dict[str, float]:
    with topics.fresh(broker.bootstrap, 1) as topic, socket.create_connection(broker.address(), 10) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = produce_request(topic, record_batch(b"x" * SIZE))
        wait_until_accepted(sock, request, topic)
        round_trips(sock, request, WARM_UP_REQUESTS)
        count = max(500, int(REQUESTS * scale))
        plain = sorted(round_trips(sock, request, count))
        flushed = sorted(flushes(broker.bootstrap, topic, WARM_UP_REQUESTS + count)[WARM_UP_REQUESTS:])
    return {
        "synchronous p50": percentile(plain, 0.5),
        "synchronous p99": percentile(plain, 0.99),
        "flush p50": percentile(flushed, 0.5),
        "flush p99": percentile(flushed, 0.99),
    }
