"""A consumer's membership of a group of KIP-848: heartbeats between polls, changes of the assignment within them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import re
from collections.abc import Callable, Mapping
from typing import Final

from odradek.client.config import ConsumerOptions
from odradek.client.consumer.fetcher import Fetcher
from odradek.client.errors import ClientError, CommitFailed, Disconnected, IllegalState, UnsupportedByBroker
from odradek.client.group.consumer_group_member import REMOVED, Consequence, ConsumerGroupMember
from odradek.client.group.group_partitions import GroupPartitions
from odradek.client.group.rebalance_listener import AnyListener
from odradek.client.model import GroupMembershipOperation, OffsetAndMetadata
from odradek.client.network.cluster import GROUP_COORDINATOR, Cluster, is_retriable
from odradek.client.network.failure_log import FailureLog
from odradek.client.offsets import Member
from odradek.records.topic_partition import TopicIdPartition, TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

logger = logging.getLogger(__name__)

_REGEX_SINCE: Final = 1
_LEAVE_MS: Final = 5_000
_STALE_TRIES: Final = 20
_GONE: Final = REMOVED | {ErrorCode.FENCED_INSTANCE_ID}


class ConsumerGroupDriver:
    """Has the methods of `GroupDriver`."""

    __slots__ = (
        "_beating", "_cluster", "_config", "_failure", "_failures", "_fetcher", "_fields", "_former", "_group_id",
        "_last_poll", "_loop", "_member", "_partitions", "_urgent", "active",
    )  # fmt: skip

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerOptions,
        fetcher: Fetcher,
        on_commit: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None],
    ) -> None:
        """`on_commit` is called with the offsets of each successful commit."""
        self._cluster = cluster
        self._config = config
        self._fetcher = fetcher
        self._group_id = config["group_id"] or ""
        self._loop = asyncio.get_running_loop()
        self._partitions = GroupPartitions(cluster, config, fetcher, on_commit)
        self._member = ConsumerGroupMember(
            self._group_id,
            base64.urlsafe_b64encode(cluster.random.uuid()).decode().rstrip("="),
            instance_id=config["group_instance_id"],
            rack=config["client_rack"] or None,
            assignor=config["group_remote_assignor"],
            rebalance_timeout_ms=config["max_poll_interval_ms"],
        )
        self._beating: asyncio.Task[None] | None = None
        self._urgent = asyncio.Event()
        self._last_poll = self._loop.time()
        # The member that lost partitions belong to, until they are dropped.
        self._former: Member | None = None
        self._failure: Exception | None = None
        self._fields = {"client_id": config["client_id"], "group_id": self._group_id}
        self._failures = FailureLog(logger, self._loop.time, self._fields)
        self.active = False
        """Whether this consumer is or wants to be in the group."""

    @property
    def member(self) -> Member:
        """The member that the current partitions were assigned to; commits of their offsets carry it.

        Between the loss of partitions and the next poll that is neither the member that has joined again since nor the
        anonymous one, which may commit in an empty group, and in a transaction always.
        """
        if self._former is not None and self.active:
            return self._former
        return self._member.identity if self._member.has_joined else Member()

    @property
    def is_member(self) -> bool:
        """Whether the group knows this consumer, or is about to."""
        return self._beating is not None

    def subscribe(self, topics: set[str], pattern: re.Pattern[str] | None, listener: AnyListener | None) -> None:
        """Join the group for these topics, or for those that match the pattern, with the next `drive`."""
        self._member.subscribe(topics, None if pattern is None else pattern.pattern)
        for topic in topics:
            self._cluster.add_topic(topic)
        self._partitions.notify(listener)
        if not self.active:
            # Partitions that the user assigned do not belong to the group, and those of the group are given up.
            self._partitions.forget()
            self._member.give_all_up()
        self.active = True
        self._urgent.set()

    def enforce_rebalance(self, reason: str) -> None:
        """Raise IllegalState: the coordinator assigns, and members do not join again (KIP-848)."""
        del reason
        raise IllegalState("enforce_rebalance needs group_protocol=classic: with consumer, the coordinator assigns")

    def unsubscribe(self) -> None:
        """Leave the group with the next `drive`, which calls the listener, too."""
        if self.active:
            self._partitions.leave()
        self.active = False

    # --- every poll ---

    async def drive(self, _deadline: float) -> float:
        """Join, lose, reconcile or leave as needed, without a wait for the coordinator; seconds until the next call."""
        self._last_poll = self._loop.time()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        await self._partitions.report_left(lost=self._former is not None)
        if not self.active:
            self._former = None
            await self._leave()
            return 1.0
        await self._drop_lost()
        self._partitions.auto_commit(self.member if self._member.has_joined else None)
        if self._beating is None:
            self._beating = self._loop.create_task(self._beat())
        if not self._member.is_reconciled:
            await self._reconcile()
        return max(0.05, min(1.0, self._partitions.next_commit - self._loop.time()))

    async def _drop_lost(self) -> None:
        if self._former is not None:
            try:
                await self._partitions.lose()
            finally:
                self._former = None

    async def _reconcile(self) -> None:
        """Give up what the assignment lacks, take up what is new and has a name, and have that reported."""
        begun = self._loop.time()
        gone = self._partitions.owned - self._assigned()
        if gone:
            try:
                await self._partitions.give_up(gone, self.commit)
            finally:
                if self._former is None:
                    self._report(self._owned_ids())
        if self._former is not None:
            # Removed by the group meanwhile: the next poll drops the rest.
            return
        fresh = self._assigned() - self._partitions.owned
        if fresh:
            await self._take_up(fresh)
        if gone or fresh:
            now = self._loop.time()
            self._fetcher.measures.rebalanced(now, now - begun)
        self._fetcher.poke()

    def _assigned(self) -> set[TopicPartition]:
        """The assignment by the topics' names, without the topics that the metadata do not have yet."""
        names = self._cluster.metadata.names_by_id
        assignment = self._member.assignment or frozenset()
        if any(topic_id not in names for topic_id, _ in assignment):
            self._cluster.want_metadata()
        return {TopicPartition(names[each], index) for each, index in assignment if each in names}

    async def _take_up(self, fresh: set[TopicPartition]) -> None:
        logger.info(
            "consumer of group %s in epoch %d: %d partitions, %d of them new",
            self._group_id, self._member.epoch, len(self._partitions.owned | fresh), len(fresh), extra=self._fields,
        )  # fmt: skip
        try:
            await self._partitions.take_up(fresh)
        finally:
            if self._former is None:
                self._report(self._owned_ids())

    def _owned_ids(self) -> frozenset[TopicIdPartition]:
        return frozenset((self._cluster.metadata.topic_id(key.topic), key.partition) for key in self._partitions.owned)

    def _report(self, owned: frozenset[TopicIdPartition]) -> None:
        if owned != self._member.owned:
            self._member.own(owned)
            self._urgent.set()

    # --- between polls ---

    async def _beat(self) -> None:
        """Heartbeats until the membership ends."""
        failures = 0
        while True:
            if self._loop.time() - self._last_poll > self._config["max_poll_interval_ms"] / 1000:
                logger.warning(
                    "consumer leaves group %s: no poll within max_poll_interval_ms (%d); poll more often, or raise it",
                    self._group_id, self._config["max_poll_interval_ms"], extra=self._fields,
                )  # fmt: skip
                self._lose(self.member)
                await self._send_leave()
                # Only now may the next poll join again: the coordinator must not get the two in the other order.
                self._beating = None
                return
            self._urgent.clear()
            request, former = self._member.request(), self.member
            sent_at = self._loop.time()
            try:
                outcome = self._member.answered(request, await self._heartbeat(request))
            except (KafkaError, ClientError) as error:
                self._member.unanswered()
                if not is_retriable(error):
                    self._beating = None
                    self._failure = error
                    self._lose(self.member)
                    return
                failures += 1
                if not isinstance(error, Disconnected):  # logged for the connection
                    self._failures.failed(f"heartbeat of group {self._group_id}", error, "retrying", quiet_s=1.0)
                await asyncio.sleep(self._cluster.backoff(failures))
                continue
            failures = 0
            now = self._loop.time()
            self._fetcher.measures.heartbeat(now, now - sent_at)
            self._failures.succeeded(f"heartbeat of group {self._group_id}")
            if outcome is Consequence.LOST:
                self._lose(former)
                continue
            if outcome is Consequence.RECONCILE:
                self._fetcher.wake_waiter()
            if not self._member.has_news:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._member.interval_ms / 1000):
                        await self._urgent.wait()

    async def _heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        """One exchange. Raises KafkaError, except where the group has removed the member, and ClientError.

        A member that joins cannot have been removed: the group is of another kind, or its members keep it so.
        """
        if request.subscribed_topic_regex:
            connection = await self._cluster.coordinator_connection(GROUP_COORDINATOR, self._group_id)
            if connection.version_of(ConsumerGroupHeartbeatRequest) < _REGEX_SINCE:
                raise UnsupportedByBroker(
                    "this broker does not evaluate regular expressions of consumer groups; use group_protocol='classic'"
                )
        response = await self._cluster.request_coordinator(
            GROUP_COORDINATOR, self._group_id, request, ConsumerGroupHeartbeatResponse
        )
        if response.error_code not in REMOVED or not request.member_epoch:
            self._cluster.check_coordinator(
                GROUP_COORDINATOR, self._group_id, response.error_code, response.error_message
            )
        return response

    def _lose(self, former: Member) -> None:
        """The group has removed this member: the next poll drops the partitions, which were those of `former`."""
        self._former = former
        self._member.lose()
        self._fetcher.wake_waiter()

    # --- commits ---

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, member: Member | None = None
    ) -> None:
        """Commit, as the current member or as the one that the offsets are of.

        Raises CommitFailed when the group has removed this member, or has revoked partitions since; KafkaError,
        CallTimedOut.
        """
        given = self._fetcher.positions() if offsets is None else offsets
        is_earlier = member is not None
        member = member or self.member
        for attempt in range(_STALE_TRIES):
            try:
                await self._partitions.commit(given, member)
                return
            except KafkaError as error:
                if error.code in _GONE or (error.code == ErrorCode.STALE_MEMBER_EPOCH and self._former is not None):
                    raise CommitFailed(
                        f"group {self._group_id} has removed this member ({error}); poll more often, take fewer "
                        f"records at a time, or raise max_poll_interval_ms"
                    ) from error
                if error.code != ErrorCode.STALE_MEMBER_EPOCH:
                    raise
                if is_earlier and not given.keys() <= self._partitions.owned:
                    raise CommitFailed(
                        f"group {self._group_id} has revoked partitions since the commit began"
                    ) from error
                # The coordinator has raised the epoch; the next heartbeat's answer has it.
                self._urgent.set()
                if member == self.member:
                    await asyncio.sleep(self._cluster.backoff(attempt + 1))
                member = self.member
        raise CommitFailed(f"group {self._group_id} does not know the epoch of this member; the next poll finds out")

    # --- the end ---

    async def _stop_beating(self) -> None:
        task, self._beating = self._beating, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _leave(self, operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT) -> None:
        await self._stop_beating()
        if self._member.has_joined:
            await self._send_leave(operation)
        self._member.lose()

    async def _send_leave(self, operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT) -> None:
        """Failures are ignored: the session times out."""
        with contextlib.suppress(KafkaError, ClientError):
            request = self._member.leave_request(operation)
            if request is None:
                return
            connection = await self._cluster.coordinator_connection(GROUP_COORDINATOR, self._group_id)
            await self._cluster.ask(connection, request, ConsumerGroupHeartbeatResponse, timeout_ms=_LEAVE_MS)

    async def close(self, operation: GroupMembershipOperation) -> None:
        """Commit (with enable_auto_commit), revoke, leave or remain."""
        await self._partitions.report_left(lost=self._former is not None)
        if self._member.has_joined and self._partitions.owned and self._former is None:
            if self.active:
                await self._partitions.give_up(self._partitions.owned, self.commit)
        elif self._config["enable_auto_commit"] and not self.active and self._partitions.owned:
            await self._partitions.commit_quietly(self.commit)
        await self._partitions.finish_commit()
        await self._leave(operation)
