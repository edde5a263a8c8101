"""Topics that come, change and go while others write to them: what an administrator does, and what must hold of it."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

from odradek.client.admin import Admin, AlterConfig, ConfigResource, ConfigResourceType, NewTopic
from odradek.client.admin.requests import raise_first
from odradek.client.consumer.consumer import Consumer
from odradek.client.model import LATEST, READ_COMMITTED, READ_UNCOMMITTED
from odradek.client.producer.producer import Producer
from odradek.records.topic_partition import TopicPartition
from odradek.sim.checkers.history import OK, Send, Violation
from odradek.sim.workloads.clients import (
    CONSUMER_OPTIONS,
    FAILURES,
    PRODUCER_OPTIONS,
    Numbered,
    app_random,
    note_failure,
    note_outcomes,
)
from odradek.sim.world.hosts import ClientHost
from odradek.wire.errors import ErrorCode, KafkaError

_MAY_BE: Final = (
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_CONTROLLER,
)
"""What a change may end with: an earlier attempt had succeeded, the store or the disk is in trouble."""
_ALTERATIONS: Final = (
    ("retention.ms", "600000"), ("segment.ms", "1500"), ("compression.type", "zstd"), ("compression.type", "producer"),
    ("cleanup.policy", "compact,delete"), ("cleanup.policy", "delete"), ("max.message.bytes", "4000"),
    ("flush.messages", "1"), ("message.timestamp.type", "LogAppendTime"), ("index.interval.bytes", "0"),
)  # fmt: skip


async def administrate(host: ClientHost, topic: str) -> None:
    """A topic is created, grown, altered, written to, deleted, and recreated under the same name."""
    world, rng = host.world, app_random(host)
    while not world.is_stopping():
        try:
            async with Admin(**host.options()) as admin:
                while not world.is_stopping():
                    if await _create(host, admin, topic):
                        await _one_life(host, admin, topic, rng)
                    await asyncio.sleep(rng.expovariate(0.5))
        except FAILURES as error:
            note_failure(host, "administrate", error)
            await asyncio.sleep(0.2)


async def _create(host: ClientHost, admin: Admin, topic: str) -> bool:
    """Delete and recreate the topic; whether that surely succeeded."""
    await must(host, admin.delete_topics([topic]), {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *_MAY_BE})
    fresh = (await admin.create_topics([NewTopic(topic, 1, 1, configs={"retention.ms": "60000"})]))[topic]
    if isinstance(fresh, KafkaError) and fresh.code not in _MAY_BE:
        raise Violation("topic can be created", f"{topic}: {fresh!r}")
    return not isinstance(fresh, KafkaError)


async def _one_life(host: ClientHost, admin: Admin, topic: str, rng: random.Random) -> None:
    # A request to delete the topic before may come late, and means this one.
    late = {ErrorCode.INVALID_PARTITIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *_MAY_BE}
    await must(host, admin.create_partitions({topic: 2}), late)
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        found = raise_first(await admin.list_offsets({TopicPartition(topic, 0): LATEST}, isolation_level=isolation))
        if found[TopicPartition(topic, 0)].offset != 0:
            raise Violation("new topic is empty", f"{topic}: {found}")
    async with Producer(clock=host.clock, **host.options(**PRODUCER_OPTIONS)) as producer:
        for _ in range(rng.randrange(4)):
            await (await producer.send(topic, b"of a short life", partition=0))
    if rng.random() < 0.6:
        await _alter(host, admin, topic, rng)
    if rng.random() < 0.6:
        await _write_through_recreation(host, admin, topic, rng)


async def _alter(host: ClientHost, admin: Admin, topic: str, rng: random.Random) -> None:
    """Change a setting; later requests return the new value, whatever happens to the broker in between."""
    name, value = rng.choice(_ALTERATIONS)
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    failure = (await admin.alter_configs({resource: [AlterConfig(name, value)]}))[resource]
    if failure is not None:
        host.world.mark(f"error {failure.code.name}")
        if failure.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *_MAY_BE):
            raise Violation("settings can be changed", f"{topic} {name}={value}: {failure!r}")
        return
    described = (await admin.describe_configs([resource], keys=[name]))[resource]
    if isinstance(described, KafkaError):
        host.world.mark(f"error {described.code.name}")
        return
    host.world.mark("settings altered")
    if described[name].value != value:
        raise Violation("settings last", f"{topic} {name}={value} was acknowledged, then described as {described}")


async def _write_through_recreation(host: ClientHost, admin: Admin, topic: str, rng: random.Random) -> None:
    """A producer begins to write while the topic is deleted and recreated.

    If its first record is in the new topic, then none was acknowledged in the old one: all lie in the new one, in
    order and once. The history knows the partition as one of a topic of its own.
    """
    world = host.world
    numbered = Numbered(host, rng)
    own = f"{topic} of {numbered.name}"
    options = host.options(**PRODUCER_OPTIONS, linger_ms=0)
    async with Producer(clock=host.clock, **options) as producer:
        await producer.partitions_for(topic)
        made = asyncio.create_task(_create(host, admin, topic))
        waiting: list[tuple[Send, Any]] = []
        try:
            for _ in range(rng.choice((2, 5, 12))):
                await asyncio.sleep(rng.expovariate(200))
                send = numbered.next(own, 0)
                waiting.append((send, await producer.send(topic, send.value, partition=0)))
            await note_outcomes(host, waiting)
        finally:
            for send, _ in waiting:
                # In the old topic or in the new one: offsets say nothing without it.
                send.offset = -1
            surely = await made
    sent = [send for send, _ in waiting]
    if not surely or any(send.state != OK for send in sent):
        return
    name = numbered.name.encode() + b":"
    read = [value for value in await _read(host, topic) if value.startswith(name)]
    world.mark("written through a topic's re-creation")
    if sent[0].value in read and read != [send.value for send in sent]:
        raise Violation("a new topic's first records", f"sent {', '.join(map(str, sent))}; read {read}")


async def _read(host: ClientHost, topic: str) -> list[bytes]:
    key = TopicPartition(topic, 0)
    values: list[bytes] = []
    async with Consumer(**host.options(**CONSUMER_OPTIONS)) as consumer:
        end = (await consumer.end_offsets([key]))[key]
        consumer.assign([key])
        while await consumer.position(key) < end:
            for record in await consumer.poll(500):
                assert isinstance(record.value, bytes)
                values.append(record.value)
    return values


async def must(host: ClientHost, call: Any, allowed: set[ErrorCode]) -> None:
    """Await the results of the call by name. Raises Violation for an error outside `allowed`."""
    for name, error in (await call).items():
        if error is not None:
            host.world.mark(f"error {error.code.name}")
            if error.code not in allowed:
                raise Violation("topics can be changed", f"{name}: {error!r}")
