"""Graceful shutdown in a container: on SIGTERM, finish the record at hand, commit, leave the group, exit with 0.

`docker stop` and Kubernetes send SIGTERM and kill some seconds later. A worker that leaves its group hands its
partitions over at once; one that is killed keeps them until its session times out, and its last records are read again.

    python examples/cookbook/test_graceful_shutdown.py 127.0.0.1:9092 jobs
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

from odradek.client import Admin, Consumer, Producer, TopicPartition
from odradek.client.admin import raise_first
from odradek.testing import BlockingBroker


async def work(servers: str, topic: str) -> None:
    """Print each record, until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    consumer: Consumer[bytes | None, bytes] = Consumer(
        topic,
        bootstrap_servers=servers,
        group_id="graceful",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer:  # leaves the group at the end
        while not stop.is_set():
            # A short timeout: the signal is seen between two polls.
            for record in await consumer.poll(timeout_ms=200, max_records=100):
                await handle(record.value)
                await consumer.commit({record.topic_partition: record.offset + 1})
                if stop.is_set():
                    break


async def handle(value: bytes) -> None:
    """The work: slow enough to be interrupted."""
    await asyncio.sleep(0.01)
    print(value.decode(), flush=True)


def test_worker_commits_and_leaves_its_group_on_sigterm(kafka_broker: BlockingBroker) -> None:
    topic = kafka_broker.topic()
    servers = kafka_broker.bootstrap_servers

    async def prepare() -> None:
        async with Producer(bootstrap_servers=servers) as producer:
            for number in range(2_000):
                await producer.send(topic, b"job %d" % number)

    async def outcome() -> tuple[int, int]:
        async with (
            Admin(bootstrap_servers=servers) as admin,
            Consumer(bootstrap_servers=servers, group_id="graceful") as consumer,
        ):
            place = TopicPartition(topic, 0)
            committed = await consumer.committed([place])
            group = raise_first(await admin.groups.describe(["graceful"]))["graceful"]
            return committed[place].offset, len(group.members)

    asyncio.run(prepare())
    with subprocess.Popen([sys.executable, __file__, servers, topic], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        first = worker.stdout.readline()
        worker.send_signal(signal.SIGTERM)
        others = worker.stdout.readlines()
    assert first == "job 0\n"
    assert worker.returncode == 0
    done = 1 + len(others)
    assert 1 <= done < 2_000
    assert asyncio.run(outcome()) == (done, 0)


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
