"""./dev fuzz: frames, random and mutated, through the connections of a broker in this process.

The peer is at a listener without authentication, at one with SASL before its login, or behind its login. What must
hold: no exception leaves the server, each peer is answered or closed, memory stays bounded, no frame of a peer that is
not authenticated blocks the event loop.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import resource
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.broker.network.server import Server
from odradek.wire.apis import APIS, ApiKey, request_class
from odradek.wire.headers import encode_request_header
from tests.unit.broker.network.test_connection import ScriptedStream

FRAME_BYTES = 65_536
"""The largest frame of a peer that is not authenticated."""
STAGES = ("plain", "login", "after")
"""At a listener without authentication, before a login, and after it."""
_USER = (b"fuzz", b"fuzz-secret")
_KEYS = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
_PER_CONNECTION = 20
_PER_TURN = 200
_KEPT = 300


class Report(NamedTuple):
    """What a run has seen."""

    frames: int
    answered: int
    closed: int
    slowest_ms: float
    """CPU of the event loop for the slowest frame, without the garbage collector."""
    waiting: int
    """Frames that were neither answered nor the end of their connection."""


class Failures(logging.Handler):
    """Keeps the lines of unexpected exceptions."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line with a traceback, or of an error."""
        if record.exc_info or record.levelno >= logging.ERROR:
            self.lines.append(self.format(record))


class CollectorTime:
    """CPU seconds of this thread in the garbage collector, which looks at all that the process has."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0
        gc.callbacks.append(self._observe)

    def close(self) -> None:
        """Stop counting."""
        gc.callbacks.remove(self._observe)

    def _observe(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.thread_time()
        else:
            self.seconds += time.thread_time() - self._began


class Frames:
    """Frames in endless variety."""

    def __init__(self, random: Random, keys: Sequence[ApiKey] = _KEYS) -> None:
        """Of these APIs, mostly."""
        self._random = random
        self._keys = keys
        self._kept: list[bytes] = [self._request(key, 0) for key in _KEYS]
        for key in () if keys is _KEYS else keys:
            self._kept += [_request_of(key, version) for version in {APIS[key].min_version, APIS[key].max_version}]
        self._fixed = len(self._kept)
        """The first frames stay; the others are replaced by mutated ones."""

    def next(self) -> bytes:
        """The next frame, without its size."""
        random = self._random
        kind = random.randrange(6)
        if kind == 0:
            return random.randbytes(random.choice((0, 1, 2, 7, 8, 9, 20, 100, 1000, FRAME_BYTES)))
        if kind == 1:
            return self._request(random.choice(self._keys), random.randrange(0, 6))
        if kind == 2:
            return self._many_tags()
        frame = bytearray(random.choice(self._kept))
        for _ in range(random.randrange(1, 6)):
            self._mutate(frame)
        self._keep(bytes(frame[:FRAME_BYTES]))
        return bytes(frame[:FRAME_BYTES])

    def _keep(self, frame: bytes) -> None:
        if len(self._kept) < self._fixed + _KEPT:
            self._kept.append(frame)
        else:
            self._kept[self._random.randrange(self._fixed, self._fixed + _KEPT)] = frame

    def _request(self, key: ApiKey, version: int) -> bytes:
        """A request that can be read, mostly."""
        random = self._random
        version = min(version, APIS[key].max_version)
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + random.randbytes(4) + b"\0\4test"
        body = random.randbytes(random.choice((0, 3, 30, 300)))
        texts = (b"\0\5PLAIN", b"\0\x0dSCRAM-SHA-256", b"\0\x0fODRADEK-CLUSTER", b"\x7f\xff")
        return head + random.choice((b"", b"\0", b"\0\x05test1\x061.2.3\0", random.choice(texts))) + body

    def _many_tags(self) -> bytes:
        """A flexible header whose tags are many, or large, or announced only."""
        random = self._random
        count = random.choice((1, 64, 65, 1000, 20_000))
        tag = random.choice((b"\1\0", b"\1\1x", b"\xff\xff\xff\xff\x0f\0", b"\1\xff\xff\xff\xff\x07"))
        announced = bytearray()
        rest = random.choice((count, 2**31 - 1))
        while rest >= 0x80:
            announced.append(rest & 0x7F | 0x80)
            rest >>= 7
        announced.append(rest)
        head = b"\0\x12\0\4" + random.randbytes(4) + b"\0\4test"
        return (head + bytes(announced) + tag * count)[:FRAME_BYTES]

    def _mutate(self, frame: bytearray) -> None:
        random = self._random
        at = random.randrange(len(frame) + 1)
        kind = random.randrange(5)
        if kind == 0 and frame:
            frame[at % len(frame)] ^= 1 << random.randrange(8)
        elif kind == 1:
            frame[at:at] = random.randbytes(random.randrange(1, 9))
        elif kind == 2:
            del frame[at : at + random.randrange(1, 9)]
        elif kind == 3:
            frame[at : at + 4] = random.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0"))
        else:
            frame += bytes(frame[at : at + 1000]) * random.randrange(1, 50)


def _request_of(key: ApiKey, version: int) -> bytes:
    """A whole request with defaults everywhere."""
    out = bytearray()
    encode_request_header(out, key, version, 7, "test")
    request_class(key)().encode(out, version)
    return bytes(out)


def _settings(stage: str, folder: Path) -> dict[str, str]:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(folder),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "auto.create.topics.enable": "false",
    }
    if stage == "plain":
        return settings
    name, password = (word.decode() for word in _USER)
    return settings | {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{name}="{password}";'
        ),
        "connection.failed.authentication.delay.ms": "0",
        "odradek.login.max.failures": "0",
    }


@contextlib.asynccontextmanager
async def serving(stage: str, folder: Path) -> AsyncIterator[Server]:
    """The listeners of a broker in this process."""
    broker = Broker(BrokerConfig(_settings(stage, folder)))
    await broker.start()
    try:
        assert broker._parts is not None
        yield broker._parts.server
    finally:
        await broker.stop()


async def run(frames: int, seed: int, folder: Path, stage: str = "plain") -> Report:
    """Send so many frames. Raises AssertionError for what must not happen."""
    failures = Failures()
    logging.getLogger("odradek").addHandler(failures)
    try:
        async with serving(stage, folder) as server:
            keys: Sequence[ApiKey] = _KEYS
            if stage == "after":
                keys = [ApiKey(key) for key in APIS if key != ApiKey.CONTROLLED_SHUTDOWN]
            found = await _send(server, Frames(Random(seed), keys), frames, stage)
    finally:
        logging.getLogger("odradek").removeHandler(failures)
    assert not failures.lines, failures.lines[:5]
    return found


async def connected(server: Server, stage: str) -> ScriptedStream:
    """A new connection, which has logged in if the stage is after that."""
    stream = ScriptedStream()
    server._serve(stream, "PLAINTEXT" if stage == "plain" else "SASL_PLAINTEXT")
    if stage == "after":
        await _log_in(stream)
    return stream


async def _log_in(stream: ScriptedStream) -> None:
    """The user's login."""
    for frame in (
        b"\0\x11\0\1\0\0\0\1\0\4test\0\5PLAIN",
        b"\0\x24\0\0\0\0\0\2\0\4test\0\0\0\x11\0" + b"\0".join(_USER),
    ):
        before = len(stream.sent)
        stream.deliver(frame)
        while len(stream.sent) == before and not stream.closed:
            await asyncio.sleep(0)
    assert not stream.closed


async def _send(server: Server, source: Frames, frames: int, stage: str) -> Report:
    answered, closed, waiting, slowest = 0, 0, 0, 0.0
    stream, left, collector = ScriptedStream(), 0, CollectorTime()
    for number in range(frames):
        if stream.closed or not left:
            stream.close()
            stream, left = await connected(server, stage), _PER_CONNECTION
            connection = next(reversed(server.connections.values()))
        left -= 1
        frame, before = source.next(), len(stream.sent)
        began = time.thread_time() - collector.seconds
        stream.deliver(frame)
        slowest = max(slowest, time.thread_time() - collector.seconds - began)
        if stage != "plain":
            await asyncio.sleep(0)
        if stream.closed:
            closed += 1
        elif len(stream.sent) > before:
            answered += 1
        else:
            waiting += 1
            if stage != "login" or number % _PER_CONNECTION == 0:
                connection.close("next")
        if number % _PER_TURN == 0:
            await asyncio.sleep(0)
    stream.close()
    collector.close()
    return Report(frames, answered, closed, slowest * 1000, waiting)


def main() -> None:
    """Run and print what was seen."""
    parser = argparse.ArgumentParser(
        prog="./dev fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stage", choices=STAGES, default="plain", help="where the peer is (default: plain)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(5000, arguments.seed, Path(folder) / "warm", arguments.stage))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.monotonic()
        found = asyncio.run(run(arguments.frames, arguments.seed, Path(folder) / "data", arguments.stage))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{found}\n{time.monotonic() - began:.0f} s; largest memory grew by {grown} KiB")


if __name__ == "__main__":
    main()
