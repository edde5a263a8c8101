"""A KIP-848 member as an honest client is one: it owns what it was given and has not given back."""

from __future__ import annotations

from typing import Any

from odradek.groups.events import ConsumerHeartbeatResult, every_topic
from odradek.wire.errors import ErrorCode
from tests.unit.groups.virtual_shard import VirtualShard

Owned = dict[bytes, frozenset[int]]


class ConsumerMember:
    def __init__(
        self,
        shard: VirtualShard,
        member_id: str,
        *topics: str,
        group_id: str = "g",
        instance: str | None = None,
        **fields: Any,
    ) -> None:
        self.shard = shard
        self.group_id = group_id
        self.member_id = member_id
        self.instance = instance
        self.topics = tuple(sorted(topics))
        self.fields = fields
        self.epoch = 0
        self.owned: Owned = {}
        self.assigned: Owned = {}
        self.interval_ms = 0
        self.error: ErrorCode | None = None
        self.lost_answer = False

    def join(self) -> ConsumerMember:
        self.epoch = 0
        self.owned = {}
        self._take(
            self.shard.beat(self.group_id, self.member_id, 0, instance=self.instance, topics=self.topics, **self.fields)
        )
        return self

    def beat(self, **fields: Any) -> ConsumerMember:
        """Report the owned partitions; then adopt the assignment at once.

        After a lost response it reports all that it has, as clients do: the coordinator then repeats the assignment.
        """
        if self.lost_answer:
            fields = {**self.fields, "topics": self.topics, **fields, "owned": self.owned}
        fields.setdefault("owned", self.owned)
        fields.setdefault("may_see", self.fields.get("may_see", every_topic))
        self._take(self.shard.beat(self.group_id, self.member_id, self.epoch, instance=self.instance, **fields))
        return self

    def lose_answer(self) -> None:
        """The coordinator receives it, and may advance the member, which does not learn that."""
        self.shard.beat(self.group_id, self.member_id, self.epoch, instance=self.instance, owned=self.owned)
        self.lost_answer = True

    def subscribe(self, *topics: str) -> ConsumerMember:
        self.topics = tuple(sorted(topics))
        return self.beat(topics=self.topics)

    def leave(self, epoch: int = -1) -> None:
        self._take(self.shard.beat(self.group_id, self.member_id, epoch, instance=self.instance))
        self.epoch, self.owned = epoch, {}

    def _take(self, answer: ConsumerHeartbeatResult | ErrorCode) -> None:
        if isinstance(answer, ErrorCode):
            self.error = answer
            if answer in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                self.epoch, self.owned = 0, {}
            return
        self.error = None
        self.lost_answer = False
        self.epoch = answer.member_epoch
        self.interval_ms = answer.heartbeat_interval_ms
        if answer.assignment is not None:
            self.owned = self.assigned = dict(answer.assignment)

    def has(self, topic: str) -> list[int]:
        return sorted(self.owned.get(topic.encode().ljust(16, b"#"), ()))


def rebalance(*members: ConsumerMember, rounds: int = 6) -> None:
    """Enough heartbeats, and time between them, for everybody to reach the target."""
    for _ in range(rounds):
        members[0].shard.sleep(1_000)
        for member in members:
            member.beat()
            assert member.error is None, member.error
