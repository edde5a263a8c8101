"""One task of a sink: polls, gathers, writes, commits.

    poll ──▶ convert ──▶ gather ──▶ sink.write ──▶ commit to the group
               │                       │
               └── rejected records ───┴──▶ errors.tolerance: fail, or skip (with a dead letter)

Where the target holds positions, these count, and the group's commits only show the lag.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import ClientError, CommitFailed
from odradek.client.model import ConsumerRecord
from odradek.client.producer.producer import Producer
from odradek.client.reports import dead_letters
from odradek.connect.client_failures import failure_of
from odradek.connect.connector_settings import ErrorPolicy
from odradek.connect.conversion import Conversion
from odradek.connect.errors import ConnectError, PositionMoved, RecordRejected, TargetAway
from odradek.connect.model import Batch, SinkRecord
from odradek.connect.registry_converters import SchemaMissing
from odradek.connect.retries import Retries
from odradek.connect.sinks.sink import Sink, TopicBoundSink
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import KafkaError
from odradek.wire.primitives import ZERO_UUID

logger = logging.getLogger(__name__)

POLL_MS: Final = 200
_BROKERS: Final = "the brokers"
_LETTERS: Final = "the topic of dead letters"


class DeadLetters(Protocol):
    """Where skipped records go."""

    async def add(self, record: SinkRecord, error: Exception) -> None:
        """Queue a record."""
        ...

    async def flush(self) -> None:
        """Wait until queued records are in their topic."""
        ...


class DeadLetterTopic:
    """A topic for skipped records, with Kafka Connect's headers (KIP-298)."""

    def __init__(self, producer: Producer[Any, Any], policy: ErrorPolicy, connector: str, task: int) -> None:
        self._producer = producer
        self._policy = policy
        self._connector = connector
        self._task = task

    async def add(self, record: SinkRecord, error: Exception) -> None:
        """See `DeadLetters`."""
        headers = list(record.headers)
        if self._policy.describes_failures:
            described = {
                dead_letters.TOPIC: record.origin.topic,
                dead_letters.PARTITION: str(record.partition),
                dead_letters.OFFSET: str(record.offset),
                dead_letters.TIMESTAMP: str(record.timestamp),
                f"{dead_letters.PREFIX}connector.name": self._connector,
                f"{dead_letters.PREFIX}task.id": str(self._task),
                dead_letters.CLASS: type(error.__cause__ or error).__name__,
                dead_letters.MESSAGE: str(error),
            }
            headers += [(name, text.encode(errors="backslashreplace")) for name, text in described.items()]
        await self._producer.send(self._policy.dead_letters, record.raw_value, record.raw_key, headers)

    async def flush(self) -> None:
        """See `DeadLetters`."""
        await self._producer.flush()


class SinkTask:
    """The loop of a task, and the listener of its consumer's rebalances."""

    def __init__(
        self,
        name: str,
        consumer: Consumer[Any, Any],
        sink: Sink,
        conversion: Conversion,
        policy: ErrorPolicy,
        letters: DeadLetters | None,
    ) -> None:
        """`name` is CONNECTOR-TASK. The consumer subscribes with `listener()`."""
        self._name = name
        self._consumer = consumer
        self._sink = sink
        self._conversion = conversion
        self._policy = policy
        self._letters = letters
        self._records: list[SinkRecord] = []
        self._ends: dict[TopicPartition, int] = {}
        self._held: dict[TopicPartition, int] = {}
        """Positions that the target holds."""
        self._since = 0.0
        self._waits = False
        self._gather_retries = Retries(policy)
        self._letter_retries = Retries(policy)
        self._poll_retries: Retries | None = None
        self._failure: ConnectError | None = None
        self._topic_ids: dict[str, bytes] = {}
        self._is_at_new_topic = False
        self.topics: set[str] = set()
        """Topics of records that were read."""

    # --- rebalances ---

    async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        """Continue where the target says; see `RebalanceListener`."""
        try:
            await self._seek(partitions)
        except ConnectError as error:
            # The listener runs inside of a poll, whose caller reports it.
            self._failure = error
        if self._waits:
            self._consumer.pause(partitions)

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        """Drop what was gathered: the next owner reads it again; see `RebalanceListener`."""
        self._records = [each for each in self._records if each.origin not in partitions]
        for each in partitions:
            self._ends.pop(each, None)
            self._held.pop(each, None)

    def _note_topics(self, partitions: Iterable[TopicPartition]) -> None:
        """Keep the ids of the topics whose positions are read now, where the brokers have any."""
        metadata = self._consumer.cluster.metadata
        ids = {each.topic: metadata.topic_id(each.topic) for each in partitions}
        known = {topic: topic_id for topic, topic_id in ids.items() if topic_id != ZERO_UUID}
        self._topic_ids.update(known)
        if isinstance(self._sink, TopicBoundSink):
            self._sink.note_topics(known)

    def _is_created_again(self, topic: str) -> bool:
        """Whether the consumer reads another topic of that name than the one whose positions were read."""
        now = self._consumer.cluster.metadata.topic_id(topic)
        return now not in (ZERO_UUID, self._topic_ids.get(topic, now))

    async def _seek(self, partitions: set[TopicPartition]) -> None:
        self._note_topics(partitions)
        held = await self._sink.positions(partitions)
        self._held.update(held)
        for partition, offset in held.items():
            self._consumer.seek(partition, offset)

    # --- the loop ---

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set. Raises ConnectError, KafkaError, ClientError."""
        await self._attempt(self._sink.open, stopping)
        while not stopping.is_set():
            room = self._sink.batch_records - len(self._records)
            records = await self._poll(stopping, POLL_MS, room)
            if self._failure is not None:
                # The positions are unknown, so these records may be the wrong ones.
                await self._recover(stopping)
                continue
            if records and not self._ends:
                self._since = time.monotonic()
            await self._gather_all(records, stopping)
            if self._is_at_new_topic:
                await self._leave_former_topic(stopping)
            elif self._is_due():
                await self._write(stopping)

    async def _poll(
        self, stopping: asyncio.Event, timeout_ms: float, most: int | None = None
    ) -> Sequence[ConsumerRecord[Any, Any]]:
        """The next records; none, after a pause, where the brokers did not answer in time. Raises ConnectError."""
        try:
            records = await self._consumer.poll(timeout_ms=timeout_ms, max_records=most)
        except (KafkaError, ClientError) as error:
            failure = failure_of(error, _BROKERS)
            if not isinstance(failure, TargetAway):
                raise failure from error
            self._poll_retries = self._poll_retries or Retries(self._policy)
            pause_s = self._poll_retries.pause_s(failure)
            logger.warning("connector task %s polls again in %.1f s: %s", self._name, pause_s, failure)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await stopping.wait()
            return ()
        self._poll_retries = None
        return records

    async def close(self) -> None:
        """Disconnect from the target."""
        await self._sink.close()

    def _is_due(self) -> bool:
        if not self._ends:
            return False
        if len(self._records) >= self._sink.batch_records:
            return True
        return time.monotonic() - self._since >= self._sink.batch_wait_s

    async def _recover(self, stopping: asyncio.Event) -> None:
        """Handle what failed in a listener: positions are read again once the target is there."""
        failure, self._failure = self._failure, None
        if failure is not None and not isinstance(failure, TargetAway):
            raise failure
        await self._read_positions_again(stopping)

    async def _leave_former_topic(self, stopping: asyncio.Event) -> None:
        """Write what was gathered, and read the positions again: a topic was deleted and created again."""
        self._is_at_new_topic = False
        if self._ends:
            await self._write(stopping)
        await self._read_positions_again(stopping)

    async def _read_positions_again(self, stopping: asyncio.Event) -> None:
        """Drop what was gathered, and continue at the target's positions."""
        assigned: set[TopicPartition] = set()
        found: dict[TopicPartition, int] = {}

        async def attempt() -> None:
            nonlocal assigned
            await self._sink.open()
            assigned = self._consumer.assignment()
            found.clear()
            self._note_topics(assigned)
            found.update(await self._sink.positions(assigned))
            self._held = dict(found)
            unknown = assigned - found.keys()
            if unknown:
                found.update(await self._committed(unknown))

        await self._attempt(attempt, stopping)
        self._records.clear()
        self._ends.clear()
        if stopping.is_set():
            return
        for partition in assigned & self._consumer.assignment():
            if partition in found:
                self._consumer.seek(partition, found[partition])
            else:
                self._consumer.seek_to_beginning([partition])

    async def _committed(self, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's positions. Raises TargetAway, ConnectError."""
        try:
            found = await self._consumer.committed(partitions)
        except (KafkaError, ClientError) as error:
            raise failure_of(error, _BROKERS) from error
        return {each: at.offset for each, at in found.items()}

    async def _gather_all(self, records: Sequence[ConsumerRecord[Any, Any]], stopping: asyncio.Event) -> None:
        """Gather records; from the first on whose schema or dead letter fails, they are polled again after a pause.

        Those of a topic that was created again are left until the positions are read again.
        """
        again = {topic for topic in {each.topic for each in records} if self._is_created_again(topic)}
        if again:
            self._is_at_new_topic = True
            records = [each for each in records if each.topic not in again]
        for index, record in enumerate(records):
            try:
                await self._gather(record)
            except TargetAway as error:
                firsts: dict[TopicPartition, int] = {}
                for each in records[index:]:
                    firsts.setdefault(each.topic_partition, each.offset)
                for partition, offset in firsts.items():
                    self._consumer.seek(partition, offset)
                await self._pause(self._gather_retries.pause_s(error), error, stopping)
                return
        if records:
            self._gather_retries = Retries(self._policy)

    async def _decode(self, record: ConsumerRecord[Any, Any]) -> SinkRecord | None:
        """Convert a record. Raises ValueError, TargetAway, ConnectError."""
        while True:
            try:
                return self._conversion.decode(record)
            except SchemaMissing as missing:
                await asyncio.to_thread(missing.fetch)

    async def _gather(self, record: ConsumerRecord[Any, Any]) -> None:
        try:
            made = await self._decode(record)
        except ValueError as error:
            raw = SinkRecord(
                record.topic_partition, record.offset, record.timestamp, None, None, record.headers, record.key,
                record.value, record.topic,
            )  # fmt: skip
            await self._skip(raw, error)
            self._pass(record)
            return
        self._pass(record)
        if made is not None:
            self._records.append(made)

    def _pass(self, record: ConsumerRecord[Any, Any]) -> None:
        """The record is gathered, dropped or skipped: the position is behind it.

        Raises ConnectError for one before the position that the target holds: the consumer was reset.
        """
        partition = record.topic_partition
        held = self._held.get(partition, 0)
        if record.offset < held:
            raise ConnectError(
                f"{partition} is read again from offset {record.offset}, before the position {held} that the target "
                "holds: the log was truncated. Stop the connector, set or remove its offsets, and resume it"
            )
        self.topics.add(record.topic)
        self._ends[partition] = record.offset + 1

    async def _skip(self, record: SinkRecord, error: Exception) -> None:
        """Skip a record as the settings allow. Raises ConnectError if they do not, TargetAway without the brokers."""
        place = f"{record.origin}@{record.offset}"
        if not self._policy.tolerates_records:
            raise ConnectError(f"record {place}: {error}") from error
        if self._policy.logs_records:
            logger.warning("connector task %s skips record %s: %s", self._name, place, error)
        if self._letters is not None:
            try:
                await self._letters.add(record, error)
            except (KafkaError, ClientError) as failure:
                raise failure_of(failure, _LETTERS) from failure

    async def _write(self, stopping: asyncio.Event) -> None:
        """Write what was gathered, without the records that are rejected, and commit."""
        retries = Retries(self._policy)
        while self._ends:
            if not await self._flush_letters(stopping):
                await self._read_positions_again(stopping)
                return
            try:
                if await self._write_or_skip():
                    break
            except PositionMoved as error:
                logger.info("connector task %s reads its positions again: %s", self._name, error)
                await self._read_positions_again(stopping)
                return
            except TargetAway as error:
                await self._pause(retries.pause_s(error), error, stopping)
                if stopping.is_set():
                    return
        # the group has no offsets of a deleted topic, and those of the next one are others
        ends = {each: end for each, end in self._ends.items() if not self._is_created_again(each.topic)}
        self._records.clear()
        self._ends.clear()
        if isinstance(self._sink, TopicBoundSink):
            self._held.update(ends)
        await self._commit(ends, stopping)

    async def _flush_letters(self, stopping: asyncio.Event) -> bool:
        """Wait until dead letters are in their topic: the target may keep positions behind their records.

        False, after a pause, where one was lost because the brokers were away. Raises ConnectError.
        """
        if self._letters is None:
            return True
        try:
            await self._letters.flush()
        except (KafkaError, ClientError) as error:
            failure = failure_of(error, _LETTERS)
            if not isinstance(failure, TargetAway):
                raise failure from error
            await self._pause(self._letter_retries.pause_s(failure), failure, stopping)
            return False
        self._letter_retries = Retries(self._policy)
        return True

    async def _write_or_skip(self) -> bool:
        """Write the batch; False where the target rejects a record of it, which is skipped."""
        try:
            if self._records:
                await self._sink.write(Batch(tuple(self._records), dict(self._ends)))
        except RecordRejected as error:
            await self._skip(self._records[error.index], error)
            del self._records[error.index]
            return False
        return True

    async def _commit(self, ends: dict[TopicPartition, int], stopping: asyncio.Event) -> None:
        """Commit to the group, once the brokers are there. Raises ConnectError, KafkaError, ClientError."""
        retries = Retries(self._policy)
        while ends:
            try:
                await self._consumer.commit(ends)
            except CommitFailed as error:
                # Another member has the partitions. It reads what the target does not hold a position of again.
                logger.info("connector task %s could not commit: %s", self._name, error)
            except (KafkaError, ClientError) as error:
                failure = failure_of(error, _BROKERS)
                if not isinstance(failure, TargetAway):
                    raise
                await self._pause(retries.pause_s(failure), failure, stopping)
                if not stopping.is_set():
                    ends = {each: ends[each] for each in ends.keys() & self._consumer.assignment()}
                    continue
            return

    async def _pause(self, pause_s: float, error: TargetAway, stopping: asyncio.Event) -> None:
        """Wait without records, but as a member of the group."""
        logger.warning("connector task %s tries again in %.1f s: %s", self._name, pause_s, error)
        self._waits = True
        self._consumer.pause(self._consumer.assignment())
        try:
            deadline = time.monotonic() + pause_s
            while not stopping.is_set() and (left := deadline - time.monotonic()) > 0:
                records = await self._poll(stopping, min(POLL_MS, left * 1000))
                await self._gather_all(records, stopping)
        finally:
            self._waits = False
            self._consumer.resume(self._consumer.paused())

    async def _attempt(self, work: Any, stopping: asyncio.Event) -> None:
        """Call the function until the target is there."""
        retries = Retries(self._policy)
        while not stopping.is_set():
            try:
                await work()
                return
            except TargetAway as error:
                await self._pause(retries.pause_s(error), error, stopping)


async def consume(
    task: SinkTask,
    consumer: Consumer[Any, Any],
    letters: Producer[Any, Any] | None,
    selection: Mapping[str, Any],
    stopping: asyncio.Event,
) -> None:
    """Run a task with its clients: `selection` has topics, or a pattern. Raises ConnectError."""
    try:
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(task.close)
            if letters is not None:
                await stack.enter_async_context(letters)
            await stack.enter_async_context(consumer)
            consumer.subscribe(**selection, listener=task)
            await task.run(stopping)
    except (KafkaError, ClientError) as error:
        raise ConnectError(f"{type(error).__name__}: {error}") from error
