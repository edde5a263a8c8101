"""Whole requests at a live broker: every API and version with strange values, and the same with damaged bytes.

What must hold: a request that can be read is answered with something that can be read, or may wait; one that cannot is
answered or closes its own connection. Nothing of it reaches the log as a failure, and others are served.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.api.requests.declarations import DECLARATIONS
from odradek.wire.apis import APIS, ApiKey, response_class
from odradek.wire.headers import encode_request_header, parse_response_header
from odradek.wire.messages import create_topics, metadata
from tests.fuzz.wishes import Wisher
from tests.integration.conftest import RawClient

SETTINGS = {
    "num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "queued.max.request.bytes": 50_000_000,
}
THREADS = 6
WAIT_SECONDS = 0.25
# Produce closes when it may not answer (acks=0); calls of transactions that another connection has overtaken, too.
MAY_CLOSE = frozenset(
    (
        ApiKey.PRODUCE,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
    )
)


@pytest.fixture
def broker(make_broker: Callable[..., Any]) -> Iterator[Any]:
    """A broker that must be there at the end, without a failure in its log."""
    running = make_broker(SETTINGS).start()
    yield running
    assert running.running()
    failures = re.findall(r"^.*(?:Traceback| ERROR ).*$", running.log(10_000_000), re.MULTILINE)
    assert not failures, f"{len(failures)} failures in the log\n{running.log(20_000)}"


def topics_of(bootstrap: str) -> list[tuple[str, bytes]]:
    client = RawClient(bootstrap)
    names = [f"topic-{number}" for number in range(3)]
    wanted = [create_topics.CreateTopicsRequestTopic(name, 2, 1) for name in names]
    client.call(create_topics.CreateTopicsRequest(wanted, 10_000), 7)
    asked = [metadata.MetadataRequestTopic(name=name) for name in names]
    found = client.call(metadata.MetadataRequest(asked, False), 12).topics
    client.close()
    return [(topic.name, topic.topic_id) for topic in found]


def frame(key: int, version: int, body: bytes) -> bytes:
    out = bytearray(4)
    encode_request_header(out, key, version, 7, "fuzz")
    out += body
    out[0:4] = (len(out) - 4).to_bytes(4, "big")
    return bytes(out)


def damaged(body: bytes, random: Random) -> bytes:
    copy = bytearray(body)
    at = random.randrange(len(copy) + 1)
    match random.randrange(6):
        case 0:
            del copy[at:]
        case 1:
            copy[at : at + 1] = random.randbytes(1)
        case 2:
            copy[at : at + 4] = random.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\x10\0\0"))
        case 3:
            copy[at : at + 5] = random.choice((b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff", b"\x80" * 5))
        case 4:
            copy[at:at] = random.randbytes(random.randint(1, 8))
        case _:
            copy = bytearray(random.randbytes(len(copy)))
    return bytes(copy)


class Fuzzer:
    """Sends what a seed says, each request on a connection that is new whenever the last one did not get its answer."""

    def __init__(self, bootstrap: str, topics: list[tuple[str, bytes]], seed: str) -> None:
        self._bootstrap = bootstrap
        self._random = Random(seed)
        self._wisher = Wisher(self._random, topics)
        self._client: RawClient | None = None
        self.outcomes: Counter[str] = Counter()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def run(self, key: int, version: int, count: int) -> None:
        for _ in range(count):
            request, body = self._wisher.request(key, version)
            outcome = self._send(key, version, body)
            self.outcomes[outcome] += 1
            assert outcome != "closed" or key in MAY_CLOSE, f"{ApiKey(key).name} v{version} closed: {request!r}"
            self.outcomes["damaged " + self._send(key, version, damaged(body, self._random))] += 1

    def _send(self, key: int, version: int, body: bytes) -> str:
        if self._client is None:
            self._client = RawClient(self._bootstrap, WAIT_SECONDS)
        try:
            self._client.socket.sendall(frame(key, version, body))
            answer = memoryview(self._client.receive_frame())
        except TimeoutError:
            self.close()
            return "waits"
        except ConnectionError:
            self.close()
            return "closed"
        correlation_id, position = parse_response_header(answer, key, version)
        assert correlation_id == 7
        response, end = response_class(key).decode(answer, position, version)
        assert end == len(answer)
        self._wisher.learn(response)
        return "answered"


def fuzz(broker: Any, count: int, seed: str) -> Counter[str]:
    topics = topics_of(broker.bootstrap)
    work = [
        (key, version) for key in DECLARATIONS for version in range(APIS[key].min_version, APIS[key].max_version + 1)
    ]

    def share(number: int) -> Counter[str]:
        fuzzer = Fuzzer(broker.bootstrap, topics, f"{seed}-{number}")
        mine = work[number::THREADS]
        Random(f"{seed}-{number}").shuffle(mine)
        try:
            for key, version in mine:
                fuzzer.run(key, version, count)
        finally:
            fuzzer.close()
        return fuzzer.outcomes

    with ThreadPoolExecutor(THREADS) as pool:
        outcomes = sum(pool.map(share, range(THREADS)), Counter())
    bystander = RawClient(broker.bootstrap)
    assert bystander.call(metadata.MetadataRequest(topics=[]), 12).brokers
    bystander.close()
    assert outcomes["answered"] > len(work) * count / 2, outcomes
    return outcomes


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_requests_of_every_api(broker: Any) -> None:
    fuzz(broker, 2, "short")
    assert resident_bytes(broker.pid) < 150_000_000


@pytest.mark.long
def test_many_requests_of_every_api(broker: Any) -> None:
    fuzz(broker, 10, f"warm-{uuid.uuid4()}")
    before = resident_bytes(broker.pid)
    seed = str(uuid.uuid4())
    print(f"seed {seed}: {fuzz(broker, 60, seed)}")
    assert resident_bytes(broker.pid) < before + 100_000_000
