"""One member of a share group, without I/O: what each heartbeat says, and what its answer changes (KIP-932).

The coordinator assigns partitions to several members at once; there is nothing to give up before another reads.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from odradek.records.topic_partition import TopicIdPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

REMOVED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
"""Error codes of a member that has left the group, or whose group the coordinator does not know: it joins again."""
_JOIN: Final = 0
_LEAVE: Final = -1


class ShareGroupMember:
    """A member's identity, epoch and assignment."""

    __slots__ = ("_group_id", "_rack", "_reported", "assignment", "epoch", "interval_ms", "member_id", "topics")

    def __init__(self, group_id: str, member_id: str, *, rack: str | None = None) -> None:
        """`member_id` is the member's own choice, for its whole life."""
        self._group_id = group_id
        self._rack = rack
        self._reported: frozenset[str] | None = None
        self.member_id = member_id
        self.epoch = _JOIN
        self.interval_ms = 0
        """The time between two heartbeats, as the coordinator wants it; 0 before its first answer."""
        self.topics: frozenset[str] = frozenset()
        """The subscription."""
        self.assignment: frozenset[TopicIdPartition] = frozenset()
        """The partitions to read."""

    @property
    def has_joined(self) -> bool:
        """Whether the group knows this member."""
        return self.epoch > 0

    @property
    def has_news(self) -> bool:
        """Whether the next heartbeat is urgent: the coordinator does not know the subscription."""
        return not self.has_joined or self._reported != self.topics

    def subscribe(self, topics: Collection[str]) -> None:
        """Change the subscription."""
        self.topics = frozenset(topics)

    def request(self) -> ShareGroupHeartbeatRequest:
        """The next heartbeat: all fields when the member joins or the subscription has changed."""
        request = ShareGroupHeartbeatRequest(group_id=self._group_id, member_id=self.member_id, member_epoch=self.epoch)
        if self.has_news:
            request.rack_id = self._rack
            request.subscribed_topic_names = sorted(self.topics)
        return request

    def leave_request(self) -> ShareGroupHeartbeatRequest:
        """The last heartbeat."""
        return ShareGroupHeartbeatRequest(group_id=self._group_id, member_id=self.member_id, member_epoch=_LEAVE)

    def answered(self, request: ShareGroupHeartbeatRequest, response: ShareGroupHeartbeatResponse) -> bool:
        """Take in the answer to `request`, which has no error but those of REMOVED; false if the member is removed."""
        if response.error_code in REMOVED:
            self.lose()
            return False
        self.epoch = response.member_epoch
        self.interval_ms = response.heartbeat_interval_ms
        if request.subscribed_topic_names is not None:
            self._reported = frozenset(request.subscribed_topic_names)
        if response.assignment is not None:
            self.assignment = frozenset(
                (topic.topic_id, index) for topic in response.assignment.topic_partitions for index in topic.partitions
            )
        return True

    def unanswered(self) -> None:
        """A heartbeat or its answer was lost: the next one has all fields."""
        self._reported = None

    def lose(self) -> None:
        """The group has removed this member: the next heartbeat joins."""
        self.epoch = _JOIN
        self.assignment = frozenset()
        self._reported = None
