"""Writes a broker's audit events to partitions of the audit topic, wherever their leaders are.

A batch is repeated until a leader has it, so an event may be in the topic twice, with the same number: an answer that
is lost says nothing about the append. Events that come meanwhile wait in the queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from odradek.broker.audit.audit_queue import AuditQueue
from odradek.broker.cluster.peers import Purpose
from odradek.broker.task_failures import logs_failure
from odradek.client.errors import TransportError
from odradek.metadata.image import AUDIT_TOPIC, NO_LEADER, ClusterImage
from odradek.replication.partition import Partition
from odradek.wire.errors import ErrorCode, KafkaError, error_code
from odradek.wire.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)

logger = logging.getLogger("odradek.audit")
_log_failure = logs_failure(logger, "the writer of the audit topic failed; events are lost from here on")

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


class AuditDelivery:
    """One attempt to write a batch: here if this broker leads a partition of the topic, else at another broker."""

    __slots__ = ("_creator", "_image", "_node_id", "_now_ms", "_remote", "_replicas")

    def __init__(
        self,
        node_id: int,
        image: Callable[[], ClusterImage],
        replicas: Replicas,
        creator: Creator,
        remote: Remote,
        now_ms: Callable[[], int],
    ) -> None:
        """`now_ms` is wall time."""
        self._node_id = node_id
        self._image = image
        self._replicas = replicas
        self._creator = creator
        self._remote = remote
        self._now_ms = now_ms

    async def write(self, batch: bytearray) -> None:
        """Return once the batch is committed. Raises KafkaError, TransportError."""
        topic = self._image().topics.get(AUDIT_TOPIC)
        if topic is None:
            failures = await self._creator.auto_create([AUDIT_TOPIC])
            if code := failures.get(AUDIT_TOPIC):
                raise KafkaError(code, "the topic cannot be created")
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was created just now")
        leaders = [state.leader for state in topic.partitions]
        if self._node_id in leaders:
            await self._append(leaders.index(self._node_id), batch)
            return
        led = [index for index, leader in enumerate(leaders) if leader != NO_LEADER]
        if not led:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no partition of the topic has a leader")
        index = led[self._node_id % len(led)]
        await self._send(leaders[index], index, batch)

    async def _append(self, index: int, batch: bytearray) -> None:
        partition = self._replicas.require(AUDIT_TOPIC, index)
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
        place = ProduceRequestTopic(AUDIT_TOPIC, partition_data=[ProduceRequestPartition(index, batch)])
        request = ProduceRequest(None, _ALL, timeout_ms, [place])
        answer = await self._remote.request(
            Purpose.AUDIT, leader, request, ProduceResponse, _PRODUCE_VERSION, timeout_ms
        )
        for each in (found for part in answer.responses for found in part.partition_responses):
            if each.error_code:
                raise KafkaError(error_code(each.error_code), each.error_message)


class AuditWriter:
    """Writes what the queue holds, in order, while the broker runs."""

    __slots__ = ("_failures", "_logged_lost", "_queue", "_task", "_wanted", "_write")

    def __init__(self, queue: AuditQueue, write: Callable[[bytearray], Awaitable[None]]) -> None:
        """`write` raises KafkaError or TransportError for a batch that is not written."""
        self._queue = queue
        self._write = write
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._logged_lost = 0
        self._failures = 0
        queue.watch(self._wanted.set)

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="audit")
        self._task.add_done_callback(_log_failure)

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
                logger.warning("%s rejects %d events, which are lost: %s", AUDIT_TOPIC, count, error)
                self._queue.drop(count)
                return
            self._failures += 1
            if self._failures == FAILURES_LOGGED:
                logger.warning("cannot write to %s: %s; events wait in memory, retrying", AUDIT_TOPIC, error)
            await asyncio.sleep(RETRY_SECONDS)
            return
        if self._failures >= FAILURES_LOGGED:
            logger.info("%s is written again", AUDIT_TOPIC)
        self._failures = 0
        self._queue.complete(count)

    def _log_losses(self) -> None:
        lost = self._queue.lost - self._logged_lost
        if lost:
            self._logged_lost = self._queue.lost
            logger.warning("%d audit events are lost: the queue is full, or they could not be written", lost)
