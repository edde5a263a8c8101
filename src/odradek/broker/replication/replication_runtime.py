"""Replication as this broker takes part in it: whom it follows, and what it asks the controller to make of its ISRs.

Told of every image, after `Partitions`. Where nothing is replicated there is neither a timer nor a connection.
Source: Kafka's ReplicaManager, ReplicaFetcherManager, AlterPartitionManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.replication.followed_starts import FollowedStarts, WriteStarts
from odradek.broker.replication.replica_fetcher import Connect, FetchSettings, ReplicaFetcher
from odradek.broker.replication.replication_throttles import ReplicationThrottles
from odradek.broker.storage.partitions import Partitions
from odradek.broker.task_failures import logs_failure
from odradek.client.errors import ClientError
from odradek.controller.change_report import some_of
from odradek.controller.in_sync import IsrChange, IsrChanged
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.ports.clock import Clock
from odradek.records.topic_partition import PartitionKey, TopicIdPartition
from odradek.replication.follower import FollowedLog
from odradek.replication.in_sync import IsrProposal
from odradek.replication.partition import Partition
from odradek.replication.read_replicas import RACK_AWARE
from odradek.replication.replica_sessions import ReplicaSessions
from odradek.wire.errors import ErrorCode, KafkaError

log = logging.getLogger("odradek.replication")
_log_failure = logs_failure(log, "in-sync replicas cannot be changed")

_OPENED_AT_ONCE: Final = 64
"""Logs that are opened in one turn of the loop, to be followed: some 10 ms' worth."""
_REOPEN_SECONDS: Final = 0.2
_RECONSIDER_SECONDS: Final = 0.5
_FAILURES_WORTH_TELLING: Final = 8
"""After about 2.5 seconds."""
_IDLE_SESSION_MS: Final = 60_000
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


class ReplicationRuntime:
    """The follower's side of all partitions of a broker, and the shell of their leaders' side."""

    __slots__ = (
        "_altering",
        "_closed",
        "_config",
        "_fetchers",
        "_followed",
        "_image",
        "_led",
        "_link",
        "_loop",
        "_partitions",
        "_proposed",
        "_reconsidering",
        "_refused",
        "_reopening",
        "_sessions",
        "_settings",
        "_starts",
        "_throttles",
        "_tick",
        "_to_follow",
        "_unopened",
        "_working",
        "clock",
        "node_id",
        "peers",
    )

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Partitions,
        peers: Connect,
        link: ControllerLink,
        clock: Clock,
        image: Callable[[], ClusterImage],
        write_starts: WriteStarts,
    ) -> None:
        self.node_id = config.node_id
        self.peers = peers
        self.clock = clock
        self._config = config
        self._partitions = partitions
        self._link = link
        self._image = image
        self._sessions: ReplicaSessions | None = None
        self._loop = asyncio.get_running_loop()
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._followed: dict[TopicIdPartition, tuple[ReplicaFetcher, FollowedLog]] = {}
        self._to_follow: dict[PartitionKey, None] = {}
        self._unopened: dict[PartitionKey, None] = {}
        self._led: set[TopicIdPartition] = set()
        self._proposed: dict[Partition, None] = {}
        self._altering: asyncio.Task[None] | None = None
        self._refused: dict[Partition, None] = {}
        self._reconsidering: asyncio.TimerHandle | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._reopening: asyncio.TimerHandle | None = None
        self._working = False
        self._closed = False
        self._settings = _fetch_settings(config)
        self._throttles = ReplicationThrottles(config, self._now_ms)
        rules = partitions.rules
        rules.max_lag_ms = config.number("replica.lag.time.max.ms")
        rules.now_ms = self._now_ms
        rules.is_eligible = self._is_eligible
        rules.propose = self._propose
        self._starts = FollowedStarts(write_starts, self._start_written)
        rules.begins_later = self._starts.begins_later
        rules.tell_followers = config.text("replica.selector.class") == RACK_AWARE

    def _now_ms(self) -> int:
        return int(self.clock.monotonic() * 1000)

    def close(self) -> None:
        """Stop following, whatever the controller says."""
        self._closed = True
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._followed.clear()
        self._to_follow.clear()
        self._unopened.clear()
        self._proposed.clear()
        self._starts.close()
        if self._altering is not None:
            self._altering.cancel()
        for timer in (self._tick, self._reopening, self._reconsidering):
            if timer is not None:
                timer.cancel()
        self._tick = self._reopening = self._reconsidering = None
        self._refused.clear()

    def serve(self, sessions: ReplicaSessions) -> None:
        """Look after the sessions of this broker's followers: throttle them if that is set, end unused ones."""
        self._sessions = sessions
        # Later images contain differences only.
        self._throttles.apply(ClusterImage(), self._image())
        self._throttles.attach(sessions)

    def following(self) -> dict[PartitionKey, tuple[int, str]]:
        """Topic and partition -> the leader that it is fetched from, and what keeps it from being so, if anything."""
        found = {}
        for place, (fetcher, followed) in self._followed.items():
            partition = followed.partition
            problem = fetcher.problems().get(place, "")
            found[partition.topic, partition.index] = fetcher.leader_id, problem
        return found

    # --- for the fetchers ---

    def broker_epoch(self) -> int:
        """Implements FetcherHost."""
        own = self._image().brokers.get(self.node_id)
        return -1 if own is None else own.epoch

    def settings(self) -> FetchSettings:
        """Implements FetcherHost."""
        return self._settings

    def is_throttled(self, followed: FollowedLog) -> bool:
        """Implements FetcherHost."""
        return self._throttles.follower.is_active and self._throttles.pauses(followed, self._now_ms())

    def appended(self, partition: Partition, size: int) -> None:
        """Implements FetcherHost."""
        if self._throttles.follower.is_active:
            self._throttles.received(partition, size, self._now_ms())

    def suspect(self, leader_id: int, *, gone: bool) -> None:
        """Implements FetcherHost."""
        # Clients whose connections broke, too, learn that there is no leader, and retry soon.
        if gone:
            self._partitions.rules.unreachable.add(leader_id)
        else:
            self._partitions.rules.unreachable.discard(leader_id)

    # --- whom to follow ---

    def apply(self, old: ClusterImage, new: ClusterImage) -> None:
        """Take over a new image; `Partitions` has it already."""
        if self._closed:
            return
        if new.topics is not old.topics:
            for name, topic in old.topics.items():
                now = new.topics.get(name)
                if now is None or now.id != topic.id:
                    for index in range(len(topic.partitions)):
                        self._part_with((topic.id, index))
            for name, topic in new.topics.items():
                before = old.topics.get(name)
                if before is not topic:
                    self._take_over(topic, before)
            self._throttles.apply(old, new)
        if new.brokers is not old.brokers:
            for broker_id in list(self._partitions.rules.unreachable):
                if new.brokers.get(broker_id) != old.brokers.get(broker_id):
                    self._partitions.rules.unreachable.discard(broker_id)
            self._reconsider()
        self._adjust_tick()
        if self._to_follow and not self._working:
            self._follow_some()

    def _take_over(self, topic: Topic, before: Topic | None) -> None:
        known: Sequence[PartitionState] = () if before is None or before.id != topic.id else before.partitions
        for index, state in enumerate(topic.partitions):
            if index < len(known) and known[index] is state:
                continue
            place = (topic.id, index)
            local = self.node_id in state.replicas
            if local and state.leader == self.node_id and len(state.replicas) > 1:
                self._led.add(place)
            else:
                self._led.discard(place)
            if local and state.leader >= 0 and state.leader != self.node_id:
                self._to_follow[topic.name, index] = None
            else:
                self._unfollow(place)

    def directory_failed(self) -> None:
        """Stop following partitions whose log is out of reach: the leader would read records in vain."""
        for place, (_, followed) in list(self._followed.items()):
            if followed.partition.log.is_offline:
                self._unfollow(place)

    def _part_with(self, place: TopicIdPartition) -> None:
        self._led.discard(place)
        self._unfollow(place)

    def _unfollow(self, place: TopicIdPartition) -> None:
        found = self._followed.pop(place, None)
        if found is not None:
            found[0].unfollow(place)
            self._drop_idle(found[0])

    def _drop_idle(self, fetcher: ReplicaFetcher) -> None:
        if fetcher.is_idle:
            fetcher.close()
            self._partitions.rules.unreachable.discard(fetcher.leader_id)
            for key, each in list(self._fetchers.items()):
                if each is fetcher:
                    del self._fetchers[key]

    def _follow_some(self) -> None:
        """Open what is to be followed, a part of it in this turn of the loop."""
        self._working = False
        for key in list(self._to_follow)[:_OPENED_AT_ONCE]:
            del self._to_follow[key]
            try:
                self._follow(*key)
            except KafkaError as error:
                # Its log is being checked after a crash; or its directory is offline, which only a restart ends.
                log.debug("%s-%d cannot be followed yet: %s", *key, error.message)
                if not self._partitions.is_offline(*key):
                    self._unopened[key] = None
        if self._unopened and self._reopening is None:
            self._reopening = self._loop.call_later(_REOPEN_SECONDS, self._reopen)
        if self._to_follow:
            self._working = True
            self._loop.call_soon(self._follow_some)

    def _reopen(self) -> None:
        self._reopening = None
        self._to_follow.update(self._unopened)
        self._unopened.clear()
        if not self._working:
            self._follow_some()

    def _follow(self, name: str, index: int) -> None:
        topic = self._image().topics.get(name)
        if topic is None or index >= len(topic.partitions):
            return
        partition = self._partitions.find(name, index)
        place = (topic.id, index)
        if (
            partition is None
            or partition.is_leader
            or partition.leader < 0
            or partition.topic_id != topic.id
            or partition.log.is_offline
        ):
            self._unfollow(place)
            return
        leader_id = partition.leader
        found = self._followed.get(place)
        if found is not None:
            fetcher, followed = found
            if followed.is_current and followed.partition is partition and fetcher.leader_id == leader_id:
                return
            if self._fetchers.get((leader_id, self._slot(place))) is not fetcher:
                # Of another leader; or there are more fetchers now, or fewer.
                self._unfollow(place)
        followed = FollowedLog(partition)
        fetcher = self._fetcher(leader_id, place)
        self._followed[place] = fetcher, followed
        fetcher.follow(place, followed)

    def _start_written(self, partition: Partition) -> None:
        place = partition.topic_id, partition.index
        found = self._followed.get(place)
        if found is not None and found[1].partition is partition:
            found[0].start_written(place)

    def _slot(self, place: TopicIdPartition) -> int:
        return (31 * int.from_bytes(place[0][-4:], "big") + place[1]) % self._config.number("num.replica.fetchers")

    def _fetcher(self, leader_id: int, place: TopicIdPartition) -> ReplicaFetcher:
        slot = self._slot(place)
        fetcher = self._fetchers.get((leader_id, slot))
        if fetcher is None:
            fetcher = self._fetchers[leader_id, slot] = ReplicaFetcher(leader_id, self, self._loop, slot)
        return fetcher

    # --- the leaders' side ---

    def _is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self._image().brokers.get(broker_id)
        return broker is not None and not broker.fenced and broker_epoch == broker.epoch

    def _reconsider(self) -> None:
        """Brokers started or stopped: some may join an ISR now, others no longer delay a high watermark."""
        for partition in self._partitions.opened():
            if partition.followers:
                partition.reconsider()

    def _adjust_tick(self) -> None:
        if self._led and self._tick is None:
            self._tick = self._loop.call_later(self._partitions.rules.max_lag_ms / 2000, self._ticked)
        elif not self._led and self._tick is not None:
            self._tick.cancel()
            self._tick = None

    def _ticked(self) -> None:
        self._tick = None
        for partition in self._partitions.opened():
            if partition.followers:
                partition.shrink_isr()
                partition.take_in()
        if self._sessions is not None:
            self._sessions.end_idle(self._now_ms() - max(self._partitions.rules.max_lag_ms, _IDLE_SESSION_MS))
        self._adjust_tick()

    def _propose(self, partition: Partition) -> None:
        self._proposed[partition] = None
        if self._altering is None and not self._closed:
            self._altering = self._loop.create_task(self._alter())
            self._altering.add_done_callback(_log_failure)

    async def _alter(self) -> None:
        """Ask the controller for what is proposed, all of it at a time, until nothing is left."""
        failures = 0
        try:
            while self._proposed:
                asked: list[tuple[Partition, IsrProposal]] = []
                for partition in self._proposed:
                    proposal = partition.proposal
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
                        log.warning("%d changes of in-sync replicas wait for the controller", len(self._proposed))
                    await asyncio.sleep(
                        min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * (1 << min(failures - 1, 10)))
                    )
        finally:
            self._altering = None

    async def _ask(self, asked: list[tuple[Partition, IsrProposal]]) -> bool:
        """Whether the controller answered all of it; what it did not answer is proposed again."""
        epoch = self.broker_epoch()
        changes = [
            IsrChange(
                partition.topic_id,
                partition.index,
                partition.leader_epoch,
                proposal.partition_epoch,
                partition.isr_with_epochs(proposal, epoch),
            )
            for partition, proposal in asked
        ]
        try:
            answers = {
                (answer.topic_id, answer.partition): answer for answer in await self._link.alter_partitions(changes)
            }
        except (KafkaError, ClientError) as error:
            log.debug("the controller does not change in-sync replicas: %s", error)
            answers = {}
        complete = True
        refused: dict[ErrorCode, list[str]] = {}
        for partition, proposal in asked:
            answer = answers.get((partition.topic_id, partition.index))
            if answer is None or answer.error in _RETRIED:
                if partition.proposal is proposal:
                    self._proposed[partition] = None
                    complete = False
                continue
            if answer.error:
                if partition not in self._refused:
                    refused.setdefault(answer.error, []).append(f"{partition.topic}-{partition.index}")
                if answer.error is ErrorCode.INELIGIBLE_REPLICA:
                    self._reconsider_later(partition)
            partition.proposal_answered(proposal, answer.error, answer.state)
        for code, names in refused.items():
            # A follower that shuts down is ineligible, while its leader still sees it fetch with every append.
            message = "the controller rejected other in-sync replicas of %d partitions: %s (%s)"
            log.info(message, len(names), code.name, some_of(names))
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
            if partition.followers:
                partition.reconsider()


def _fetch_settings(config: BrokerConfig) -> FetchSettings:
    return FetchSettings(
        config.number("replica.fetch.wait.max.ms"),
        config.number("replica.fetch.min.bytes"),
        config.number("replica.fetch.response.max.bytes"),
        config.number("replica.fetch.max.bytes"),
        config.number("replica.fetch.backoff.ms"),
        config.number("replica.socket.timeout.ms"),
    )
