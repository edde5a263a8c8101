"""What others notice of a flood: failed logins from many addresses, and TLS handshakes that never end.

One client appends records of 100 bytes at a plain listener, one at a time, while a second process floods another
listener. Each failed login comes from another address of the loopback network, so that no limit per address helps; it
is a complete exchange of SCRAM-SHA-256 with a wrong proof. `./dev bench floods --only odradek`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.cases import topics
from bench.cases.synchronous import record_batch
from bench.cases.tls import ask, certificate_in
from bench.frames import frame
from bench.metrics import percentile
from bench.peers.broker import BrokerProcess
from bench.servers import KAFKA, SETTINGS, free_port, rss_mb
from odradek.wire.messages import produce
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest

LOGINS_PER_SECOND = 1000
SOCKETS = 2000
SECONDS = 20
PAUSE_SECONDS = 0.002
"""Between two records of the client that is measured."""
MECHANISM = "SCRAM-SHA-256"
# Record and handshake headers of a ClientHello of 512 bytes, and the first of them.
HALF_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(100)


class Ports:
    """The broker's process, and the port of each listener."""

    def __init__(self, pid: int, plain: int, sasl: int, tls: int) -> None:
        self.pid = pid
        self.plain, self.sasl, self.tls = plain, sasl, tls


@contextlib.contextmanager
def serving(name: str) -> Iterator[Ports]:
    """Start a broker by its name, with a plain, a SASL and a TLS listener."""
    folder = Path(tempfile.mkdtemp(prefix=f"odradek-bench-floods-{name}-"))
    try:
        _certificate, both = certificate_in(folder)
        plain, sasl, tls = free_port(), free_port(), free_port()
        listeners = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl},SSL://127.0.0.1:{tls}"
        settings: dict[str, object] = SETTINGS | {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": both,
            "listeners": listeners,
            "sasl.enabled.mechanisms": MECHANISM,
        }
        if name == "odradek":
            with BrokerProcess(folder / "data", settings) as broker:
                yield Ports(broker.pid, plain, sasl, tls)
            return
        settings["listeners"] = f"{listeners},CONTROLLER://127.0.0.1:{{controller}}"
        protocols = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL")
        settings["listener.security.protocol.map"] = ",".join(
            ["CONTROLLER:PLAINTEXT", *(f"{each}:{each}" for each in protocols)]
        )
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        settings[f"listener.name.sasl_plaintext.{MECHANISM.lower()}.sasl.jaas.config"] = module
        given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        command = [sys.executable, str(KAFKA), "run", "--port", str(plain), "--dir", str(folder / "kafka")]
        process = subprocess.Popen([*command, "--for", "86400", *given], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline().split()
            if line[:1] != ["ready"]:
                raise RuntimeError("Apache Kafka did not start")
            yield Ports(int(dict(word.split("=", 1) for word in line[2:])["pids"]), plain, sasl, tls)
        finally:
            process.terminate()
            process.wait(60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def latencies(port: int, topic: str, seconds: float) -> list[float]:
    """Milliseconds of each append, in order of size."""
    rows = [produce.ProduceRequestPartition(0, record_batch(b"x" * 100))]
    request = produce.ProduceRequest(None, 1, 30_000, [produce.ProduceRequestTopic(topic, partition_data=rows)])
    sent = frame(request, 9)
    found = []
    with socket.create_connection(("127.0.0.1", port), 60) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            ask(client, sent)
            found.append((time.perf_counter() - began) * 1000)
            time.sleep(PAUSE_SECONDS)
    return sorted(found)


async def failed_login(port: int, number: int) -> bool:
    """A login with a wrong proof; False if the broker did not answer it as such."""
    address = f"127.{1 + number // 62_500 % 250}.{1 + number // 250 % 250}.{1 + number % 250}"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    try:

        async def call(request: SaslHandshakeRequest | SaslAuthenticateRequest, version: int) -> bytes:
            writer.write(frame(request, version))
            return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))

        await call(SaslHandshakeRequest(MECHANISM), 1)
        answer = await call(SaslAuthenticateRequest(b"n,,n=mallory,r=abcdefgh"), 1)
        begun = answer.find(b"r=")
        if begun >= 0:
            nonce = answer[begun:].split(b",", 1)[0]
            proof = base64.b64encode(os.urandom(32))
            await call(SaslAuthenticateRequest(b"c=biws," + nonce + b",p=" + proof), 1)
        return True
    except (OSError, asyncio.IncompleteReadError):
        return False
    finally:
        writer.close()


async def flood_logins(port: int, seconds: float) -> None:
    """1,000 failed logins a second; prints how many the broker answered."""
    running: set[asyncio.Task[bool]] = set()
    answered = 0

    def ended(task: asyncio.Task[bool]) -> None:
        nonlocal answered
        running.discard(task)
        answered += not task.cancelled() and task.exception() is None and task.result()

    began = time.monotonic()
    for number in itertools.count():
        ahead = began + number / LOGINS_PER_SECOND - time.monotonic()
        if ahead > 0:
            await asyncio.sleep(ahead)
        if time.monotonic() - began >= seconds:
            break
        task = asyncio.create_task(failed_login(port, number))
        running.add(task)
        task.add_done_callback(ended)
    print(answered / (time.monotonic() - began), flush=True)
    for task in running:
        task.cancel()


async def flood_handshakes(port: int, seconds: float) -> None:
    """2,000 connections with half a ClientHello, opened again after the broker closes them; prints how many in all."""
    opened = 0

    async def keep_open() -> None:
        nonlocal opened
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                opened += 1
                writer.write(HALF_HELLO)
                with contextlib.suppress(OSError):
                    await reader.read(1)
                writer.close()
            await asyncio.sleep(1)

    tasks = [asyncio.create_task(keep_open()) for _ in range(SOCKETS)]
    await asyncio.sleep(seconds)
    print(opened, flush=True)
    for task in tasks:
        task.cancel()


def beside(flood: str, target: int, ports: Ports, topic: str, seconds: float) -> tuple[list[float], float, float]:
    """Latencies beside a flood, what the flood printed, and the broker's most MB meanwhile."""
    command = [sys.executable, "-m", "bench.cases.floods", flood, str(target), str(seconds + 2)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        time.sleep(1)
        found = latencies(ports.plain, topic, seconds)
        memory = rss_mb(ports.pid)
        return found, float(process.stdout.readline()), memory


def run_floods(name: str, scale: float) -> dict[str, float]:
    """All figures of one broker."""
    seconds = max(2.0, SECONDS * scale)
    with serving(name) as ports, topics.fresh(f"127.0.0.1:{ports.plain}", 1) as topic:
        latencies(ports.plain, topic, 2)
        quiet = latencies(ports.plain, topic, seconds)
        before = rss_mb(ports.pid)
        logins, rate, _ = beside("logins", ports.sasl, ports, topic, seconds)
        handshakes, opened, after = beside("handshakes", ports.tls, ports, topic, seconds)
    return {
        "no flood p99": percentile(quiet, 0.99),
        "failed logins": rate,
        "failed logins p99": percentile(logins, 0.99),
        "half handshakes": opened,
        "half handshakes p99": percentile(handshakes, 0.99),
        "half handshakes memory": after - before,
    }


if __name__ == "__main__":
    kind, at, duration = sys.argv[1:]
    asyncio.run({"logins": flood_logins, "handshakes": flood_handshakes}[kind](int(at), float(duration)))
