"""What metrics cost: function calls and time per request on the broker's thread, and how long a scrape holds the loop.

`./dev bench observability [--partitions N]`. The broker runs in this process, its client in a thread.
Function calls do not depend on what else the machine does: two versions are compared by running this file with each.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.cases.synchronous import produce_request, record_batch
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker

REQUESTS = 5_000
ROUNDS = 5


def configured(folder: Path, **settings: str) -> BrokerConfig:
    given = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder), **settings}
    return BrokerConfig(given, is_single=True)


def send_one_by_one(bootstrap: str, count: int) -> None:
    """One-record Produce requests, each after the answer to the one before."""
    host, _, port = bootstrap.rpartition(":")
    request = produce_request("one", record_batch(b"x" * 100))
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            connection.sendall(request)
            if not connection.recv(4096):
                raise ConnectionError("closed by the broker")


async def in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)


def create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(120)


async def per_request() -> None:
    """Function calls (Python's and C's) and microseconds of the thread for each Produce request."""
    with tempfile.TemporaryDirectory() as folder:
        config = configured(Path(folder) / "data")
        broker = Broker(config)
        await broker.start()
        await in_thread(create, broker.bootstrap, "one", 1)
        await in_thread(send_one_by_one, broker.bootstrap, 500)
        calls = 0

        def count(_frame: FrameType, event: str, _argument: Any) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        await in_thread(send_one_by_one, broker.bootstrap, REQUESTS)
        sys.setprofile(None)
        times = []
        for _ in range(ROUNDS):
            before = time.thread_time()
            await in_thread(send_one_by_one, broker.bootstrap, REQUESTS)
            times.append((time.thread_time() - before) / REQUESTS * 1e6)
        await broker.stop()
    print(
        f"function calls per request {calls / REQUESTS:.1f}, "
        f"thread time {min(times):.2f} µs (median {median(times):.2f})"
    )


def touch_all(bootstrap: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 2 * partitions})
    for index in range(partitions):
        producer.produce("many", b"value", partition=index)
    if producer.flush(300):
        raise RuntimeError("some partitions took no record")


async def scrape(partitions: int) -> None:
    """Series, time and the longest hold of a scrape of so many partitions."""
    with tempfile.TemporaryDirectory() as folder:
        config = configured(Path(folder) / "data", **{"odradek.http.listener": "127.0.0.1:0"})
        broker = Broker(config)
        await broker.start()
        await in_thread(create, broker.bootstrap, "many", partitions)
        await in_thread(touch_all, broker.bootstrap, partitions)
        took, holds, processor, text = [], [], [], ""
        for _ in range(2 * ROUNDS):
            text = await in_thread(lambda: urllib.request.urlopen(f"http://{broker.http}/metrics").read().decode())
            last = {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if "last_scrape" in line[:24]}
            if last["odradek_last_scrape_seconds"]:
                took.append(last["odradek_last_scrape_seconds"] * 1000)
                holds.append(last["odradek_last_scrape_longest_hold_seconds"] * 1000)
                processor.append(last["odradek_last_scrape_longest_hold_cpu_seconds"] * 1000)
        await broker.stop()
    samples = sum(not line.startswith("#") for line in text.splitlines())
    print(
        f"{partitions} partitions: {samples} series, {len(text) / 1e6:.2f} MB, scrape {median(took):.0f} ms, "
        f"longest hold of the event loop {median(holds):.2f} ms (worst of {len(holds)}: {max(holds):.2f}), "
        f"of which the thread worked {median(processor):.2f} ms (worst: {max(processor):.2f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=10_000, help="0: no scrape (default: 10000)")
    arguments = parser.parse_args()
    asyncio.run(per_request())
    if arguments.partitions:
        asyncio.run(scrape(arguments.partitions))


if __name__ == "__main__":
    main()
