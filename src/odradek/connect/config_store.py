"""Where a worker keeps configurations: in memory, if files have them, or in a topic, which a later worker reads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from odradek.client.producer.transactions import State, TransactionalProducer
from odradek.connect.model import Target
from odradek.connect.topics import StoredConnectors, config_record, read_all, target_record
from odradek.wire.errors import ErrorCode, KafkaError


class ConfigStore(Protocol):
    """Keeps configurations and targets. All methods raise KafkaError, ClientError."""

    async def open(self) -> StoredConnectors:
        """What is stored."""
        ...

    async def set_config(self, connector: str, config: Mapping[str, str], target: Target) -> None:
        """Store a configuration and a target."""
        ...

    async def set_target(self, connector: str, target: Target) -> None:
        """Store a target."""
        ...

    async def remove(self, connector: str) -> None:
        """Remove a connector."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


class MemoryConfigs:
    """Keeps nothing beyond the process: the files that the worker was started with have the configurations."""

    async def open(self) -> StoredConnectors:
        """Nothing is stored."""
        return StoredConnectors()

    async def set_config(self, connector: str, config: Mapping[str, str], target: Target) -> None:
        """See `ConfigStore`."""

    async def set_target(self, connector: str, target: Target) -> None:
        """See `ConfigStore`."""

    async def remove(self, connector: str) -> None:
        """See `ConfigStore`."""

    async def close(self) -> None:
        """See `ConfigStore`."""


class TopicConfigs:
    """Keeps configurations in a compacted topic. A worker that starts fences an earlier one of the same topic."""

    def __init__(self, producer: Mapping[str, Any], consumer: Mapping[str, Any], topic: str) -> None:
        """Options of clients; the transactional id is made of the topic's name."""
        self._options = {**producer, "transactional_id": f"connect-worker-{topic}"}
        self._producer = TransactionalProducer[Any, Any](**self._options)
        self._consumer = consumer
        self._topic = topic
        self._lock = asyncio.Lock()
        """The producer has one transaction at a time."""

    async def open(self) -> StoredConnectors:
        """See `ConfigStore`."""
        await self._producer.start()
        await self._producer.initialize()
        found = StoredConnectors()
        async for record in read_all(self._consumer, self._topic):
            found.apply(record.key, record.value)
        return found

    async def set_config(self, connector: str, config: Mapping[str, str], target: Target) -> None:
        """See `ConfigStore`."""
        await self._write(config_record(connector, config), target_record(connector, target))

    async def set_target(self, connector: str, target: Target) -> None:
        """See `ConfigStore`."""
        await self._write(target_record(connector, target))

    async def remove(self, connector: str) -> None:
        """See `ConfigStore`."""
        await self._write(config_record(connector, None), target_record(connector, None))

    async def close(self) -> None:
        """See `ConfigStore`."""
        await self._producer.close()

    async def _write(self, *records: tuple[bytes, bytes | None]) -> None:
        async with self._lock:
            await self._write_alone(records)

    async def _write_alone(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        if self._producer.state in (State.ENDING, State.UNINITIALIZED):
            # The brokers did not answer in time how the last change ended: it is completed or aborted now.
            await self._replace_producer()
        try:
            await self._commit(records)
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                raise
            # Without a change for transactional.id.expiration.ms (a week), the brokers have forgotten the producer.
            await self._replace_producer()
            await self._commit(records)

    async def _replace_producer(self) -> None:
        await self._producer.close()
        self._producer = TransactionalProducer[Any, Any](**self._options)
        await self._producer.start()
        await self._producer.initialize()

    async def _commit(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        async with self._producer.transaction() as transaction:
            for key, value in records:
                await transaction.send(self._topic, value, key, partition=0)
