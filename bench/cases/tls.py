"""One broker with a TLS and a plain listener: throughput, CPU, handshakes and memory of connections.

The certificate has an RSA-2048 key and signs itself. `./dev bench tls` starts the brokers itself, because a case's
broker has no TLS listener. Figures of handshakes are those of the broker without what a plain connection costs.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.cases import topics
from bench.cases.throughput import PARTITIONS, PLAIN, RECORDS, SIZE, WARM_UP_RECORDS, consume, produce
from bench.peers.broker import BrokerProcess
from bench.servers import API_VERSIONS_V0, KAFKA, SETTINGS, cpu_seconds, free_port, rss_mb
from odradek.records.builder import encode_batch
from odradek.wire.messages import fetch
from odradek.wire.messages import produce as produce_messages

HANDSHAKES = 1000
CONNECTIONS = 1000
MEGABYTE = 1_000_000


class Serving:
    """A broker that serves on both ports."""

    def __init__(self, pid: int, plain_port: int, tls_port: int, certificate: Path) -> None:
        self.pid = pid
        self.plain, self.tls = f"127.0.0.1:{plain_port}", f"127.0.0.1:{tls_port}"
        self.ports = {False: plain_port, True: tls_port}
        self.security = {"security.protocol": "ssl", "ssl.ca.location": str(certificate)}
        self.context = ssl.create_default_context(cafile=str(certificate))

    def connect(self, session: ssl.SSLSession | None = None, *, is_secured: bool = True) -> socket.socket:
        """A connection that has had one request answered."""
        client: socket.socket = socket.create_connection(("127.0.0.1", self.ports[is_secured]), 30)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if is_secured:
            client = self.context.wrap_socket(client, server_hostname="localhost", session=session)
        ask(client, API_VERSIONS_V0)
        return client


def ask(client: socket.socket, frame: bytes) -> None:
    """Send a frame with its size, and read the whole answer."""
    client.sendall(frame)
    size, received = int.from_bytes(client.recv(4), "big"), 0
    while received < size:
        received += len(client.recv(min(1 << 16, size - received)))


def certificate_in(folder: Path) -> tuple[Path, Path]:
    """The certificate, and the key with it."""
    key, certificate, both = (folder / name for name in ("key.pem", "certificate.pem", "both.pem"))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "7", "-subj", "/CN=localhost",
         "-keyout", str(key), "-out", str(certificate), "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    both.write_text(key.read_text() + certificate.read_text())
    return certificate, both


@contextlib.contextmanager
def serving(name: str) -> Iterator[Serving]:
    """Start a broker by its name."""
    folder = Path(tempfile.mkdtemp(prefix=f"odradek-bench-tls-{name}-"))
    try:
        certificate, both = certificate_in(folder)
        port, tls_port = free_port(), free_port()
        settings: dict[str, object] = SETTINGS | {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": both,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls_port}",
        }
        if name == "odradek":
            with BrokerProcess(folder / "data", settings) as broker:
                yield Serving(broker.pid, port, tls_port, certificate)
            return
        settings["listeners"] = f"{settings['listeners']},CONTROLLER://127.0.0.1:{port + 1}"
        settings["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"
        given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        command = [sys.executable, str(KAFKA), "run", "--port", str(port), "--dir", str(folder / "kafka")]
        process = subprocess.Popen([*command, "--for", "86400", *given], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline().split()
            if line[:1] != ["ready"]:
                raise RuntimeError("Apache Kafka did not start")
            pid = int(dict(word.split("=", 1) for word in line[2:])["pids"])
            yield Serving(pid, port, tls_port, certificate)
        finally:
            process.terminate()
            process.wait(60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def throughput(serving: Serving, records: int, *, is_secured: bool) -> dict[str, float]:
    """MB/s and CPU of the broker, in and out."""
    bootstrap = serving.tls if is_secured else serving.plain
    security = serving.security if is_secured else PLAIN
    with topics.fresh(serving.plain, PARTITIONS) as warm_up:
        produce(bootstrap, warm_up, WARM_UP_RECORDS, security)
        consume(bootstrap, warm_up, WARM_UP_RECORDS, security)
    gigabytes = records * SIZE / 1e9
    with topics.fresh(serving.plain, PARTITIONS) as topic:
        cpu_before, began = cpu_seconds(serving.pid), time.perf_counter()
        produce(bootstrap, topic, records, security)
        cpu_between, between = cpu_seconds(serving.pid), time.perf_counter()
        consume(bootstrap, topic, records, security)
        ended, cpu_after = time.perf_counter(), cpu_seconds(serving.pid)
    cpu = {"CPU in": (cpu_between - cpu_before) / gigabytes, "CPU out": (cpu_after - cpu_between) / gigabytes}
    if not is_secured:
        return {f"plain {name}": value for name, value in cpu.items()}
    speeds = {"produce": 1000 * gigabytes / (between - began), "consume": 1000 * gigabytes / (ended - between)}
    return {f"TLS {name}": value for name, value in (speeds | cpu).items()}


def handshakes(serving: Serving, count: int) -> dict[str, float]:
    """Milliseconds of the broker's CPU for a full and, if the broker resumes sessions, a resumed handshake."""
    reused = 0

    def cost(connect: str) -> float:
        nonlocal reused
        session = None
        if connect == "resumed":
            with serving.connect() as client:
                assert isinstance(client, ssl.SSLSocket)
                session = client.session
        before = cpu_seconds(serving.pid)
        for _ in range(count):
            with serving.connect(session, is_secured=connect != "plain") as client:
                if session is not None:
                    assert isinstance(client, ssl.SSLSocket)
                    reused += bool(client.session_reused)
                    session = client.session
        return (cpu_seconds(serving.pid) - before) * 1000 / count

    cost("full")  # the first ones warm a JVM up
    plain = cost("plain")
    found = {"CPU per full handshake": cost("full") - plain}
    resumed = cost("resumed") - plain
    return found | {"CPU per resumed handshake": resumed} if reused == count else found


def memory(serving: Serving, count: int) -> dict[str, float]:
    """Kilobytes of the broker for a connection, idle and after a megabyte each way."""
    with topics.fresh(serving.plain, 1) as topic:
        batch = memoryview(encode_batch([(0, None, os.urandom(MEGABYTE - 1000), ())]))
        part = produce_messages.ProduceRequestPartition(0, batch)
        sent = produce_messages.ProduceRequest(
            None, 1, 10_000, [produce_messages.ProduceRequestTopic(topic, partition_data=[part])]
        )
        asked = fetch.FetchRequestPartition(0, fetch_offset=0, partition_max_bytes=MEGABYTE)
        received = fetch.FetchRequest(min_bytes=1, topics=[fetch.FetchRequestTopic(topic=topic, partitions=[asked])])
        frames = []
        for request, key, version in ((sent, 0, 9), (received, 1, 12)):
            body = bytearray(key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\0\5bench\0")
            request.encode(body, version)
            frames.append(len(body).to_bytes(4, "big") + body)
        with serving.connect() as warm_up:
            for frame in frames:
                ask(warm_up, frame)
        before = rss_mb(serving.pid)
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(serving.connect()) for _ in range(count)]
            idle = rss_mb(serving.pid)
            for client in clients:
                for frame in frames:
                    ask(client, frame)
            used = rss_mb(serving.pid)
    return {
        "idle TLS connection": (idle - before) * 1000 / count,
        "TLS connection after 1 MB": (used - before) * 1000 / count,
    }


def run_tls(name: str, scale: float) -> dict[str, float]:
    """All figures of one broker."""
    records = max(1000, int(RECORDS * scale))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # also of the broker, which inherits it
    with serving(name) as broker:
        found = throughput(broker, records, is_secured=True)
        found |= throughput(broker, records, is_secured=False)
        found |= handshakes(broker, max(20, int(HANDSHAKES * scale)))
        return found | memory(broker, max(20, int(CONNECTIONS * scale)))
