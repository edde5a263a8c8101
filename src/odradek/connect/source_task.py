"""One task of a source: polls, and writes records and source offsets in one transaction: exactly once (KIP-618).

The transactional id is the task's, so that a task that starts fences an earlier one before it reads the offsets.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from odradek.client.errors import ClientError
from odradek.client.producer.transactions import TransactionalProducer
from odradek.connect.client_failures import failure_of
from odradek.connect.connector_settings import ErrorPolicy
from odradek.connect.conversion import Conversion, Encoded
from odradek.connect.errors import ConnectError, TargetAway
from odradek.connect.model import SourceRecord
from odradek.connect.registry_converters import SchemaMissing
from odradek.connect.retries import Retries
from odradek.connect.sources.source import Source, partition_text
from odradek.connect.topics import offset_key, offset_value, read_offsets
from odradek.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class SourceTask:
    """The loop of a task."""

    def __init__(
        self,
        connector: str,
        source: Source,
        conversion: Conversion,
        policy: ErrorPolicy,
        poll_s: float,
        clients: Mapping[str, Mapping[str, Any]],
        offsets_topic: str,
    ) -> None:
        """`clients` are the options of a `producer`, with its transactional_id, and of a `consumer`."""
        self._connector = connector
        self._source = source
        self._conversion = conversion
        self._policy = policy
        self._poll_s = poll_s
        self._clients = clients
        self._offsets_topic = offsets_topic
        self.topics: set[str] = set()
        """Topics that records were written to."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set. Raises ConnectError."""
        retries = Retries(self._policy)
        try:
            while not stopping.is_set():
                try:
                    async with TransactionalProducer[Any, Any](**self._clients["producer"]) as producer:
                        offsets = await read_offsets(self._clients["consumer"], self._offsets_topic, self._connector)
                        await self._source.open(offsets)
                        while not stopping.is_set():
                            await self._work(producer, stopping)
                            retries = Retries(self._policy)
                except (KafkaError, ClientError, TargetAway) as error:
                    failure = error if isinstance(error, TargetAway) else failure_of(error, "the brokers")
                    if not isinstance(failure, TargetAway):
                        raise failure from error
                    pause = retries.pause_s(failure)
                    logger.warning("connector %s tries again in %.1f s: %s", self._connector, pause, failure)
                    await _sleep(pause, stopping)
        finally:
            await self._source.close()

    async def _work(self, producer: TransactionalProducer[Any, Any], stopping: asyncio.Event) -> None:
        """One poll and its transaction."""
        poll = asyncio.ensure_future(self._source.poll())
        stop = asyncio.ensure_future(stopping.wait())
        try:
            await asyncio.wait((poll, stop), return_when=asyncio.FIRST_COMPLETED)
            if not poll.done():
                return
            records = poll.result()
        finally:
            for each in (poll, stop):
                each.cancel()
            await asyncio.gather(poll, stop, return_exceptions=True)
        if records:
            await self._write(producer, records)
        else:
            await _sleep(self._poll_s, stopping)

    async def _write(self, producer: TransactionalProducer[Any, Any], records: Sequence[SourceRecord]) -> None:
        offsets: dict[str, SourceRecord] = {}
        async with producer.transaction():
            for record in records:
                offsets[partition_text(record.source_partition)] = record
                try:
                    made = await self._encoded(record)
                except ValueError as error:
                    self._skip(record, error)
                    continue
                if made is not None:
                    self.topics.add(made.topic)
                    try:
                        await producer.send(
                            made.topic, made.value, made.key, record.headers, record.partition, record.timestamp
                        )
                    except KafkaError as error:
                        if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
                            raise
                        self._skip(record, error)
            for record in offsets.values():
                await producer.send(
                    self._offsets_topic,
                    offset_value(record.source_offset),
                    offset_key(self._connector, record.source_partition),
                )

    async def _encoded(self, record: SourceRecord) -> Encoded | None:
        """The record as it goes into a topic, once the registry has its schema. Raises ValueError, ConnectError."""
        while True:
            try:
                return self._conversion.encode(record)
            except SchemaMissing as missing:
                await asyncio.to_thread(missing.fetch)

    def _skip(self, record: SourceRecord, error: Exception) -> None:
        """Skip a record as the settings allow. Raises ConnectError if they do not."""
        place = f"{partition_text(record.source_partition)} before {dict(record.source_offset)}"
        if not self._policy.tolerates_records:
            raise ConnectError(f"record of {place}: {error}") from error
        if self._policy.logs_records:
            logger.warning("connector %s skips a record of %s: %s", self._connector, place, error)


async def _sleep(seconds: float, stopping: asyncio.Event) -> None:
    """Wait, but not beyond a stop."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()
