"""What tests ask of a cluster: topics, records to write and to read back, quotas."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from odradek.client.admin import Admin, NewTopic
from odradek.client.admin.quotas import ClientQuotaEntity
from odradek.client.consumer.consumer import Consumer
from odradek.client.model import ConsumerRecord
from odradek.client.producer.producer import Producer
from odradek.records.topic_partition import TopicPartition

IsolationLevel: TypeAlias = Literal["read_committed", "read_uncommitted"]

_POLL_MS: Final = 500
_numbers = itertools.count(1)


async def create_topic(
    bootstrap_servers: str,
    name: str | None,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str] | None,
) -> str:
    """Create a topic, also where the name is None, and return its name. Raises KafkaError."""
    name = name or f"topic-{next(_numbers)}"
    async with Admin(bootstrap_servers=bootstrap_servers) as admin:
        topic = NewTopic(name, partitions, replication_factor, configs=dict(configs or {}))
        failures = await admin.create_topics([topic])
    error = failures[name]
    if isinstance(error, Exception):
        raise error
    return name


async def produce(
    bootstrap_servers: str, topic: str, values: Iterable[bytes | str | None], key: bytes | str | None
) -> None:
    """Write records and wait until they are acknowledged. Raises KafkaError."""
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for delivery in [await producer.send(topic, _bytes(value), key=_bytes(key)) for value in values]:
            await delivery


async def read_all(
    bootstrap_servers: str, topic: str, isolation_level: IsolationLevel
) -> list[ConsumerRecord[bytes | None, bytes | None]]:
    """All records of a topic up to its end now. Raises KafkaError."""
    async with Consumer(
        bootstrap_servers=bootstrap_servers,
        isolation_level=isolation_level,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        allow_auto_create_topics=False,
    ) as consumer:
        partitions = [TopicPartition(topic, each.partition) for each in await consumer.partitions_for(topic) or ()]
        consumer.assign(partitions)
        consumer.seek_to_beginning(partitions)
        ends = await consumer.end_offsets(partitions)
        found: list[ConsumerRecord[bytes | None, bytes | None]] = []
        for partition in partitions:
            while await consumer.position(partition) < ends[partition]:
                found.extend(await consumer.poll(_POLL_MS))
    found = [record for record in found if record.offset < ends[TopicPartition(record.topic, record.partition)]]
    return sorted(found, key=lambda record: (record.partition, record.offset))


async def throttle(
    bootstrap_servers: str, bytes_per_second: float | None, client_id: str | None, user: str | None
) -> None:
    """See `Broker.throttle`."""
    if bytes_per_second is not None and not bytes_per_second > 0:
        raise ValueError(f"{bytes_per_second} bytes per second: must be above 0, or None for no limit")
    parts = {} if user is None else {"user": user}
    entity = ClientQuotaEntity.of(parts | ({"client-id": client_id} if client_id is not None or user is None else {}))
    async with Admin(bootstrap_servers=bootstrap_servers) as admin:
        quotas = dict.fromkeys(("producer_byte_rate", "consumer_byte_rate"), bytes_per_second)
        failure = (await admin.quotas.alter({entity: quotas}))[entity]
    if failure is not None:
        raise failure


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
