"""A broker of a KRaft cluster leads a partition once its former leader knows of the successor, or leads no longer.

A former leader that is fenced has no lease. One that was deposed by a preferred election or a reassignment is not
fenced, and acts until it has applied the image, which may take long where it is cut off from the controllers. So its
successor asks it for an epoch of the partition, and names its own leader epoch: only a broker that does not know that
epoch yet answers UNKNOWN_LEADER_EPOCH. Brokers of Apache Kafka answer the same. If the partition had other leaders
shortly before, the successor asks them as well (`broker.kraft.deposed_leaders`).
See docs/decisions/0011-leaders-hold-leases.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from odradek.api.requests.context import Configuration
from odradek.broker.cluster.peers import Peers, Purpose
from odradek.broker.kraft.deposed_leaders import DeposedLeaders, is_fenced
from odradek.broker.task_failures import logs_failure
from odradek.client.errors import TransportError
from odradek.controller.change_report import some_of
from odradek.metadata.image import ClusterImage
from odradek.records.topic_partition import PartitionKey
from odradek.replication.leadership import Elected, Leadership
from odradek.replication.partition import Partition, take_in_followers
from odradek.wire.errors import ErrorCode, error_code
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
    OffsetForLeaderEpochResponse,
)

logger = logging.getLogger("odradek.broker.kraft")
_log_failure = logs_failure(logger, "asking a former leader failed")

_VERSION: Final = 4
_TIMEOUT_MS: Final = 1000.0
_PAUSE_SECONDS: Final = 0.02
"""Between two questions."""
_NO_EPOCH: Final = 0
"""The epoch of which the end is asked for: it does not matter."""
_KNOW: Final = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR))
"""Answers of a broker that knows of its successor, or cannot act as the leader."""
_MAY_ACT: Final = frozenset((ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NONE))
"""Answers of a broker that may act as the leader later.

A later epoch, or leadership in the same one, is that of a deleted topic of the name, unless this broker is deposed too.
The former leader may learn that it leads the present topic in an earlier epoch before it learns of the successor.
"""


class _Question(NamedTuple):
    """What is asked of one broker."""

    broker_id: int
    waiting: dict[PartitionKey, Elected]
    """The partitions of which it has not answered that it knows of their leader."""


class FormerLeaders:
    """Subscribe `follow` before anything else that the view calls; `close` at the stop."""

    __slots__ = ("_config", "_deposed", "_leadership", "_now", "_opened", "_peers", "_questions", "_waits")

    def __init__(
        self,
        config: Configuration,
        leadership: Leadership,
        peers: Peers,
        now: Callable[[], float],
        opened: Callable[[], Iterable[Partition]],
    ) -> None:
        """`now` has the seconds of the monotonic clock, `opened` the replicas of this broker that are open."""
        self._config = config
        self._leadership = leadership
        self._peers = peers
        self._now = now
        self._opened = opened
        self._deposed = DeposedLeaders(peers.node_id, now, self._session_seconds)
        self._questions: dict[asyncio.Task[None], _Question] = {}
        self._waits: dict[int, set[int]] = {}
        """By number of the election, the brokers that may still act as the leader."""

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        """Begin to lead the partitions of which no other broker may act as the leader; ask about the others."""
        for task, question in self._questions.items():
            if is_fenced(new, question.broker_id):
                task.cancel()
        questions: dict[int, dict[PartitionKey, Elected]] = {}
        begun = set()
        self._deposed.follow(old, new)
        for each in self._leadership.follow(old, new):
            acting = self._deposed.acting(each.topic_id_partition, new)
            if not acting:
                begun.add(each.number)
                self._deposed.ended(each.topic_id_partition)
                continue
            self._waits[each.number] = acting
            for broker_id in acting:
                questions.setdefault(broker_id, {})[each.place] = each
        self._leadership.begin_elected(begun)
        for broker_id, waiting in questions.items():
            question = _Question(broker_id, waiting)
            task = asyncio.get_running_loop().create_task(self._wait_for(question))
            self._questions[task] = question
            task.add_done_callback(self._answered)

    def close(self) -> None:
        """Begin to lead no further partitions: the broker stops."""
        self._waits.clear()
        for task in self._questions:
            task.cancel()

    def _answered(self, task: asyncio.Task[None]) -> None:
        """The broker knows its successors, is fenced, or has had the time of a session to answer."""
        _log_failure(task)
        question = self._questions.pop(task)
        self._note_end(question.broker_id, question.waiting.values())

    def _note_end(self, broker_id: int, ended: Iterable[Elected]) -> None:
        begun: dict[int, PartitionKey] = {}
        for each in ended:
            acting = self._waits.get(each.number)
            if acting is not None:
                acting.discard(broker_id)
                if not acting:
                    del self._waits[each.number]
                    begun[each.number] = each.place
                    if self._leadership.waits(each):
                        self._deposed.ended(each.topic_id_partition)
        if begun:
            self._leadership.begin_elected(begun)
            take_in_followers(self._opened(), set(begun.values()))

    async def _wait_for(self, question: _Question) -> None:
        """Ask until the broker knows its successors, at most for the time of a session in which it does not answer.

        Its lease is over then: it has sent no heartbeat that the controllers answered since it was deposed.
        """
        waiting = question.waiting
        session = self._session_seconds()
        ends = self._now() + session
        while self._now() < ends:
            errors = await self._ask(question)
            known = [place for place, error in errors.items() if error in _KNOW and place in waiting]
            known += [place for place, each in waiting.items() if not self._leadership.waits(each)]
            self._note_end(question.broker_id, [waiting.pop(place) for place in dict.fromkeys(known)])
            if not waiting:
                return
            if not _MAY_ACT.isdisjoint(errors.values()):
                ends = self._now() + session
            await asyncio.sleep(_PAUSE_SECONDS)
        logger.warning(
            "broker %d has not answered for %g s whether it knows that it does not lead %d partitions any longer; "
            "leading them: %s",
            question.broker_id,
            session,
            len(waiting),
            some_of(f"{topic}-{index}" for topic, index in waiting),
        )

    async def _ask(self, question: _Question) -> dict[PartitionKey, ErrorCode]:
        """The errors of the broker's answer by partition; empty without an answer."""
        topics: dict[str, list[OffsetForLeaderEpochRequestPartition]] = {}
        for (topic, index), each in question.waiting.items():
            wanted = OffsetForLeaderEpochRequestPartition(index, each.state.leader_epoch, _NO_EPOCH)
            topics.setdefault(topic, []).append(wanted)
        request = OffsetForLeaderEpochRequest(
            self._peers.node_id, [OffsetForLeaderEpochRequestTopic(*each) for each in topics.items()]
        )
        broker_id = question.broker_id
        try:
            answer = await self._peers.request(
                Purpose.FORMER_LEADERS, broker_id, request, OffsetForLeaderEpochResponse, _VERSION, _TIMEOUT_MS
            )
        except TransportError as error:
            logger.debug("the former leader, broker %d, does not answer: %s; asking again", broker_id, error)
            return {}
        return {
            (topic.topic, each.partition): error_code(each.error_code)
            for topic in answer.topics
            for each in topic.partitions
        }

    def _session_seconds(self) -> float:
        return self._config.number("broker.session.timeout.ms") / 1000
