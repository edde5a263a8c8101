"""One member of a classic consumer group: join, sync, heartbeat, leave (Kafka's AbstractCoordinator).

The owner decides when to join, and reads the result from `Joined`. This module knows no partitions and no offsets.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from odradek.client.config import ConsumerOptions
from odradek.client.errors import ClientError, Disconnected
from odradek.client.metrics.measures import ConsumerMeasures
from odradek.client.model import GroupMembershipOperation
from odradek.client.network.cluster import GROUP_COORDINATOR, Cluster, error_of, is_retriable
from odradek.client.network.connection import Request, Response
from odradek.client.network.connections import retrieve_failure
from odradek.client.network.failure_log import FailureLog
from odradek.client.offsets import Member
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupRequestMember, LeaveGroupResponse
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

logger = logging.getLogger(__name__)

PROTOCOL_TYPE: Final = "consumer"
_JOIN_SLACK_MS: Final = 5_000


class State(Enum):
    """How far this member is in its group."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    STABLE = "stable"


class Reaction(Enum):
    """The consequence of an error code of JoinGroup, SyncGroup or Heartbeat."""

    REJOIN = "rejoin with the same member id and generation"
    RESET_GENERATION = "rejoin with the same member id; partitions are lost"
    RESET_MEMBER = "rejoin with a new member id; partitions are lost"
    RETRY = "retry, perhaps at another coordinator"
    FATAL = "raise to the user"


def react(code: int) -> Reaction:
    """Kafka's JoinGroupResponseHandler, SyncGroupResponseHandler and HeartbeatResponseHandler in one table."""
    if code == ErrorCode.REBALANCE_IN_PROGRESS:
        return Reaction.REJOIN
    if code == ErrorCode.ILLEGAL_GENERATION:
        return Reaction.RESET_GENERATION
    if code == ErrorCode.UNKNOWN_MEMBER_ID:
        return Reaction.RESET_MEMBER
    if error_of(code).retriable:
        return Reaction.RETRY
    return Reaction.FATAL


class GroupMember(NamedTuple):
    """A member as the group's leader sees it; subscription is its metadata for the chosen protocol."""

    member_id: str
    group_instance_id: str | None
    subscription: bytes


Assign = Callable[[str, list[GroupMember]], Awaitable[Mapping[str, bytes]]]
"""(protocol, members) -> assignment by member id; called on the leader only."""


class Joined(NamedTuple):
    """The outcome of a rebalance: the chosen protocol, and this member's assignment as the leader encoded it."""

    protocol: str
    assignment: bytes
    generation: int
    is_leader: bool


class Membership:
    """Call `join` for each rebalance; heartbeats then run until the next one, or until the membership ends."""

    __slots__ = (
        "_assign",
        "_cluster",
        "_config",
        "_failures",
        "_fields",
        "_group_id",
        "_heartbeat",
        "_last_poll",
        "_loop",
        "_measures",
        "_on_change",
        "failure",
        "generation",
        "lost",
        "member_id",
        "rejoin",
        "state",
    )  # fmt: skip

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerOptions,
        assign: Assign,
        on_change: Callable[[], None],
        measures: ConsumerMeasures,
    ) -> None:
        self._measures = measures
        self._cluster = cluster
        self._config = config
        self._group_id = config["group_id"] or ""
        self._assign = assign
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._heartbeat: asyncio.Task[None] | None = None
        self._last_poll = self._loop.time()
        self.state = State.UNJOINED
        self.member_id = ""
        self.generation = -1
        self.rejoin = True
        """Whether the owner should join (again)."""
        self.lost = False
        """Whether the group rebalanced without this member, so that its partitions are lost."""
        self.failure: Exception | None = None
        """The error that the next poll must raise."""
        self._fields = {"client_id": config["client_id"], "group_id": self._group_id}
        self._failures = FailureLog(logger, self._loop.time, self._fields)

    @property
    def member(self) -> Member:
        """The identity that this member's commits carry."""
        return Member(self.member_id, self.generation, self._config["group_instance_id"])

    def polled(self) -> None:
        """Note a poll: max_poll_interval_ms counts from here."""
        self._last_poll = self._loop.time()

    def forget_loss(self) -> None:
        """The lost partitions have been dropped, or there were none."""
        self.lost = False

    def request_rejoin(self) -> None:
        """Have the owner join again."""
        self.rejoin = True
        self._on_change()

    async def join(self, protocols: Mapping[str, bytes], *, reason: str = "") -> Joined:
        """Join and sync until a generation is complete. Raises KafkaError that is not retriable, ClientError."""
        self.state = State.JOINING
        await self._stop_heartbeat()
        failures = 0
        while True:
            try:
                joined = await self._join_once(protocols, reason)
            except (KafkaError, ClientError) as error:
                reaction = self._react(error)
                self._measures.group.failed_rebalances += 1
                if reaction is Reaction.FATAL:
                    self.state = State.UNJOINED
                    raise
                if reaction is Reaction.RETRY:
                    failures += 1
                    self._note(f"joining group {self._group_id}", error)
                    await asyncio.sleep(self._cluster.backoff(failures))
                continue
            self._failures.succeeded(f"joining group {self._group_id}")
            if joined.generation != self.generation:
                # Removed from the group before it was complete: other members own this assignment.
                continue
            self.state = State.STABLE
            self.rejoin = False
            self._heartbeat = self._loop.create_task(self._beat())
            return joined

    async def leave(
        self,
        reason: str = "the consumer is being closed",
        operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> None:
        """Leave the group; by default a static member only stops (KIP-345), with REMAIN_IN_GROUP every one (KIP-1092).

        Failures are ignored: the session times out.
        """
        await self._stop_heartbeat()
        member_id, self.member_id = self.member_id, ""
        known = self.generation >= 0 or member_id
        self.state = State.UNJOINED
        self.generation = -1
        self.rejoin = True
        instance_id = self._config["group_instance_id"]
        remains = operation is GroupMembershipOperation.REMAIN_IN_GROUP or (
            operation is GroupMembershipOperation.DEFAULT and instance_id is not None
        )
        if not known or remains:
            return
        member = LeaveGroupRequestMember(member_id, instance_id, reason)
        request = LeaveGroupRequest(self._group_id, member_id, [member])
        with contextlib.suppress(KafkaError, ClientError):
            connection = await self._cluster.coordinator_connection(GROUP_COORDINATOR, self._group_id)
            if connection.version_of(LeaveGroupRequest) < 3:
                request.members = []
            else:
                request.member_id = ""
            await self._cluster.ask(connection, request, LeaveGroupResponse, timeout_ms=5_000)

    async def stop(self) -> None:
        """End the heartbeats without leaving."""
        await self._stop_heartbeat()

    def reset(self, *, keep_member_id: bool) -> None:
        """Forget the generation, and perhaps the member id: the group does not know them."""
        self.lost = self.lost or self.generation >= 0
        self.generation = -1
        if not keep_member_id:
            self.member_id = ""
        self.rejoin = True
        self.state = State.UNJOINED
        self._on_change()

    # --- inside ---

    async def _join_once(self, protocols: Mapping[str, bytes], reason: str) -> Joined:
        config = self._config
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=config["session_timeout_ms"],
            rebalance_timeout_ms=config["max_poll_interval_ms"],
            member_id=self.member_id,
            group_instance_id=config["group_instance_id"],
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name, metadata) for name, metadata in protocols.items()],
            reason=reason or None,
        )
        begun = self._loop.time()
        response = await self._wait_for_group(request, JoinGroupResponse)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = request.member_id = response.member_id
            response = await self._wait_for_group(request, JoinGroupResponse)
        self._check(response.error_code)
        joined_at = self._loop.time()
        self._measures.group.took("joins", "join_time", "longest_join", joined_at - begun)
        self.member_id = response.member_id
        generation = self.generation = response.generation_id
        protocol = response.protocol_name or ""
        is_leader = response.leader == response.member_id
        assignments: Mapping[str, bytes] = {}
        if is_leader and not response.skip_assignment:
            members = [GroupMember(m.member_id, m.group_instance_id, m.metadata) for m in response.members]
            assignments = await self._assign(protocol, members)
        sync = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=generation,
            member_id=response.member_id,
            group_instance_id=config["group_instance_id"],
            protocol_type=PROTOCOL_TYPE,
            protocol_name=protocol,
            assignments=[SyncGroupRequestAssignment(member_id, data) for member_id, data in assignments.items()],
        )
        synced = await self._wait_for_group(sync, SyncGroupResponse)
        self._check(synced.error_code)
        self._measures.group.took("syncs", "sync_time", "longest_sync", self._loop.time() - joined_at)
        return Joined(protocol, synced.assignment, generation, is_leader)

    async def _wait_for_group(self, request: Request, response_type: type[Response]) -> Response:
        """Ask the coordinator, which answers when all members are there: up to the rebalance timeout later.

        One that stands still keeps its connection. Raises Disconnected once another broker coordinates the group.
        """
        cluster = self._cluster
        node_id = await cluster.coordinator(GROUP_COORDINATOR, self._group_id)
        timeout_ms = self._config["max_poll_interval_ms"] + _JOIN_SLACK_MS
        answer = self._loop.create_task(
            cluster.request_coordinator(
                GROUP_COORDINATOR, self._group_id, request, response_type, timeout_ms=timeout_ms
            )
        )
        answer.add_done_callback(retrieve_failure)
        moved = self._loop.create_task(self._wait_until_moved(node_id))
        try:
            await asyncio.wait({answer, moved}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise Disconnected(f"another broker coordinates group {self._group_id} now")
            return answer.result()
        finally:
            answer.cancel()
            moved.cancel()

    async def _wait_until_moved(self, node_id: int) -> None:
        """Wait until another broker than this coordinates the group."""
        while True:
            await asyncio.sleep(self._config["request_timeout_ms"] / 1000)
            if await self._cluster.coordinator_has_moved(GROUP_COORDINATOR, self._group_id, node_id):
                return

    def _note(self, what: str, error: Exception) -> None:
        if not isinstance(error, Disconnected):  # logged for the connection
            self._failures.failed(what, error, "retrying", quiet_s=1.0)

    def _check(self, code: int) -> None:
        self._cluster.check_coordinator(GROUP_COORDINATOR, self._group_id, code, None)

    def _react(self, error: KafkaError | ClientError) -> Reaction:
        if isinstance(error, ClientError):
            return Reaction.RETRY if is_retriable(error) else Reaction.FATAL
        reaction = react(error.code)
        if reaction is Reaction.RESET_GENERATION:
            self.reset(keep_member_id=True)
        elif reaction is Reaction.RESET_MEMBER:
            self.reset(keep_member_id=False)
        return reaction

    async def _beat(self) -> None:
        """Heartbeats until a rebalance begins or the membership is over."""
        config = self._config
        request = HeartbeatRequest(self._group_id, self.generation, self.member_id, config["group_instance_id"])
        wait_s = config["heartbeat_interval_ms"] / 1000
        answered_at = self._loop.time()
        while True:
            await asyncio.sleep(wait_s)
            if self._loop.time() - self._last_poll > config["max_poll_interval_ms"] / 1000:
                self._heartbeat = None
                logger.warning(
                    "consumer leaves group %s: no poll within max_poll_interval_ms (%d); poll more often, or raise it",
                    self._group_id, config["max_poll_interval_ms"], extra=self._fields,
                )  # fmt: skip
                # Before LeaveGroup is sent: the owner may poll, and rejoin, before its answer arrives.
                self.lost = True
                self._on_change()
                await self.leave("max_poll_interval_ms passed between two polls")
                return
            sent_at = self._loop.time()
            try:
                response = await self._cluster.request_coordinator(
                    GROUP_COORDINATOR, self._group_id, request, HeartbeatResponse
                )
                self._check(response.error_code)
            except (KafkaError, ClientError) as error:
                reaction = self._react(error)
                if reaction is Reaction.RETRY:
                    self._note(f"heartbeat of group {self._group_id}", error)
                    if self._loop.time() - answered_at > config["session_timeout_ms"] / 1000:
                        self.reset(keep_member_id=True)
                        return
                    wait_s = self._cluster.backoff(1)
                    continue
                if reaction is Reaction.FATAL:
                    self.failure = error
                    self.reset(keep_member_id=False)
                    return
                if reaction is Reaction.REJOIN:
                    self.request_rejoin()
                    wait_s = config["heartbeat_interval_ms"] / 1000
                    answered_at = self._loop.time()
                    continue
                return
            self._failures.succeeded(f"heartbeat of group {self._group_id}")
            answered_at = self._loop.time()
            self._measures.heartbeat(answered_at, answered_at - sent_at)
            wait_s = config["heartbeat_interval_ms"] / 1000

    async def _stop_heartbeat(self) -> None:
        task, self._heartbeat = self._heartbeat, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
