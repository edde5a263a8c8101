"""The partitions that a group has given to a consumer: taken up, given up, lost; listeners, automatic commits.

Shared by both group protocols, which decide when these things happen.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from odradek.client.config import ConsumerOptions
from odradek.client.consumer.fetcher import Fetcher
from odradek.client.consumer.positions import PartitionState
from odradek.client.errors import ClientError
from odradek.client.group.rebalance_listener import AnyListener
from odradek.client.model import OffsetAndMetadata
from odradek.client.network.cluster import Cluster
from odradek.client.network.failure_log import FailureLog
from odradek.client.offsets import Member, Positions, commit_offsets
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import KafkaError

logger = logging.getLogger(__name__)


_CALLS: Final = {
    "on_partitions_assigned": ("assigned_calls", "assigning", "longest_assigning"),
    "on_partitions_revoked": ("revoked_calls", "revoking", "longest_revoking"),
    "on_partitions_lost": ("lost_calls", "losing", "longest_losing"),
}
"""The numbers of `GroupWork` for each call of the listener."""


class GroupPartitions:
    """Changes the partitions of one consumer's fetcher, and calls its listener within a poll."""

    __slots__ = (
        "_cluster",
        "_commit_task",
        "_config",
        "_failures",
        "_fetcher",
        "_fields",
        "_group_id",
        "_left",
        "_listener",
        "_loop",
        "_on_commit",
        "next_commit",
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
        self._on_commit = on_commit
        self._group_id = config["group_id"] or ""
        self._loop = asyncio.get_running_loop()
        self._fields = {"client_id": config["client_id"], "group_id": self._group_id}
        self._failures = FailureLog(logger, self._loop.time, self._fields)
        self._commit_task: asyncio.Task[None] | None = None
        self.next_commit = self._loop.time() + config["auto_commit_interval_ms"] / 1000
        """When the next automatic commit is due, in the event loop's time."""
        self._listener: AnyListener | None = None
        # Partitions of an ended subscription, which the listener does not know of yet.
        self._left: set[TopicPartition] = set()

    def notify(self, listener: AnyListener | None) -> None:
        """Call this listener, or none, when partitions come or go."""
        self._listener = listener

    @property
    def owned(self) -> set[TopicPartition]:
        """The partitions at hand."""
        return set(self._fetcher.states)

    def forget(self) -> None:
        """Drop all partitions without a word: they belong to the user, not to the group."""
        self._fetcher.forget_partitions()

    async def take_up(self, fresh: set[TopicPartition]) -> None:
        """Begin with partitions; the listener is called also with none, as in Kafka. Raises what that raises."""
        for topic in {key.topic for key in fresh}:
            self._cluster.add_topic(topic)
            if topic not in self._cluster.metadata.topics:
                self._cluster.want_metadata()
        for key in sorted(fresh):
            self._fetcher.states[key] = PartitionState(key)
        await self._call("on_partitions_assigned", fresh)

    async def give_up(self, partitions: set[TopicPartition], commit: Callable[[], Awaitable[None]]) -> None:
        """Commit if that is automatic, call the listener, end with the partitions. Raises what the listener raises."""
        logger.info("group %s revokes %d partitions", self._group_id, len(partitions), extra=self._fields)
        try:
            if self._config["enable_auto_commit"]:
                await self.commit_quietly(commit)
        finally:
            try:
                await self._call("on_partitions_revoked", partitions)
            finally:
                for key in partitions:
                    state = self._fetcher.states.pop(key, None)
                    if state is not None:
                        state.drop()

    async def lose(self) -> None:
        """End with all partitions: the group has removed this member. Raises what the listener raises."""
        lost = self.owned
        if not lost:
            return
        logger.warning(
            "consumer of group %s lost its %d partitions: the group removed it (no heartbeat within the session's "
            "timeout, or no poll within max_poll_interval_ms); it rejoins",
            self._group_id, len(lost), extra=self._fields,
        )  # fmt: skip
        try:
            await self._call("on_partitions_lost" if self._learns_of_losses else "on_partitions_revoked", lost)
        finally:
            self._fetcher.forget_partitions()

    def leave(self) -> None:
        """The program ends the subscription: the partitions are its own business from now on."""
        self._left |= self.owned

    async def report_left(self, *, lost: bool) -> None:
        """Call the listener for the partitions of an ended subscription. Raises what the listener raises."""
        left, self._left = self._left, set()
        if left:
            await self._call("on_partitions_lost" if lost and self._learns_of_losses else "on_partitions_revoked", left)

    @property
    def _learns_of_losses(self) -> bool:
        """Whether the listener has a method for partitions that are lost; if not, these are revoked."""
        return self._listener is None or hasattr(self._listener, "on_partitions_lost")

    async def _call(self, method: str, partitions: set[TopicPartition]) -> None:
        called = getattr(self._listener, method, None)
        if called is None:
            return
        begun = self._loop.time()
        try:
            result = called(partitions)
            if inspect.isawaitable(result):
                await result
        finally:
            self._fetcher.measures.group.took(*_CALLS[method], self._loop.time() - begun)

    # --- commits ---

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: Member) -> None:
        """Commit after the automatic commit that is under way. Raises KafkaError, CallTimedOut."""
        await self.finish_commit()
        await self._send_commit(offsets, member)
        self._on_commit(offsets)

    async def _send_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: Member) -> None:
        begun = self._loop.time()
        await commit_offsets(self._cluster, self._group_id, offsets, member)
        self._fetcher.measures.group.took("commits", "commit_time", "longest_commit", self._loop.time() - begun)

    async def commit_quietly(self, commit: Callable[[], Awaitable[None]]) -> None:
        """Commit; a failure is logged, and the next owner reads the uncommitted records again: at least once."""
        try:
            await commit()
        except (KafkaError, ClientError) as error:
            self._failures.failed(
                f"automatic commit of group {self._group_id}", error, "the next owner reads again from the last commit"
            )

    def auto_commit(self, member: Member | None) -> None:
        """Begin the automatic commit if it is due; `member` is None while the group does not know this consumer."""
        if not self._config["enable_auto_commit"] or self._loop.time() < self.next_commit:
            return
        self.next_commit = self._loop.time() + self._config["auto_commit_interval_ms"] / 1000
        if self._commit_task is None and member is not None and self._fetcher.states:
            self._commit_task = self._loop.create_task(self._commit_now(self._fetcher.positions(), member))

    async def finish_commit(self) -> None:
        """Wait for the automatic commit that is under way."""
        if self._commit_task is not None:
            await asyncio.gather(self._commit_task, return_exceptions=True)

    async def _commit_now(self, positions: Positions, member: Member) -> None:
        try:
            await self._send_commit(positions, member)
            self._failures.succeeded(f"automatic commit of group {self._group_id}")
            self._on_commit(positions)
        except (KafkaError, ClientError) as error:
            self._failures.failed(
                f"automatic commit of group {self._group_id}", error, "the next interval commits newer positions"
            )
        finally:
            self._commit_task = None
