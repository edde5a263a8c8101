"""Metadata answers: one topic of 1,000 partitions and ten of them, and the memory of a connection.

One connection asks for the topics again and again (version 12) and reads the answer whole, without decoding it, so that
the broker is measured and not a client. The time is the median's. Memory per connection: what the process has grown by
when 2,000 connections have each asked for the versions of the APIs once.
"""

import asyncio
import contextlib
import gc
import resource
import statistics
import time

from bench.cases import topics
from bench.cases.groups import Connection, frame
from bench.servers import API_VERSIONS_V0, Running, rss_mb
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

TOPICS = (1, 10)
PARTITIONS = 1_000
REQUESTS = 200
CONNECTIONS = 2_000


async def answer_ms(broker: Running, names: list[str], count: int) -> float:
    connection = await Connection.open(broker)
    request = MetadataRequest([MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False)
    while True:  # a broker may take its time to apply this number of partitions
        answer = await connection.call(request, 12)
        found = [partition for topic in answer.topics for partition in topic.partitions]
        if len(found) == len(names) * PARTITIONS and not any(partition.error_code for partition in found):
            break
        await asyncio.sleep(0.2)
    data = frame(request, 12, 1)
    took = []
    for _ in range(count):
        began = time.perf_counter()
        connection.writer.write(data)
        size = int.from_bytes(await connection.reader.readexactly(4), "big")
        await connection.reader.readexactly(size)
        took.append(time.perf_counter() - began)
    connection.writer.close()
    return statistics.median(took) * 1000


async def connection_kb(broker: Running, count: int) -> float:
    before = rss_mb(broker.pid)
    opened = []
    for _ in range(count):
        connection = await Connection.open(broker)
        connection.writer.write(API_VERSIONS_V0)
        opened.append(connection)
    for connection in opened:
        await connection.reader.readexactly(int.from_bytes(await connection.reader.readexactly(4), "big"))
    grown = rss_mb(broker.pid) - before
    for connection in opened:
        connection.writer.close()
    return grown * 1000 / count


async def measure(broker: Running, scale: float) -> dict[str, float]:
    figures = {}
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = max(100, int(CONNECTIONS * min(scale, 1)))
    if soft < count + 100:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count + 100, hard), hard))
    figures["memory per connection"] = await connection_kb(broker, count)
    for number in TOPICS:
        with contextlib.ExitStack() as stack:
            names = [stack.enter_context(topics.fresh(broker.bootstrap, PARTITIONS)) for _ in range(number)]
            gc.collect()
            requests = max(20, int(REQUESTS * scale))
            figures[f"metadata of {number * PARTITIONS:,} partitions"] = await answer_ms(broker, names, requests)
    return figures


def run(broker: Running, scale: float) -> dict[str, float]:
    return asyncio.run(measure(broker, scale))
