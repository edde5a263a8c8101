"""Changes of ISRs that this broker's partitions propose, and the controller's answers to them (AlterPartition).

Source: Kafka's AlterPartitionManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from odradek.broker.task_failures import logs_failure
from odradek.client.errors import ClientError
from odradek.controller.change_report import some_of
from odradek.controller.in_sync import IsrChange, IsrChanged
from odradek.metadata.image import ClusterImage
from odradek.replication.in_sync import IsrProposal
from odradek.replication.partition import Partition
from odradek.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("odradek.replication")
_log_failure = logs_failure(logger, "in-sync replicas cannot be changed")

_RECONSIDER_SECONDS: Final = 0.5
_FAILURES_WORTH_TELLING: Final = 8
"""After about 2.5 seconds."""
_FIRST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 1.0
_RETRIED: Final = frozenset(
    (
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    )
)


class ControllerLink(Protocol):
    """The way to the controller."""

    async def alter_partitions(self, changes: Sequence[IsrChange]) -> Sequence[IsrChanged]:
        """Raises KafkaError or TransportError when the controller cannot be reached; it may have acted all the same."""
        ...


class IsrChanges:
    """Asks the controller for what leaders propose, all of it in one request at a time."""

    __slots__ = (
        "_altering",
        "_closed",
        "_image",
        "_link",
        "_loop",
        "_node_id",
        "_proposed",
        "_reconsidering",
        "_refused",
    )

    def __init__(self, node_id: int, link: ControllerLink, image: Callable[[], ClusterImage]) -> None:
        self._node_id = node_id
        self._link = link
        self._image = image
        self._loop = asyncio.get_running_loop()
        self._proposed: dict[Partition, None] = {}
        self._altering: asyncio.Task[None] | None = None
        self._refused: dict[Partition, None] = {}
        self._reconsidering: asyncio.TimerHandle | None = None
        self._closed = False

    def close(self) -> None:
        """Ask for nothing more."""
        self._closed = True
        self._proposed.clear()
        if self._altering is not None:
            self._altering.cancel()
        if self._reconsidering is not None:
            self._reconsidering.cancel()
            self._reconsidering = None
        self._refused.clear()

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Return whether the broker may join an ISR: alive, not shutting down, registered under this epoch."""
        broker = self._image().brokers.get(broker_id)
        return broker is not None and broker.is_active and broker_epoch == broker.epoch

    def _broker_epoch(self) -> int:
        own = self._image().brokers.get(self._node_id)
        return -1 if own is None else own.epoch

    def propose(self, partition: Partition) -> None:
        """Have the controller asked for the ISR in the partition's `proposal`."""
        self._proposed[partition] = None
        if self._altering is None and not self._closed:
            self._altering = self._loop.create_task(self._alter())
            self._altering.add_done_callback(_log_failure)

    async def _alter(self) -> None:
        """Send all proposals to the controller in one request, and repeat until there are none."""
        failures = 0
        try:
            while self._proposed:
                asked: list[tuple[Partition, IsrProposal]] = []
                for partition in self._proposed:
                    proposal = partition.followers.proposal
                    if proposal is not None and not proposal.refused:
                        asked.append((partition, proposal))
                self._proposed.clear()
                if not asked:
                    return
                if await self._ask(asked):
                    failures = 0
                else:
                    failures += 1
                    if failures == _FAILURES_WORTH_TELLING:
                        logger.warning("%d changes of in-sync replicas wait for the controller", len(self._proposed))
                    await asyncio.sleep(
                        min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * (1 << min(failures - 1, 10)))
                    )
        finally:
            self._altering = None

    async def _ask(self, asked: list[tuple[Partition, IsrProposal]]) -> bool:
        """Whether the controller answered all of it; what it did not answer is proposed again."""
        epoch = self._broker_epoch()
        changes = [
            IsrChange(
                partition.topic_id,
                partition.index,
                partition.leader_epoch,
                proposal.partition_epoch,
                partition.followers.isr_with_epochs(proposal, epoch),
            )
            for partition, proposal in asked
        ]
        try:
            answers = {
                (answer.topic_id, answer.partition): answer for answer in await self._link.alter_partitions(changes)
            }
        except (KafkaError, ClientError) as error:
            logger.debug("the controller does not change in-sync replicas: %s", error)
            answers = {}
        complete = True
        refused: dict[ErrorCode, list[str]] = {}
        for partition, proposal in asked:
            answer = answers.get((partition.topic_id, partition.index))
            if answer is None or answer.error in _RETRIED:
                if partition.followers.proposal is proposal:
                    self._proposed[partition] = None
                    complete = False
                continue
            if answer.error:
                if partition not in self._refused:
                    refused.setdefault(answer.error, []).append(f"{partition.topic}-{partition.index}")
                if answer.error is ErrorCode.INELIGIBLE_REPLICA:
                    self._reconsider_later(partition)
            partition.followers.proposal_answered(proposal, answer.error, answer.state)
        for code, names in refused.items():
            # A follower that shuts down is ineligible, while its leader still sees it fetch with every append.
            message = "the controller rejected other in-sync replicas of %d partitions: %s (%s)"
            logger.info(message, len(names), code.name, some_of(names))
        return complete

    def _reconsider_later(self, partition: Partition) -> None:
        """Propose rejected replicas again: they may have become eligible while the controller decided.

        While no records are written they do not fetch, so that nothing else would propose them.
        """
        self._refused[partition] = None
        if self._reconsidering is None:
            self._reconsidering = self._loop.call_later(_RECONSIDER_SECONDS, self._reconsider_refused)

    def _reconsider_refused(self) -> None:
        self._reconsidering = None
        refused = list(self._refused)
        self._refused.clear()
        for partition in refused:
            if partition.followers.progress:
                partition.followers.reconsider()
