"""Members of both protocols come, go, lose answers and change their minds, in any order.

After every step the shard checks itself against its log (`VirtualShard.check`), and no partition may be in the hands
of two members that believe their responses.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.wire.errors import ErrorCode
from tests.unit.groups.consumer_member import ConsumerMember
from tests.unit.groups.virtual_shard import VirtualShard

TOPICS = ("a", "b", "c")
PATIENCE_MS = 10_000_000
"""Longer than all waits together: whoever is put out while it believes in its partitions would be a second owner."""
names = st.sampled_from([f"m{n}" for n in range(5)])
subscriptions = st.lists(st.sampled_from(TOPICS), min_size=1, unique=True)


class ConsumerGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.members: dict[str, ConsumerMember] = {}

    @initialize(sizes=st.lists(st.integers(1, 7), min_size=3, max_size=3))
    def begin(self, sizes: list[int]) -> None:
        self.shard = VirtualShard(consumer_session_timeout_ms=PATIENCE_MS)
        self.sizes = dict(zip(TOPICS, sizes, strict=True))
        for name, size in self.sizes.items():
            self.shard.topic(name, size)

    @rule(name=names, topics=subscriptions, instance=st.booleans())
    def join(self, name: str, topics: list[str], instance: bool) -> None:
        member = self.members.get(name)
        if member is None:
            made = f"i-{name}" if instance else None
            member = self.members[name] = ConsumerMember(
                self.shard, name, *topics, instance=made, rebalance_timeout_ms=PATIENCE_MS
            )
        if member.epoch > 0:
            return
        member.topics = tuple(sorted(topics))
        # A member that gives up its partitions before it joins: nothing is in its hands.
        member.join()
        assert member.error in (None, ErrorCode.UNRELEASED_INSTANCE_ID), member.error

    @rule(name=names)
    def beat(self, name: str) -> None:
        member = self.members.get(name)
        if member is not None and member.epoch > 0:
            member.beat()
            assert member.error in (None, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID), member.error
            if member.error is not None:
                member.epoch, member.owned = 0, {}

    @rule(name=names)
    def lose_an_answer(self, name: str) -> None:
        member = self.members.get(name)
        if member is not None and member.epoch > 0:
            member.lose_answer()

    @rule(name=names)
    def beat_without_news(self, name: str) -> None:
        member = self.members.get(name)
        if member is not None and member.epoch > 0:
            member.beat(owned=None)
            if member.error is not None:
                member.epoch, member.owned = 0, {}

    @rule(name=names, topics=subscriptions)
    def subscribe(self, name: str, topics: list[str]) -> None:
        member = self.members.get(name)
        if member is not None and member.epoch > 0:
            member.subscribe(*topics)
            if member.error is not None:
                member.epoch, member.owned = 0, {}

    @rule(name=names, static=st.booleans())
    def leave(self, name: str, static: bool) -> None:
        member = self.members.get(name)
        if member is not None and member.epoch > 0:
            member.leave(-2 if static and member.instance is not None else -1)
            member.epoch = 0

    @rule(ms=st.sampled_from([10, 500, 1_000, 5_000]))
    def wait(self, ms: int) -> None:
        self.shard.sleep(ms)

    @rule()
    def wait_long(self) -> None:
        """All sessions end; a returning member gets an error and gives up its partitions. Others may not join yet."""
        self.shard.sleep(2 * PATIENCE_MS)
        for member in self.members.values():
            member.epoch, member.owned = 0, {}

    @rule(topic=st.sampled_from(TOPICS))
    def grow(self, topic: str) -> None:
        self.sizes[topic] += 1
        self.shard.topic(topic, self.sizes[topic])

    @rule()
    def restart(self) -> None:
        self.shard.restart()

    @rule(error=st.sampled_from([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR]), name=names)
    def fail(self, error: ErrorCode, name: str) -> None:
        member = self.members.get(name)
        if member is not None and member.epoch > 0:
            before = self.shard.coordinator.consumer.by_id["g"].copy()
            self.shard.refuse = error
            self.shard.beat("g", name, member.epoch, instance=member.instance, owned=member.owned)
            self.shard.refuse = None
            assert self.shard.coordinator.consumer.by_id["g"] == before

    @precondition(lambda self: any(m.epoch > 0 for m in self.members.values()))
    @rule()
    def all_settle(self) -> None:
        """Left alone, the group comes to rest, and every partition somebody wants is somebody's."""
        live = [m for m in self.members.values() if m.epoch > 0]
        for _ in range(60):
            self.shard.sleep(1_000)
            for member in live:
                if member.epoch == 0:
                    member.join()
                else:
                    member.beat()
                if member.error is not None:
                    member.epoch, member.owned = 0, {}
        group = self.shard.coordinator.describe_consumer_group("g")
        if any(member.epoch == -2 for member in group.members):
            return  # it has left its place to its successor, and the group waits for that one
        assert group.state == "Stable"
        wanted = {(t, p) for m in live for t in m.topics for p in range(self.sizes[t])}
        assert {(t, p) for m in live for t in TOPICS for p in m.has(t)} == wanted

    @invariant()
    def no_partition_is_two_members(self) -> None:
        held: dict[tuple[bytes, int], str] = {}
        for name, member in self.members.items():
            for topic_id, partitions in member.owned.items():
                for partition in partitions:
                    assert (topic_id, partition) not in held, f"{held[topic_id, partition]} and {name}"
                    held[topic_id, partition] = name


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
