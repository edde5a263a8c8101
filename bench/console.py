"""The console at scale: `./dev bench console pages` and `./dev bench console search`.

`pages` renders pages of a cluster that exists only in memory, with 10,000 topics of ten partitions, 5,000 groups, and
one topic of 1,000 partitions, and prints the median time of each in ms; the limit is 150. `search` starts a broker,
writes 10 million records (`--records`), and prints the seconds until a search of the console streams its first hit,
whose record is the newest but one, and the p99 of produce requests with and without a search that runs.
"""

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from odradek.client.admin import GroupListing, GroupState, GroupType
from odradek.client.model import OffsetAndTimestamp
from odradek.client.network.metadata import PartitionInfo, TopicInfo
from odradek.client.producer.producer import Producer
from odradek.client.reports.activity import GroupSample, PartitionSample, Sample
from odradek.console import clusters
from odradek.console.app import build
from odradek.console.messages.query import MessageQuery
from odradek.console.messages.reading import RAW, read
from odradek.console.server import NICENESS
from odradek.console.settings import ConsoleSettings
from odradek.records.topic_partition import TopicPartition

TOPICS, PARTITIONS, GROUPS, LARGE = 10_000, 10, 5_000, 1_000
RUNS = 9
LIMIT_MS = 150
PAGES = {
    "topics": "/topics",
    "topics, search": "/topics?q=topic-00",
    "topics by rate": "/topics?sort=-records_per_second",
    "topics, 1,000 rows": "/topics?rows=1000",
    "groups": "/groups",
    "groups by lag, 1,000 rows": "/groups?sort=-lag&rows=1000",
    "topic": "/topics/large",
    "topic, 1,000 rows": "/topics/large?rows=1000",
    "metrics": "/metrics",
}


class InMemory:
    """What pages ask of an admin client, without a cluster."""

    def __init__(self, topics: Sequence[TopicInfo], groups: Sequence[str]) -> None:
        self.topics = {each.name: each for each in topics}
        self.names = groups
        self.groups = self.log_dirs = self

    async def describe_topics(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        return {name: self.topics[name] for name in names}

    async def list_offsets(self, places: Mapping[TopicPartition, Any]) -> dict[TopicPartition, OffsetAndTimestamp]:
        return {place: OffsetAndTimestamp(1_000, -1, 0) for place in places}

    async def describe(self, **_arguments: Any) -> dict[int, Any]:
        return {}

    async def list(self) -> list[GroupListing]:
        return [GroupListing(each, "consumer", GroupState.STABLE, GroupType.CLASSIC, 1) for each in self.names]


def topic_of(name: str, partitions: int) -> TopicInfo:
    found = [PartitionInfo(i, i % 3 + 1, 0, [1, 2, 3], [1, 2, 3], []) for i in range(partitions)]
    return TopicInfo(name, b"\0" * 16, False, found)


def sample_of(topics: Sequence[TopicInfo], groups: Sequence[str], at: float) -> Sample:
    places = [TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions]
    end = int(at * 100) + 1_000
    partitions = {each: PartitionSample(1, 0, end, {1: end * 50, 2: end * 50, 3: end * 50}) for each in places}
    committed = {
        name: GroupSample(GroupState.STABLE, dict.fromkeys(places[at : at + 10], end - 5))
        for at, name in enumerate(groups)
    }
    return Sample(at, {1: "a:9092", 2: "b:9092", 3: "c:9092"}, partitions, committed)


async def get(app: Any, path: str) -> tuple[int, int]:
    """Status and length of a page, by ASGI."""
    status, length = 0, 0
    where, _, query = path.partition("?")
    scope = {
        "type": "http", "method": "GET", "path": where, "raw_path": where.encode(), "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1")], "scheme": "http", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
        "root_path": "", "http_version": "1.1", "asgi": {"version": "3.0"},
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        nonlocal status, length
        status = message.get("status", status)
        length += len(message.get("body", b""))

    await app(scope, receive, send)
    return status, length


def large_cluster(partitions: int = PARTITIONS) -> tuple[Any, float]:
    """A console for the cluster in memory, whose topics have so many partitions, and the seconds that a sample took."""
    topics = [topic_of(f"topic-{i:05}", partitions) for i in range(TOPICS)] + [topic_of("large", LARGE)]
    topics.sort(key=lambda each: each.name)
    groups = [f"group-{i:05}" for i in range(GROUPS)]
    app = build(ConsoleSettings(clusters={"c": {"bootstrap_servers": "127.0.0.1:1"}}, allow_changes=True))
    view = app.state.console._shared.get("c")
    view.admin = InMemory(topics, groups)
    view._topics, view._topics_s = topics, float("inf")
    before, now = sample_of(topics, groups, 0.0), sample_of(topics, groups, 10.0)
    began = time.perf_counter()
    view._before, view.sample = before, now
    view._figures, point = clusters._digest(before, now, time.time())
    took = time.perf_counter() - began
    view.history.extend([point] * clusters.HISTORY)
    return app, took


async def pages() -> None:
    app, sample_s = large_cluster()
    print(f"{'rows of a sample (in a thread)':32}{sample_s * 1000:8.0f} ms")
    for name, path in PAGES.items():
        took = []
        for _ in range(RUNS):
            began = time.perf_counter()
            status, length = await get(app, f"/c/c{path}")
            took.append((time.perf_counter() - began) * 1000)
            assert status == 200, (name, status)
        median = statistics.median(took)
        print(f"{name:32}{median:8.0f} ms{length / 1000:10.0f} KB{'  over the limit' if median > LIMIT_MS else ''}")


async def first_hit_s(options: Mapping[str, Any], topic: str, kind: str, expression: str) -> tuple[float, int]:
    """Seconds until the first hit, and the records that were read until then."""
    began = time.perf_counter()
    query = MessageQuery(filter=kind, expression=expression, limit=1)
    async for progress in read(options, topic, query, RAW):
        if progress.found:
            return time.perf_counter() - began, progress.scanned
    raise AssertionError("nothing was found")


async def produce_p99_ms(options: Mapping[str, Any], topic: str, seconds: float) -> float:
    took = []
    async with Producer[bytes, bytes](**options, linger_ms=0) as producer:
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            await producer.send_and_wait(topic, b"x" * 100)
            took.append((time.perf_counter() - began) * 1000)
    return statistics.quantiles(took, n=100)[98]


async def search(records: int) -> None:
    from odradek.testing.broker import Broker

    async with Broker() as broker:
        topic, other = await broker.topic(partitions=4), await broker.topic()
        options: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
        async with Producer[bytes, bytes](**options, linger_ms=20, batch_size=512 * 1024) as producer:
            for i in range(records - 1):
                await producer.send(topic, b'{"n": %d, "city": "Berlin"}' % i)
            await producer.flush()
            await producer.send_and_wait(topic, b'{"n": -1, "city": "Hamburg"}')
            await producer.send_and_wait(topic, b'{"n": -2, "city": "Berlin"}')
        for kind, expression in (("text", "hamburg"), ("cel", "value.n == -1"), ("path", "$[?@ == 'Hamburg']")):
            seconds, scanned = await first_hit_s(options, topic, kind, expression)
            print(f"first hit by {kind:5}{seconds:8.2f} s after {scanned:,} records")
        print(f"produce p99 without a search{await produce_p99_ms(options, other, 10):8.2f} ms")
        # In a process of its own, as a console is: only the broker is shared.
        searching = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.console", "scan", "--bootstrap", broker.bootstrap_servers, "--topic", topic
        )
        try:
            print(f"produce p99 with a search   {await produce_p99_ms(options, other, 10):8.2f} ms")
        finally:
            if searching.returncode is None:
                searching.kill()
            await searching.wait()


async def scan(bootstrap: str, topic: str) -> None:
    """A search that finds nothing, until it reaches its limits, with the priority of a console."""
    os.nice(NICENESS)
    async for _ in read({"bootstrap_servers": bootstrap}, topic, MessageQuery(expression="nowhere"), RAW):
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("pages", "search", "scan"))
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    parser.add_argument("--topic", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.what == "pages":
        asyncio.run(pages())
    elif arguments.what == "scan":
        asyncio.run(scan(arguments.bootstrap, arguments.topic))
    else:
        asyncio.run(search(arguments.records))


if __name__ == "__main__":
    main()
