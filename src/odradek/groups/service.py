"""The group coordinator as request handlers see it; `broker.coordinators.groups` implements it.

Methods that may have to wait return a future. A failure of the request as a whole is raised, at the call or by
the future, as KafkaError: NOT_COORDINATOR and COORDINATOR_LOAD_IN_PROGRESS from every one of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from odradek.groups.events import (
    CommitRequest,
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    FetchedOffset,
    GroupDescription,
    GroupListing,
    JoinRequest,
    JoinResult,
    LeavingMember,
    LeftMember,
    SyncRequest,
    SyncResult,
)
from odradek.records.topic_partition import PartitionKey
from odradek.wire.errors import ErrorCode, KafkaError

TopicOffsets = list[tuple[str, list[FetchedOffset]]]


class Reply(Protocol):
    """Where an answer goes: a Future, or what costs less. It may be called before the asking call has returned."""

    def done(self) -> bool:
        """Whether the answer is no longer wanted."""
        ...

    def set_result(self, codes: list[ErrorCode], /) -> object:
        """Answer with one code per offset."""
        ...

    def set_exception(self, error: KafkaError, /) -> object:
        """Answer with an error for the request as a whole."""
        ...


class GroupService(Protocol):
    """See the module."""

    def join(self, request: JoinRequest) -> Awaitable[JoinResult]:
        """Waits for the rebalance; failures of the member's own are in the result."""
        ...

    def sync(self, request: SyncRequest) -> Awaitable[SyncResult]:
        """Waits for the leader's assignment; failures of the member's own are in the result."""
        ...

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """Heartbeat of a member that speaks the classic protocol."""
        ...

    def consumer_heartbeat(self, request: ConsumerHeartbeat) -> Awaitable[ConsumerHeartbeatResult]:
        """ConsumerGroupHeartbeat. Raises KafkaError where it is rejected."""
        ...

    def leave(self, group_id: str, leaving: Sequence[LeavingMember]) -> Awaitable[list[LeftMember]]:
        """One result per member. Raises KafkaError for the request as a whole."""
        ...

    def is_late_commit(self, group_id: str, member_id: str, generation_id: int, connection: int) -> bool:
        """Whether the member has committed in this generation on a newer connection; notes this connection if not.

        The client repeated such a commit on the newer connection; executed late, it would move the offsets back.
        """
        ...

    def commit_offsets(self, request: CommitRequest, reply: Reply) -> None:
        """Reply with one code per offset once the offsets are committed; their order is fixed when this returns.

        Raises KafkaError if the request as a whole is rejected at once; then there is no reply.
        """
        ...

    def commit_transactional_offsets(
        self, request: CommitRequest, producer_id: int, producer_epoch: int
    ) -> Awaitable[list[ErrorCode]]:
        """As `commit_offsets`; the offsets are pending until the transaction ends."""
        ...

    def fetch_offsets(
        self,
        group_id: str,
        topics: Sequence[tuple[str, Sequence[int]]] | None,
        require_stable: bool,
        member: tuple[str | None, int] = (None, -1),
    ) -> Awaitable[TopicOffsets]:
        """Per topic; all that the group has committed when `topics` is None. `member` is its id and its epoch.

        Raises STALE_MEMBER_EPOCH or UNKNOWN_MEMBER_ID if the group has another epoch or no such member.
        """
        ...

    def delete_offsets(self, group_id: str, partitions: Sequence[PartitionKey]) -> Awaitable[list[ErrorCode]]:
        """One code per partition. Raises KafkaError for the request as a whole."""
        ...

    def delete_groups(self, group_ids: Sequence[str]) -> Awaitable[list[ErrorCode]]:
        """One code per group."""
        ...

    def describe_group(self, group_id: str) -> GroupDescription:
        """A classic group."""
        ...

    def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescription:
        """A KIP-848 group."""
        ...

    def list_groups(self, states: Sequence[str], types: Sequence[str]) -> list[GroupListing]:
        """Of all shards of this broker; raises COORDINATOR_LOAD_IN_PROGRESS while one of them loads."""
        ...
