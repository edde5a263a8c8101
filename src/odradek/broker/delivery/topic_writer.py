"""Writes a broker's own records to partitions of a topic, wherever their leaders are.

A batch is repeated until a leader has it, so a record may be in the topic twice: an answer that is lost says nothing
about the append. Records that come meanwhile wait in the queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from odradek.broker.cluster.peers import Purpose
from odradek.broker.delivery.record_queue import RecordQueue
from odradek.broker.task_failures import logs_failure
from odradek.client.errors import TransportError
from odradek.metadata.image import NO_LEADER, ClusterImage
from odradek.replication.partition import Partition
from odradek.wire.errors import ErrorCode, KafkaError, error_code
from odradek.wire.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)

logger = logging.getLogger("odradek.delivery")

BATCH_BYTES: Final = 512 * 1024
RETRY_SECONDS: Final = 0.25
FAILURES_LOGGED: Final = 4
"""Failed attempts in a row before a line says so: a topic that was just created has no leader for a moment."""
TIMEOUT_SECONDS: Final = 30.0
"""For the commit of one batch."""
FLUSH_SECONDS: Final = 2.0
"""How long a broker that stops tries to write what waits."""
_ALL: Final = -1
_PRODUCE_VERSION: Final = 12
"""The newest that names topics by name."""
_HOPELESS: Final = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.CORRUPT_MESSAGE,
)
"""Errors of the records themselves: sent again, they fail again."""


class Replicas(Protocol):
    """The replicas of this broker."""

    def require(self, topic: str, index: int, /) -> Partition:
        """Raises KafkaError."""
        ...


class Creator(Protocol):
    """Has internal topics created."""

    def auto_create(self, names: list[str], /) -> Awaitable[dict[str, ErrorCode]]:
        """Error codes of the topics that could not be created."""
        ...


class Remote(Protocol):
    """The other brokers."""

    def request(
        self,
        purpose: Purpose,
        broker_id: int,
        request: ProduceRequest,
        response_type: type[ProduceResponse],
        version: int,
        timeout_ms: float,
        /,
    ) -> Awaitable[ProduceResponse]:
        """Raises TransportError."""
        ...


class Leaders(NamedTuple):
    """Where leaders of partitions are, and how to reach them."""

    node_id: int
    """The id of this broker."""
    image: Callable[[], ClusterImage]
    replicas: Replicas
    remote: Remote
    now_ms: Callable[[], int]
    """Wall time."""


class TopicDelivery:
    """One attempt to write a batch: here if this broker leads a partition of the topic, else at another broker."""

    __slots__ = ("_creator", "_image", "_node_id", "_now_ms", "_purpose", "_remote", "_replicas", "_topic")

    def __init__(self, topic: str, purpose: Purpose, leaders: Leaders, creator: Creator | None = None) -> None:
        """`creator` creates an internal topic that is missing; None for a topic that operators create."""
        self._topic = topic
        self._purpose = purpose
        self._node_id, self._image, self._replicas, self._remote, self._now_ms = leaders
        self._creator = creator

    async def write(self, batch: bytearray) -> None:
        """Return once the batch is committed. Raises KafkaError, TransportError."""
        topic = self._image().topics.get(self._topic)
        if topic is None:
            raise await self._without_topic()
        leaders = [state.leader for state in topic.partitions]
        if self._node_id in leaders:
            await self._append(leaders.index(self._node_id), batch)
            return
        led = [index for index, leader in enumerate(leaders) if leader != NO_LEADER]
        if not led:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no partition of the topic has a leader")
        index = led[self._node_id % len(led)]
        await self._send(leaders[index], index, batch)

    async def _without_topic(self) -> KafkaError:
        """Create the topic where that is this broker's task; the error of this attempt."""
        if self._creator is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "create the topic")
        failures = await self._creator.auto_create([self._topic])
        if code := failures.get(self._topic):
            return KafkaError(code, "the topic cannot be created")
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was created just now")

    async def _append(self, index: int, batch: bytearray) -> None:
        partition = self._replicas.require(self._topic, index)
        result = partition.append(memoryview(batch), now_ms=self._now_ms(), all_in_sync=True)
        released = asyncio.Event()
        partition.when_committed(result.last_offset, released.set)
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await released.wait()
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT) from None
        if not partition.is_committed(result.last_offset):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def _send(self, leader: int, index: int, batch: bytearray) -> None:
        timeout_ms = int(TIMEOUT_SECONDS * 1000)
        place = ProduceRequestTopic(self._topic, partition_data=[ProduceRequestPartition(index, batch)])
        request = ProduceRequest(None, _ALL, timeout_ms, [place])
        answer = await self._remote.request(
            self._purpose, leader, request, ProduceResponse, _PRODUCE_VERSION, timeout_ms
        )
        for each in (found for part in answer.responses for found in part.partition_responses):
            if each.error_code:
                raise KafkaError(error_code(each.error_code), each.error_message)


class TopicWriter:
    """Writes what the queue holds, in order, while the broker runs."""

    __slots__ = ("_failures", "_logged_lost", "_queue", "_task", "_topic", "_wanted", "_write")

    def __init__(self, topic: str, queue: RecordQueue, write: Callable[[bytearray], Awaitable[None]]) -> None:
        """`write` raises KafkaError or TransportError for a batch that is not written."""
        self._topic = topic
        self._queue = queue
        self._write = write
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._logged_lost = 0
        self._failures = 0
        queue.watch(self._wanted.set)

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=self._topic)
        failed = f"the writer of {self._topic} failed; its records are lost from here on"
        self._task.add_done_callback(logs_failure(logger, failed))

    async def stop(self) -> None:
        """Write what waits, for a short time; what is left then is lost."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                while len(self._queue):
                    await self._attempt()
        except TimeoutError:
            pass
        self._queue.drop(len(self._queue))
        self._log_losses()

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while len(self._queue):
                await self._attempt()
            self._log_losses()

    async def _attempt(self) -> None:
        count, batch = self._queue.next_batch(BATCH_BYTES)
        try:
            await self._write(batch)
        except (KafkaError, TransportError) as error:
            self._log_losses()
            if isinstance(error, KafkaError) and error.code in _HOPELESS:
                logger.warning("%s rejects %d records, which are lost: %s", self._topic, count, error)
                self._queue.drop(count)
                return
            self._failures += 1
            if self._failures == FAILURES_LOGGED:
                logger.warning("cannot write to %s: %s; records wait in memory, retrying", self._topic, error)
            await asyncio.sleep(RETRY_SECONDS)
            return
        if self._failures >= FAILURES_LOGGED:
            logger.info("%s is written again", self._topic)
        self._failures = 0
        self._queue.complete(count)

    def _log_losses(self) -> None:
        lost = self._queue.lost - self._logged_lost
        if lost:
            self._logged_lost = self._queue.lost
            logger.warning(
                "%d records of %s are lost: the queue is full, or they could not be written", lost, self._topic
            )
