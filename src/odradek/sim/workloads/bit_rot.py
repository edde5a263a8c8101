"""A topic in whose files bits flip: reads may fail, and later records may be lost, but no read returns a false one.

Every value carries a checksum of its own, so a reader can check it without knowing what was written.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Final

from odradek.client.consumer.consumer import Consumer
from odradek.client.producer.producer import Producer
from odradek.records.errors import CorruptRecords
from odradek.records.topic_partition import TopicPartition
from odradek.sim.checkers.history import Violation
from odradek.sim.workloads.clients import (
    CODECS,
    CONSUMER_OPTIONS,
    FAILURES,
    PRODUCER_OPTIONS,
    app_random,
    note_failure,
)
from odradek.sim.world.hosts import ClientHost
from odradek.wire.errors import ErrorCode, KafkaError

TOPIC: Final = "rotten"
_OPTIONS: Final = {**CONSUMER_OPTIONS, "fetch_max_wait_ms": 50}
"""Every look behind a broken batch waits for the fetch that is under way at the end of the log."""
_KEY: Final = TopicPartition(TOPIC, 0)


def _sealed(text: bytes) -> bytes:
    return b"%08x:%b" % (zlib.crc32(text), text)


def _is_whole(value: bytes) -> bool:
    seal, _, text = value.partition(b":")
    return seal == b"%08x" % zlib.crc32(text)


async def write(host: ClientHost) -> None:
    """Bursts of records, some compressed. Unacknowledged records do not matter here."""
    world, rng = host.world, app_random(host)
    number = 0
    while not world.is_stopping():
        options = host.options(**PRODUCER_OPTIONS, compression_type=rng.choice(CODECS), linger_ms=rng.choice((0, 20)))
        try:
            async with Producer(clock=host.clock, **options) as producer:
                until = world.now() + rng.uniform(2, 15)
                while not world.is_stopping() and world.now() < until:
                    burst = []
                    for _ in range(rng.choice((1, 4, 10))):
                        number += 1
                        value = _sealed(b"%d %b" % (number, b"y" * rng.choice((0, 50, 600))))
                        burst.append(await producer.send(TOPIC, value, partition=0))
                    for delivery in burst:
                        await delivery
                    await asyncio.sleep(rng.expovariate(3))
        except FAILURES as error:
            note_failure(host, TOPIC, error)
            await asyncio.sleep(0.3)


async def read(host: ClientHost) -> None:
    """Read from the start repeatedly, across damaged batches; the last pass has to complete."""
    world, rng = host.world, app_random(host)
    while True:
        last = world.is_stopping()
        try:
            async with Consumer(**host.options(**_OPTIONS)) as consumer:
                await _read_all(host, consumer)
        except FAILURES as error:
            note_failure(host, TOPIC, error)
            await asyncio.sleep(0.3)
            continue
        if last:
            return
        await asyncio.sleep(rng.uniform(0, 2))


async def _read_all(host: ClientHost, consumer: Consumer) -> None:
    end = (await consumer.end_offsets([_KEY]))[_KEY]
    consumer.assign([_KEY])
    consumer.seek_to_beginning([_KEY])
    step, idle = 1, 0
    while (position := await consumer.position(_KEY)) < end:
        try:
            records = await consumer.poll(100)
        except (CorruptRecords, KafkaError) as error:
            if isinstance(error, KafkaError) and error.code is not ErrorCode.CORRUPT_MESSAGE:
                raise
            host.world.mark("consumer refused a broken batch")
            records, idle = [], 3
        idle = 0 if records else idle + 1
        if idle >= 3:
            # A crash may have cut off records: a reader behind the new end waits there.
            end = min(end, (await consumer.end_offsets([_KEY]))[_KEY])
            # A batch, or with its header all that lies behind it in the file.
            consumer.seek(_KEY, position + step)
            step, idle = step * 2, 0
            continue
        step = 1 if records else step
        for record in records:
            assert isinstance(record.value, bytes)
            if not _is_whole(record.value):
                raise Violation("broken records are not shown", f"{_KEY} offset {record.offset}: {record.value!r}")
