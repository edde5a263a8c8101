"""The same work by each client, with the same settings: acks=all, idempotence, linger 5 ms, batches of 64 KiB."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from itertools import count, cycle, islice
from typing import Any

LINGER_MS = 5
BATCH_BYTES = 65_536
BUFFER_BYTES = 64 * 1024 * 1024
AT_ONCE = 2_000
PARTITIONS = 4


class Stopwatch:
    """CPU (user and system) and wall seconds of this process between `start` and `stop`."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self._cpu, self._wall = _cpu_seconds(), time.perf_counter()

    def stop(self) -> dict[str, float]:
        return {"cpu": _cpu_seconds() - self._cpu, "wall": time.perf_counter() - self._wall}


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


Figures = dict[str, float]

KEYS = tuple(b"customer-%05d" % number for number in range(1_000))
HEADERS = tuple([("source", b"bench"), ("trace", b"%032x" % (number << 90))] for number in range(1_000))
BEGIN_MS = 1_760_000_000_000


class Task:
    """Records of one size to write into, or read from, one topic."""

    def __init__(
        self, bootstrap: str, topic: str, records: int, size: int, shape: str = "plain", *, check_crcs: bool = True
    ) -> None:
        """Records of the shape `plain` have a value only, those of `keyed` a key of 14 bytes, those of `full` also two
        headers and a timestamp of their own. `check_crcs` says whether consumers verify the checksums of batches."""
        self.bootstrap = bootstrap
        self.topic = topic
        self.records = records
        self.size = size
        self.shape = shape
        self.check_crcs = check_crcs

    def cycled_keys(self) -> Iterator[bytes]:
        """The keys of the records in order."""
        return islice(cycle(KEYS), self.records)

    def full(self) -> Iterator[tuple[int, bytes, list[tuple[str, bytes]]]]:
        """Timestamps, keys and headers of the records in order."""
        return zip(count(BEGIN_MS), self.cycled_keys(), cycle(HEADERS))

    @property
    def bytes(self) -> int:
        """All values together; who has read them all has seen so many bytes."""
        return self.records * self.size

    def check(self, seen: int) -> None:
        if seen != self.bytes:
            raise RuntimeError(f"{seen} bytes of values arrived instead of {self.bytes}")


# --- Odradek ---


def _odradek_producer(task: Task) -> Any:
    from odradek.client import Producer

    return Producer(
        bootstrap_servers=task.bootstrap, linger_ms=LINGER_MS, batch_size=BATCH_BYTES, buffer_memory=BUFFER_BYTES
    )


async def _odradek_consumer(task: Task) -> Any:
    from odradek.client import Consumer, TopicPartition

    consumer: Any = Consumer(bootstrap_servers=task.bootstrap, check_crcs=task.check_crcs)
    await consumer.start()
    partitions = [TopicPartition(task.topic, number) for number in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(partitions)
    await consumer.position(partitions[0])
    return consumer


async def odradek_produce(task: Task) -> Figures:
    async with _odradek_producer(task) as producer:
        await producer.partitions_for(task.topic)
        topic, value, send = task.topic, b"x" * task.size, producer.send
        watch = Stopwatch()
        if task.shape == "plain":
            for _ in range(task.records):
                await send(topic, value)
        elif task.shape == "keyed":
            for key in task.cycled_keys():
                await send(topic, value, key)
        else:
            for at, key, headers in task.full():
                await send(topic, value, key, headers, timestamp_ms=at)
        await producer.flush()
        return watch.stop()


async def odradek_each(task: Task) -> Figures:
    watch, seen = Stopwatch(), 0
    consumer = await _odradek_consumer(task)
    async for record in consumer:
        seen += len(record.value)
        if seen >= task.bytes:
            break
    task.check(seen)
    await consumer.close()
    return watch.stop()


async def odradek_poll(task: Task) -> Figures:
    watch, seen = Stopwatch(), 0
    consumer = await _odradek_consumer(task)
    while seen < task.bytes:
        for record in await consumer.poll(timeout_ms=200, max_records=AT_ONCE):
            seen += len(record.value)
    task.check(seen)
    await consumer.close()
    return watch.stop()


async def odradek_batches(task: Task) -> Figures:
    watch, seen = Stopwatch(), 0
    consumer = await _odradek_consumer(task)
    async for batch in consumer.batches():
        seen += sum(map(len, batch.values))
        if seen >= task.bytes:
            break
    task.check(seen)
    await consumer.close()
    return watch.stop()


async def odradek_tables(task: Task) -> Figures:
    import pyarrow as pa
    import pyarrow.compute as pc

    pa.scalar(0)  # with its first scalar, pyarrow imports pandas
    watch, seen = Stopwatch(), 0
    consumer = await _odradek_consumer(task)
    async for table in consumer.arrow():
        seen += pc.sum(pc.binary_length(table["value"])).as_py()
        if seen >= task.bytes:
            break
    task.check(seen)
    await consumer.close()
    return watch.stop()


async def odradek_send_table(task: Task) -> Figures:
    import pyarrow as pa

    columns = {"value": pa.repeat(pa.scalar(b"x" * task.size), task.records)}
    if task.shape != "plain":
        columns["key"] = pa.array(task.cycled_keys())
    table = pa.table(columns)
    async with _odradek_producer(task) as producer:
        await producer.partitions_for(task.topic)
        watch = Stopwatch()
        await producer.send_table(table, task.topic, key="key" if task.shape != "plain" else None)
        return watch.stop()


# --- aiokafka ---


async def aiokafka_produce(task: Task) -> Figures:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=task.bootstrap, linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES, enable_idempotence=True
    )
    async with producer:
        await producer.partitions_for(task.topic)
        topic, value, send = task.topic, b"x" * task.size, producer.send
        watch = Stopwatch()
        if task.shape == "plain":
            for _ in range(task.records):
                await send(topic, value)
        elif task.shape == "keyed":
            for key in task.cycled_keys():
                await send(topic, value, key)
        else:
            for at, key, headers in task.full():
                await send(topic, value, key, headers=headers, timestamp_ms=at)
        await producer.flush()
        return watch.stop()


async def _aiokafka_consumer(task: Task) -> Any:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=task.bootstrap, auto_offset_reset="earliest", check_crcs=task.check_crcs
    )
    await consumer.start()
    consumer.assign([TopicPartition(task.topic, number) for number in range(PARTITIONS)])
    return consumer


async def aiokafka_each(task: Task) -> Figures:
    watch, seen = Stopwatch(), 0
    consumer = await _aiokafka_consumer(task)
    async for record in consumer:
        seen += len(record.value)
        if seen >= task.bytes:
            break
    task.check(seen)
    await consumer.stop()
    return watch.stop()


async def aiokafka_poll(task: Task) -> Figures:
    watch, seen = Stopwatch(), 0
    consumer = await _aiokafka_consumer(task)
    while seen < task.bytes:
        for records in (await consumer.getmany(timeout_ms=200, max_records=AT_ONCE)).values():
            for record in records:
                seen += len(record.value)
    task.check(seen)
    await consumer.stop()
    return watch.stop()


# --- confluent-kafka ---


def _confluent_producer(task: Task) -> Any:
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": task.bootstrap,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": BUFFER_BYTES // 1024,
            "enable.idempotence": True,
            "delivery.report.only.error": True,
        }
    )


def confluent_produce(task: Task) -> Figures:
    producer = _confluent_producer(task)
    producer.list_topics(task.topic, 30)
    topic, value, produce = task.topic, b"x" * task.size, producer.produce

    def wait() -> None:
        while len(producer) > 10_000:
            producer.poll(0.005)

    watch = Stopwatch()
    if task.shape == "plain":
        for _ in range(task.records):
            try:
                produce(topic, value)
            except BufferError:
                wait()
                produce(topic, value)
    elif task.shape == "keyed":
        for key in task.cycled_keys():
            try:
                produce(topic, value, key)
            except BufferError:
                wait()
                produce(topic, value, key)
    else:
        for at, key, headers in task.full():
            try:
                produce(topic, value, key, headers=headers, timestamp=at)
            except BufferError:
                wait()
                produce(topic, value, key, headers=headers, timestamp=at)
    if producer.flush(300):
        raise RuntimeError("records were not sent")
    return watch.stop()


def _confluent_consumer(task: Task) -> Any:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            # librdkafka alone does not verify checksums by default: the others would do more work.
            "check.crcs": task.check_crcs,
            # With its default, a consumer whose queue was once full fetches nothing for a second.
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition(task.topic, number, 0) for number in range(PARTITIONS)])
    return consumer


def confluent_each(task: Task) -> Figures:
    watch, seen = Stopwatch(), 0
    consumer = _confluent_consumer(task)
    while seen < task.bytes:
        message = consumer.poll(1.0)
        if message is not None:
            seen += len(message.value())
    task.check(seen)
    consumer.close()
    return watch.stop()


def confluent_poll(task: Task) -> Figures:
    watch, seen = Stopwatch(), 0
    consumer = _confluent_consumer(task)
    while seen < task.bytes:
        for message in consumer.consume(AT_ONCE, 0.2):
            seen += len(message.value())
    task.check(seen)
    consumer.close()
    return watch.stop()


# --- kafka-python ---


def _python_producer(task: Task) -> Any:
    from kafka import KafkaProducer

    return KafkaProducer(
        bootstrap_servers=task.bootstrap,
        linger_ms=LINGER_MS,
        batch_size=BATCH_BYTES,
        enable_idempotence=True,
    )


def python_produce(task: Task) -> Figures:
    producer = _python_producer(task)
    producer.partitions_for(task.topic)
    topic, value, send = task.topic, b"x" * task.size, producer.send
    watch = Stopwatch()
    if task.shape == "plain":
        for _ in range(task.records):
            send(topic, value)
    elif task.shape == "keyed":
        for key in task.cycled_keys():
            send(topic, value, key)
    else:
        for at, key, headers in task.full():
            send(topic, value, key, headers, timestamp_ms=at)
    producer.flush()
    figures = watch.stop()
    producer.close()
    return figures


def _python_consumer(task: Task) -> Any:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=task.bootstrap, group_id=None, auto_offset_reset="earliest", check_crcs=task.check_crcs
    )
    consumer.assign([TopicPartition(task.topic, number) for number in range(PARTITIONS)])
    return consumer


def python_each(task: Task) -> Figures:
    watch, seen = Stopwatch(), 0
    consumer = _python_consumer(task)
    for record in consumer:
        seen += len(record.value)
        if seen >= task.bytes:
            break
    task.check(seen)
    consumer.close()
    return watch.stop()


def python_poll(task: Task) -> Figures:
    watch, seen = Stopwatch(), 0
    consumer = _python_consumer(task)
    while seen < task.bytes:
        for records in consumer.poll(timeout_ms=200, max_records=AT_ONCE).values():
            for record in records:
                seen += len(record.value)
    task.check(seen)
    consumer.close()
    return watch.stop()


Driver = Callable[[Task], Figures | Awaitable[Figures]]

DRIVERS: dict[str, dict[str, Driver]] = {
    "odradek": {
        "produce": odradek_produce,
        "one by one": odradek_each,
        "in lists": odradek_poll,
        "in batches": odradek_batches,
        "send table": odradek_send_table,
        "in tables": odradek_tables,
    },
    "aiokafka": {
        "produce": aiokafka_produce,
        "one by one": aiokafka_each,
        "in lists": aiokafka_poll,
        "in batches": aiokafka_poll,
    },
    "confluent": {
        "produce": confluent_produce,
        "one by one": confluent_each,
        "in lists": confluent_poll,
        "in batches": confluent_poll,
    },
    "kafka-python": {
        "produce": python_produce,
        "one by one": python_each,
        "in lists": python_poll,
        "in batches": python_poll,
    },
}
"""By client and work; all read every value. In lists: of records. In batches: the fastest way that a client has.

In tables: Arrow tables, which only ours has; the headers and timestamps of full records are not in the tables sent.
"""


_MODULES: dict[str, tuple[str, ...]] = {
    "odradek": (
        "odradek.client.consumer.consumer",
        "odradek.client.producer.producer",
        "odradek.client.producer.table_writer",
        "odradek.records.arrow",
        "pyarrow.compute",
    ),
    "aiokafka": ("aiokafka",),
    "confluent": ("confluent_kafka",),
    "kafka-python": ("kafka",),
}


def run(client: str, work: str, task: Task) -> Figures:
    """Do the work with the client, in this process; its modules are imported before, so that no figure has that."""
    for module in _MODULES[client]:
        import_module(module)
    done = DRIVERS[client][work](task)
    if isinstance(done, dict):
        return done

    async def finish() -> Figures:
        figures: Figures = await done
        return figures

    return asyncio.run(finish())
