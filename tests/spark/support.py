"""Fills and reads topics for the Spark tests, from the outside of Spark."""

import asyncio
import json
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from pyspark.errors import StreamingQueryException

from odradek.client.admin import Admin, NewTopic, raise_first
from odradek.client.blocking import Blocking
from odradek.client.consumer.consumer import Consumer
from odradek.client.model import ConsumerRecord
from odradek.client.producer.producer import Producer
from odradek.records.topic_partition import TopicPartition


def run_to_end(start: Callable[[], Any], wait_s: float = 120) -> Any:
    """The query that `start` starts, at its end. Raises what it fails with.

    Spark gives a Python process ten seconds to start, however busy the machine is: such failures are tried again.
    """
    for attempt in range(10):
        query = start()
        try:
            assert query.awaitTermination(wait_s), f"the query is not done after {wait_s} s: {query.status}"
            return query
        except StreamingQueryException as error:
            if attempt == 9 or "failed to connect back" not in str(error):
                raise
        finally:
            query.stop()
    raise AssertionError("not reached")


def named_offsets(starting: str) -> Any:
    """The offsets in starting offsets, without the name of the point of the database."""
    return {topic: partitions for topic, partitions in json.loads(starting).items() if partitions}


class Record(NamedTuple):
    """What a test writes into a topic."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int = 0
    timestamp_ms: int = 1_000


class Topics:
    """Fills and reads topics with our own client, from the outside of Spark."""

    def __init__(self, bootstrap: str, blocking: Blocking) -> None:
        self.bootstrap = bootstrap
        self._blocking = blocking
        self._admin = blocking.open(Admin(bootstrap_servers=bootstrap))
        self._producer = blocking.open(Producer(bootstrap_servers=bootstrap, linger_ms=0))
        self._consumer = blocking.open(Consumer(bootstrap_servers=bootstrap))
        self._committed = blocking.open(Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed"))

    def create(self, partitions: int = 2, name: str | None = None, **configs: str) -> str:
        name = name or f"spark-{uuid.uuid4().hex[:12]}"
        # the records of these tests are old on purpose: retention must not take them
        configs = {"retention.ms": "-1", **configs}
        raise_first(self._blocking.run(self._admin.create_topics([NewTopic(name, partitions, 1, configs)])))
        return name

    def delete(self, name: str) -> None:
        self._blocking.run(self._admin.delete_topics([name]))

    def wait_until_gone(self, name: str, wait_s: float = 60) -> None:
        """Wait until brokers no longer know a topic that was deleted."""

        async def wait() -> None:
            async with asyncio.timeout(wait_s):
                while name in await self._admin.list_topics():
                    await asyncio.sleep(0.05)

        self._blocking.run(wait())

    def delete_records(self, name: str, partition: int, before: int) -> None:
        raise_first(self._blocking.run(self._admin.delete_records({TopicPartition(name, partition): before})))

    def grow(self, name: str, partitions: int) -> None:
        self._blocking.run(self._admin.create_partitions({name: partitions}))

    def fill(self, name: str, records: list[Record]) -> None:
        async def send() -> None:
            for each in records:
                await self._producer.send(
                    name, each.value, each.key, each.headers, each.partition, timestamp_ms=each.timestamp_ms
                )
            await self._producer.flush()

        self._blocking.run(send())

    def ends(self, name: str, partitions: int, *, committed: bool = False) -> list[int]:
        consumer = self._committed if committed else self._consumer
        keys = [TopicPartition(name, each) for each in range(partitions)]
        found = self._blocking.run(consumer.end_offsets(keys))
        return [found[key] for key in keys]

    def read(self, name: str, partitions: int = 2, *, committed: bool = False) -> list[ConsumerRecord]:
        """All records there are now, partition by partition."""
        keys = [TopicPartition(name, each) for each in range(partitions)]
        consumer = self._committed if committed else self._consumer

        async def drain() -> list[ConsumerRecord]:
            ends = await consumer.end_offsets(keys)
            consumer.assign(keys)
            consumer.seek_to_beginning()
            found: list[ConsumerRecord] = []
            while any([await consumer.position(key) < ends[key] for key in keys]):
                found += await consumer.poll(500, max_records=100_000)
            consumer.assign([])
            return found

        return sorted(self._blocking.run(drain()), key=lambda record: (record.partition, record.offset))

    def delete_group(self, group: str) -> None:
        raise_first(self._blocking.run(self._admin.groups.delete([group])))

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        found = self._blocking.run(self._admin.groups.offsets(group))
        return {key: at.offset for key, at in found.items()}

    def set_group_offset(self, group: str, partition: TopicPartition, offset: int) -> None:
        raise_first(self._blocking.run(self._admin.groups.alter_offsets(group, {partition: offset})))
