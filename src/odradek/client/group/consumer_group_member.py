"""One member of a consumer group of KIP-848, without I/O: what each heartbeat says, and what its answer changes.

The coordinator assigns. A member reports what it owns, gives up what its assignment lacks, and takes up the rest; the
coordinator assigns a partition only once its former owner has reported that it gave it up.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Final

from odradek.client.model import GroupMembershipOperation
from odradek.client.offsets import Member
from odradek.records.topic_partition import TopicIdPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)

_JOIN: Final = 0
_LEAVE: Final = -1
_LEAVE_FOR_A_WHILE: Final = -2
REMOVED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
"""Error codes of a member that has left the group, or whose group the coordinator does not know. Java's client gives up
with the last one; here the member joins again."""


class Consequence(Enum):
    """What the owner of a member has to do after an answer."""

    GO_ON = "the next heartbeat after the interval"
    RECONCILE = "the assignment has changed"
    LOST = "the group has removed the member: its partitions are lost, and it joins again"


class ConsumerGroupMember:
    """A member's identity, epoch, assignment and partitions."""

    __slots__ = (
        "_assignor", "_group_id", "_had_pattern", "_instance_id", "_is_told", "_rack", "_rebalance_timeout_ms",
        "_reported", "assignment", "epoch", "interval_ms", "member_id", "owned", "pattern", "topics",
    )  # fmt: skip

    def __init__(
        self,
        group_id: str,
        member_id: str,
        *,
        instance_id: str | None = None,
        rack: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = -1,
    ) -> None:
        """`member_id` is the member's own choice, for its whole life; `assignor` None: the coordinator chooses."""
        self._group_id = group_id
        self._instance_id = instance_id
        self._rack = rack
        self._assignor = assignor
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self.member_id = member_id
        self.epoch = _JOIN
        self.interval_ms = 0
        """The time between two heartbeats, as the coordinator wants it; 0 before its first answer."""
        self.topics: frozenset[str] = frozenset()
        """The subscription."""
        self.pattern: str | None = None
        """The regular expression (RE2) of the subscription, which the coordinator evaluates; None for none."""
        self.assignment: frozenset[TopicIdPartition] | None = None
        """What the coordinator wants this member to own; None before it has said so."""
        self.owned: frozenset[TopicIdPartition] = frozenset()
        """What the member owns."""
        self._reported: frozenset[TopicIdPartition] | None = None
        self._is_told = False
        self._had_pattern = False

    @property
    def identity(self) -> Member:
        """What commits carry."""
        return Member(self.member_id, self.epoch, self._instance_id)

    @property
    def has_joined(self) -> bool:
        """Whether the group knows this member."""
        return self.epoch > 0

    @property
    def is_reconciled(self) -> bool:
        """Whether the member owns what it is assigned."""
        return self.assignment is None or self.owned == self.assignment

    @property
    def has_news(self) -> bool:
        """Whether the next heartbeat is urgent: the coordinator does not know the subscription or what is owned."""
        return not self.has_joined or not self._is_told or self.owned != self._reported

    def own(self, owned: frozenset[TopicIdPartition]) -> None:
        """Own exactly these partitions, and report it with the next heartbeat."""
        self.owned = owned

    def give_all_up(self) -> None:
        """Own nothing, until the answer to the next heartbeat has the assignment."""
        self.owned = frozenset()
        self.assignment = None
        self.unanswered()

    def subscribe(self, topics: Collection[str], pattern: str | None) -> None:
        """Change the subscription."""
        self._had_pattern = self._had_pattern or self.pattern is not None
        self.topics = frozenset(topics)
        self.pattern = pattern
        self._is_told = False

    def request(self) -> ConsumerGroupHeartbeatRequest:
        """The next heartbeat: all fields when the member joins or an answer was lost, else only what has changed."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self.member_id, member_epoch=self.epoch, instance_id=self._instance_id
        )
        everything = self.epoch == _JOIN or not self._is_told
        if everything:
            request.rack_id = self._rack
            request.rebalance_timeout_ms = self._rebalance_timeout_ms
            request.server_assignor = self._assignor
            # An empty text takes a former expression back.
            request.subscribed_topic_regex = "" if self.pattern is None and self._had_pattern else self.pattern
            request.subscribed_topic_names = sorted(self.topics)
        if everything or self.owned != self._reported:
            request.topic_partitions = self._owned_by_topic()
        return request

    def leave_request(self, operation: GroupMembershipOperation) -> ConsumerGroupHeartbeatRequest | None:
        """The last heartbeat; None for a member that remains in the group without one.

        A static member leaves for a while, unless it is to leave for good: its partitions wait for its return.
        """
        is_static = self._instance_id is not None
        if operation is GroupMembershipOperation.REMAIN_IN_GROUP and not is_static:
            return None
        is_final = operation is GroupMembershipOperation.LEAVE_GROUP or not is_static
        epoch = _LEAVE if is_final else _LEAVE_FOR_A_WHILE
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self.member_id, member_epoch=epoch, instance_id=self._instance_id
        )

    def answered(self, request: ConsumerGroupHeartbeatRequest, response: ConsumerGroupHeartbeatResponse) -> Consequence:
        """Take in the answer to `request`, which has no error but those of REMOVED."""
        if response.error_code in REMOVED:
            self.lose()
            return Consequence.LOST
        self.member_id = response.member_id or self.member_id
        self.epoch = response.member_epoch
        self.interval_ms = response.heartbeat_interval_ms
        if request.subscribed_topic_names is not None:
            self._is_told = (
                frozenset(request.subscribed_topic_names) == self.topics
                and (request.subscribed_topic_regex or None) == self.pattern
            )
        if request.topic_partitions is not None:
            self._reported = frozenset(
                (topic.topic_id, index) for topic in request.topic_partitions for index in topic.partitions
            )
        if response.assignment is None:
            return Consequence.GO_ON
        self.assignment = frozenset(
            (topic.topic_id, index) for topic in response.assignment.topic_partitions for index in topic.partitions
        )
        return Consequence.GO_ON if self.is_reconciled else Consequence.RECONCILE

    def unanswered(self) -> None:
        """A heartbeat or its answer was lost: the next one has all fields, and its answer the whole assignment."""
        self._is_told = False
        self._reported = None

    def lose(self) -> None:
        """The group has removed this member: nothing is owned, and the next heartbeat joins."""
        self.epoch = _JOIN
        self.give_all_up()

    def _owned_by_topic(self) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
        by_topic: dict[bytes, list[int]] = {}
        for topic_id, index in sorted(self.owned):
            by_topic.setdefault(topic_id, []).append(index)
        return [ConsumerGroupHeartbeatRequestTopicPartitions(each, found) for each, found in by_topic.items()]
