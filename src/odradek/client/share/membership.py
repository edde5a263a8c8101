"""A share consumer's membership of its group: heartbeats beside the polls."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import Callable, Collection
from typing import Final

from odradek.client.config import ShareConsumerOptions
from odradek.client.errors import ClientError, Disconnected, UnsupportedByBroker
from odradek.client.metrics.measures import ShareMeasures
from odradek.client.network.cluster import GROUP_COORDINATOR, Cluster, is_retriable
from odradek.client.network.failure_log import FailureLog
from odradek.client.share.member import REMOVED, ShareGroupMember
from odradek.records.topic_partition import TopicIdPartition
from odradek.wire.errors import KafkaError
from odradek.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

logger = logging.getLogger(__name__)

_LEAVE_MS: Final = 5_000


class ShareMembership:
    """Joins with the first poll, and leaves when it is closed or polls stop."""

    __slots__ = (
        "_beating", "_changed", "_cluster", "_config", "_failures", "_fields", "_group_id", "_last_poll", "_loop",
        "_measures", "_member", "_urgent", "failure",
    )  # fmt: skip

    def __init__(
        self,
        cluster: Cluster,
        config: ShareConsumerOptions,
        changed: Callable[[], None],
        measures: ShareMeasures,
    ) -> None:
        """`changed` is called after the assignment has changed, or the heartbeats have failed."""
        self._measures = measures.consumer
        self._cluster = cluster
        self._config = config
        self._group_id = config["group_id"]
        self._loop = asyncio.get_running_loop()
        self._changed = changed
        self._member = ShareGroupMember(
            self._group_id,
            base64.urlsafe_b64encode(cluster.random.uuid()).decode().rstrip("="),
            rack=config["client_rack"] or None,
        )
        self._beating: asyncio.Task[None] | None = None
        self._urgent = asyncio.Event()
        self._last_poll = self._loop.time()
        self._fields = {"client_id": config["client_id"], "group_id": self._group_id}
        self._failures = FailureLog(logger, self._loop.time, self._fields)
        self.failure: Exception | None = None
        """The error that ended the membership; the next `drive` joins again."""

    @property
    def member_id(self) -> str:
        """The identity that fetches carry."""
        return self._member.member_id

    @property
    def assignment(self) -> frozenset[TopicIdPartition]:
        """The partitions to read."""
        return self._member.assignment

    def subscribe(self, topics: Collection[str]) -> None:
        """Change the subscription."""
        self._member.subscribe(topics)
        self._urgent.set()

    def drive(self) -> None:
        """Join if need be; with every poll. Raises the error that ended the membership."""
        self._last_poll = self._loop.time()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        if self._beating is None:
            self._beating = self._loop.create_task(self._beat())

    async def leave(self) -> None:
        """End the membership. Failures are ignored: the session times out."""
        task, self._beating = self._beating, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._member.has_joined:
            await self._send_leave()
        self._member.lose()

    async def _beat(self) -> None:
        failures = 0
        while True:
            if self._loop.time() - self._last_poll > self._config["max_poll_interval_ms"] / 1000:
                logger.warning(
                    "share consumer leaves group %s: no poll within max_poll_interval_ms (%d); poll more often, or "
                    "raise it",
                    self._group_id, self._config["max_poll_interval_ms"], extra=self._fields,
                )  # fmt: skip
                await self._send_leave()
                self._member.lose()
                self._beating = None
                return
            self._urgent.clear()
            request, before = self._member.request(), self._member.assignment
            sent_at = self._loop.time()
            try:
                response = await self._heartbeat(request)
            except (KafkaError, ClientError) as error:
                self._member.unanswered()
                if not is_retriable(error):
                    self._beating = None
                    self.failure = error
                    self._member.lose()
                    self._changed()
                    return
                failures += 1
                if not isinstance(error, Disconnected):  # logged for the connection
                    self._failures.failed(f"heartbeat of share group {self._group_id}", error, "retrying", quiet_s=1.0)
                await asyncio.sleep(self._cluster.backoff(failures))
                continue
            failures = 0
            self._failures.succeeded(f"heartbeat of share group {self._group_id}")
            is_member = self._member.answered(request, response)
            now = self._loop.time()
            self._measures.heartbeat(now, now - sent_at)
            if self._member.assignment != before:
                self._measures.rebalanced(now, 0.0)
                self._changed()
            if is_member and not self._member.has_news:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._member.interval_ms / 1000):
                        await self._urgent.wait()

    async def _heartbeat(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        """One exchange. Raises KafkaError, except where the group has removed the member, and ClientError.

        A member that joins cannot have been removed: the group is of another kind, or its members keep it so.
        """
        try:
            response = await self._cluster.request_coordinator(
                GROUP_COORDINATOR, self._group_id, request, ShareGroupHeartbeatResponse
            )
        except UnsupportedByBroker as error:
            raise UnsupportedByBroker(
                f"UNSUPPORTED_VERSION: this cluster has no share groups (KIP-932; Apache Kafka has them since 4.2): "
                f"{error}"
            ) from error
        if response.error_code not in REMOVED or not request.member_epoch:
            self._cluster.check_coordinator(
                GROUP_COORDINATOR, self._group_id, response.error_code, response.error_message
            )
        return response

    async def _send_leave(self) -> None:
        with contextlib.suppress(KafkaError, ClientError):
            connection = await self._cluster.coordinator_connection(GROUP_COORDINATOR, self._group_id)
            request = self._member.leave_request()
            await self._cluster.ask(connection, request, ShareGroupHeartbeatResponse, timeout_ms=_LEAVE_MS)
