"""Ties a group membership to a consumer's partitions: assignment, revocation, commits.

Listener calls and changes of the assignment happen within a poll, as in Kafka's ConsumerCoordinator; only joining,
heartbeats and automatic commits run between polls.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Mapping

from odradek.client.config import ConsumerOptions
from odradek.client.consumer.fetcher import Fetcher
from odradek.client.errors import ClientClosed, ClientError, CommitFailed
from odradek.client.group.assignors import Assignor, MemberSubscription, find_assignors, needs_rejoin
from odradek.client.group.group_partitions import GroupPartitions
from odradek.client.group.membership import GroupMember, Joined, Membership
from odradek.client.group.racks import PartitionRacks
from odradek.client.group.rebalance_listener import AnyListener
from odradek.client.group.subscriptions import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from odradek.client.model import GroupMembershipOperation, OffsetAndMetadata
from odradek.client.network.cluster import Cluster
from odradek.client.offsets import Member
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_GONE = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})


_POLL_S = 0.05
"""Between two calls of `drive` while it waits."""
_LONGEST_REASON = 255
"""Characters of the reason in a JoinGroup, as Java's client cuts it."""


class GroupDriver:
    """Runs one consumer's membership of its group."""

    __slots__ = (
        "_again", "_ask_again", "_assignors", "_claimed", "_cluster", "_config", "_cooperative",
        "_counts", "_fetcher", "_fields",
        "_group_id", "_join", "_join_begun", "_loop", "_member", "_membership", "_partitions",
        "_pattern", "_racks", "_reason", "_seen_version", "_subscribed", "active",
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
        self._fields = {"client_id": config["client_id"], "group_id": config["group_id"]}
        self._group_id = config["group_id"] or ""
        self._assignors: dict[str, Assignor] = find_assignors(config["partition_assignment_strategy"])
        # The mode that all offered strategies can do: cooperative only if every one of them is.
        self._cooperative = all(each.cooperative for each in self._assignors.values())
        self._membership = Membership(cluster, config, self._assign, fetcher.wake_waiter, fetcher.measures)
        self._member = self._membership.member
        self._loop = asyncio.get_running_loop()
        self._join: asyncio.Task[Joined] | None = None
        self._join_begun = 0.0
        # Whether a reason to join arose after the last JoinGroup was encoded.
        self._again = False
        # For the next JoinGroup.
        self._reason = ""
        self._claimed: set[TopicPartition] = set()
        self._partitions = GroupPartitions(cluster, config, fetcher, on_commit)
        self._subscribed: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._counts: dict[str, int] = {}
        self._racks: PartitionRacks = {}
        self._ask_again = 0.0
        self._seen_version = -1
        self.active = False
        """Whether this consumer is or wants to be in the group."""

    @property
    def member(self) -> Member:
        """The member that the current partitions were assigned to; commits of their offsets carry it.

        Not the membership's current identity: after a removal that is the anonymous member, whose commits a group
        without members accepts.
        """
        return self._member if self.active else self._membership.member

    def subscribe(self, topics: set[str], pattern: re.Pattern[str] | None, listener: AnyListener | None) -> None:
        """Join the group for these topics, or for those that match the pattern, with the next `drive`."""
        self._subscribed = topics
        self._pattern = pattern
        self._partitions.notify(listener)
        if not self.active:
            # Partitions that the user assigned do not belong to the group.
            self._partitions.forget()
        self.active = True
        self._request_rejoin()

    def enforce_rebalance(self, reason: str) -> None:
        """Rejoin with the next `drive`."""
        self._reason = (reason or "the program enforces a rebalance")[:_LONGEST_REASON]
        self._request_rejoin()

    def _request_rejoin(self) -> None:
        self._again = True
        self._membership.request_rejoin()

    @property
    def is_member(self) -> bool:
        """Whether the group knows this consumer, or is about to."""
        return self._join is not None or bool(self._membership.member_id)

    def unsubscribe(self) -> None:
        """Leave the group with the next `drive`, which calls the listener, too."""
        if self.active:
            self._partitions.leave()
        self._subscribed = set()
        self._pattern = None
        self.active = False

    # --- every poll ---

    async def drive(self, deadline: float) -> float:
        """Join, lose or leave as needed, until the deadline; return the seconds until the next call is due."""
        membership = self._membership
        membership.polled()
        if membership.failure is not None:
            failure, membership.failure = membership.failure, None
            raise failure
        await self._partitions.report_left(lost=membership.lost)
        if not self.active:
            # Partitions that the group took are not those that the user has assigned since.
            membership.forget_loss()
            await self._quit()
            return 1.0
        await self._drop_lost()
        self._partitions.auto_commit(self.member if self._membership.generation >= 0 else None)
        if self._pattern is not None and not self._cluster.metadata.version:
            # Without topics there is nothing to join for; brokers that cannot be reached are asked again.
            self._cluster.want_metadata()
            return _POLL_S
        self._notice_metadata()
        self._ask_for_missing()
        while membership.rejoin or self._join is not None:
            if self._join is None:
                await self._drop_lost()
                await self._begin_join()
            task = self._join
            assert task is not None
            await asyncio.wait({task}, timeout=max(0.0, deadline - self._loop.time()))
            if not task.done():
                return _POLL_S
            self._join = None
            if task.cancelled():
                raise ClientClosed("the consumer was closed")
            joined = task.result()
            if joined.generation != membership.generation:
                # The group has removed this member since: other members own its assignment.
                continue
            # Removed while it joined: its previous partitions are lost, the new ones are not.
            member = membership.member
            await self._drop_lost()
            self._member = member
            await self._joined(joined)
            now = self._loop.time()
            self._fetcher.measures.rebalanced(now, now - self._join_begun)
        return max(_POLL_S, min(1.0, self._partitions.next_commit - self._loop.time()))

    async def _begin_join(self) -> None:
        self._join_begun = self._loop.time()
        if not self._cooperative and self._fetcher.states:
            await self._give_up(set(self._fetcher.states))
        if self._pattern is not None:
            self._subscribed = self._topics()
        self._again = False
        self._claimed = set(self._fetcher.states)
        reason, self._reason = self._reason, ""
        self._join = self._loop.create_task(self._membership.join(self._protocols(), reason=reason))

    def _protocols(self) -> dict[str, bytes]:
        topics = sorted(self._topics())
        owned = sorted(self._fetcher.states)
        generation = self._membership.generation
        return {
            name: encode_subscription(
                topics,
                assignor.user_data(owned, generation),
                owned,
                generation,
                self._config["client_rack"] or None,
            )
            for name, assignor in self._assignors.items()
        }

    async def _joined(self, joined: Joined) -> None:
        assignor = self._assignors[joined.protocol]
        try:
            assigned = set(decode_assignment(joined.assignment))
        except KafkaError:
            self._membership.request_rejoin()
            raise
        # An assignor or a listener that raises, or a cancelled poll, ends the poll; the group's decision still applies.
        try:
            assignor.assigned(sorted(assigned), joined.generation)
        finally:
            await self._change_partitions(assigned, joined, assignor)

    async def _change_partitions(self, assigned: set[TopicPartition], joined: Joined, assignor: Assignor) -> None:
        owned = set(self._fetcher.states)
        gone = owned - assigned
        fresh = assigned - owned
        try:
            if gone:
                await self._give_up(gone)
        finally:
            try:
                await self._take_up(fresh, joined)
            finally:
                # Claimed partitions of other members stay unassigned until this member rejoins without them.
                if self._again or (self._claimed - assigned and needs_rejoin(assignor)):
                    self._membership.request_rejoin()
                self._fetcher.poke()

    async def _take_up(self, fresh: set[TopicPartition], joined: Joined) -> None:
        if not joined.is_leader:
            self._counts = {}
            self._racks = {}
        logger.info(
            "consumer joined group %s in generation %d: %d partitions, %d of them new",
            self._group_id, joined.generation, len(self._partitions.owned | fresh), len(fresh), extra=self._fields,
        )  # fmt: skip
        await self._partitions.take_up(fresh)

    async def _give_up(self, partitions: set[TopicPartition]) -> None:
        await self._partitions.give_up(partitions, self.commit)

    async def _drop_lost(self) -> None:
        """Drop partitions that the group took without notice, before any other change of the assignment."""
        if self._membership.lost:
            self._membership.forget_loss()
            await self._partitions.lose()

    async def _quit(self) -> None:
        """Leave the group after `unsubscribe` or `assign`."""
        await self._cancel_join()
        if self._membership.member_id:
            await self._membership.leave("the consumer unsubscribed")

    # --- subscriptions ---

    def _topics(self) -> set[str]:
        if self._pattern is None:
            return self._subscribed
        internal_too = not self._config["exclude_internal_topics"]
        return {
            name
            for name, info in self._cluster.metadata.topics.items()
            if self._pattern.fullmatch(name) and (internal_too or not info.is_internal)
        }

    def _notice_metadata(self) -> None:
        """Rejoin when the matching topics, or what the leader assigned by, have changed: partition counts and racks."""
        metadata = self._cluster.metadata
        if metadata.version == self._seen_version:
            return
        self._seen_version = metadata.version
        if self._pattern is not None:
            topics = self._topics()
            if topics != self._subscribed:
                self._subscribed = topics
                self._request_rejoin()
        if any(
            len(metadata.topics[name].partitions) != count if name in metadata.topics else count
            for name, count in self._counts.items()
        ) or any(name in metadata.topics and metadata.racks(name) != racks for name, racks in self._racks.items()):
            self._counts = {}
            self._racks = {}
            self._request_rejoin()

    def _ask_for_missing(self) -> None:
        """Refresh metadata while topics are missing that this member, as the leader, counted as empty."""
        now = self._loop.time()
        if now >= self._ask_again and any(name not in self._cluster.metadata.topics for name in self._counts):
            self._ask_again = now + self._cluster.options["retry_backoff_max_ms"] / 1000
            self._cluster.want_metadata()

    async def _assign(self, protocol: str, members: list[GroupMember]) -> Mapping[str, bytes]:
        """Assign the partitions of all subscribed topics; called on the group's leader."""
        metadata = self._cluster.metadata
        subscriptions: dict[str, MemberSubscription] = {}
        for each in members:
            subscriptions[each.member_id] = decode_subscription(each.subscription, each.group_instance_id)
        wanted = {topic for each in subscriptions.values() for topic in each.topics}
        for topic in wanted:
            self._cluster.add_topic(topic)
        if wanted - set(metadata.topics):
            # Missing topics count as empty; metadata is refreshed until they exist, then the group rebalances.
            with contextlib.suppress(KafkaError, ClientError):
                await self._cluster.refresh_metadata()
        counts = {name: len(metadata.topics[name].partitions) if name in metadata.topics else 0 for name in wanted}
        self._counts = counts
        counted = {name: count for name, count in counts.items() if count}
        racks = {name: metadata.racks(name) for name in counted}
        self._racks = racks if any(each.rack_id for each in subscriptions.values()) else {}
        assignment = self._assignors[protocol].assign(counted, subscriptions, racks)
        return {member_id: encode_assignment(partitions) for member_id, partitions in assignment.items()}

    # --- commits ---

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, member: Member | None = None
    ) -> None:
        """Commit, as the current member or as the one that the offsets are of.

        Raises CommitFailed when the group has rebalanced, KafkaError, CallTimedOut.
        """
        await self._partitions.finish_commit()
        member = member or self.member
        try:
            await self._partitions.commit(self._fetcher.positions() if offsets is None else offsets, member)
        except KafkaError as error:
            if error.code in _GONE:
                # The answer to a commit of an earlier generation says nothing about the current one.
                is_ours = member == self._membership.member
                if self.active and is_ours and error.code != ErrorCode.FENCED_INSTANCE_ID:
                    self._membership.reset(keep_member_id=error.code == ErrorCode.ILLEGAL_GENERATION)
                raise CommitFailed(
                    f"group {self._group_id} has rebalanced without this member ({error}); poll more often, take fewer "
                    f"records at a time, or raise max_poll_interval_ms"
                ) from error
            if error.code == ErrorCode.REBALANCE_IN_PROGRESS:
                self._membership.request_rejoin()
                raise CommitFailed(f"group {self._group_id} is rebalancing; the next poll joins it") from error
            raise

    # --- the end ---

    async def _cancel_join(self) -> None:
        task, self._join = self._join, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self, operation: GroupMembershipOperation) -> None:
        """Commit (with enable_auto_commit), revoke, leave or remain."""
        await self._partitions.report_left(lost=self._membership.lost)
        await self._cancel_join()
        if self._membership.generation >= 0 and self._fetcher.states and not self._membership.lost:
            if self.active:
                await self._give_up(set(self._fetcher.states))
        elif self._config["enable_auto_commit"] and not self.active and self._fetcher.states:
            await self._partitions.commit_quietly(self.commit)
        await self._partitions.finish_commit()
        await self._membership.leave(operation=operation)
