"""What handlers may ask of the group coordinator; the broker's shell implements it.

Methods that may have to wait answer with a future. A failure of the request as a whole is raised, at the call or by
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
from odradek.wire.errors import ErrorCode, KafkaError

TopicOffsets = list[tuple[str, list[FetchedOffset]]]


class Reply(Protocol):
    """Where an answer goes: a Future, or what costs less. It may be called before the asking call has returned."""

    def done(self) -> bool: ...

    def set_result(self, codes: list[ErrorCode], /) -> object: ...

    def set_exception(self, error: KafkaError, /) -> object: ...


class GroupService(Protocol):
    def join(self, request: JoinRequest) -> Awaitable[JoinResult]:
        """Waits for the rebalance; failures of the member's own are in the result."""
        ...

    def sync(self, request: SyncRequest) -> Awaitable[SyncResult]:
        """Waits for the leader's assignment; failures of the member's own are in the result."""
        ...

    def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode: ...

    def consumer_heartbeat(self, request: ConsumerHeartbeat) -> Awaitable[ConsumerHeartbeatResult]:
        """Raises what the member is refused with."""
        ...

    def leave(self, group_id: str, leaving: Sequence[LeavingMember]) -> Awaitable[list[LeftMember]]: ...

    def is_late_commit(self, group_id: str, member_id: str, generation_id: int, connection: int) -> bool:
        """Whether the member, in this generation, has committed on a newer connection: then this commit has no effect.

        It was given up and repeated there, and would put the offsets back.
        """
        ...

    def commit_offsets(self, request: CommitRequest, reply: Reply) -> None:
        """One code per offset, once they are committed; decided, and their order fixed, when this returns.

        Raises KafkaError when the request as a whole is refused at once; then there is no reply.
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

        Raises STALE_MEMBER_EPOCH or UNKNOWN_MEMBER_ID where the group knows better.
        """
        ...

    def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> Awaitable[list[ErrorCode]]: ...

    def delete_groups(self, group_ids: Sequence[str]) -> Awaitable[list[ErrorCode]]: ...

    def describe_group(self, group_id: str) -> GroupDescription: ...

    def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescription: ...

    def list_groups(self, states: Sequence[str], types: Sequence[str]) -> list[GroupListing]:
        """Of all shards of this broker; raises COORDINATOR_LOAD_IN_PROGRESS while one of them loads."""
        ...
