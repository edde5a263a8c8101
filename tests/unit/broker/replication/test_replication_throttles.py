"""What a leader counts of what it sends to throttled replicas, and whom it holds back."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.replication.replication_throttles import ReplicationThrottles
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.ports.randomness import SeededRandom
from odradek.replication.partition import Partition
from odradek.replication.replica_sessions import ReplicaSessions

RATE = 1000
LEADER, IN_SYNC, LAGGING = 1, 2, 3


class World:
    def __init__(self) -> None:
        self.now_ms = 0
        config = BrokerConfig({"node.id": str(LEADER), "leader.replication.throttled.rate": str(RATE)})
        states = (PartitionState(LEADER, 0, (LEADER, IN_SYNC, LAGGING), (LEADER, IN_SYNC)),)
        topics = (
            Topic("throttled", b"a" * 16, states, {"leader.replication.throttled.replicas": "*"}),
            Topic("free", b"b" * 16, states),
        )
        sessions = ReplicaSessions(SeededRandom("s"), now_ms=lambda: self.now_ms)
        image = ClusterImage().with_topics(topics)
        self.throttles = ReplicationThrottles(config, sessions.now_ms, sessions, image)

    def partition(self, topic: str) -> Partition:
        return cast(Partition, SimpleNamespace(topic=topic, index=0, isr=(LEADER, IN_SYNC)))


def test_what_replicas_in_sync_are_sent_counts_and_they_are_not_held_back() -> None:
    """The rate bounds what leaves this broker for throttled partitions, as in Kafka, not only what lagging ones get."""
    world = World()
    throttled = world.partition("throttled")
    world.throttles.sent(throttled, 2 * RATE)
    assert world.throttles.holds_back(throttled, LAGGING)
    assert not world.throttles.holds_back(throttled, IN_SYNC)
    world.now_ms = 2000
    assert not world.throttles.holds_back(throttled, LAGGING), "2,000 bytes in two seconds"


def test_other_partitions_neither_count_nor_wait() -> None:
    world = World()
    throttled, free = world.partition("throttled"), world.partition("free")
    world.throttles.sent(free, 100 * RATE)
    assert not world.throttles.holds_back(throttled, LAGGING)
    world.throttles.sent(throttled, 2 * RATE)
    assert not world.throttles.holds_back(free, LAGGING)


def test_after_a_quiet_time_a_follower_gets_no_more_than_the_windows_allow() -> None:
    """Whatever the pause, and however little was sent before it: what is fetched stays below the rate over them."""
    for pause_ms in (0, 900, 3000, 8000, 10_999, 11_000, 60_000):
        world = World()
        throttled = world.partition("throttled")
        world.throttles.sent(throttled, 1)
        world.now_ms = begun = pause_ms
        sent = 0
        while world.now_ms - begun < 30_000:
            if not world.throttles.holds_back(throttled, LAGGING):
                world.throttles.sent(throttled, 100)
                sent += 100
            else:
                world.now_ms += 500
            allowed = (world.now_ms - begun + 11_000) * RATE // 1000 + 100
            assert sent <= allowed, f"after {pause_ms} ms"
        assert sent >= 28 * RATE, "but it is not held back more than it has to be"


def test_topic_configuration_throttles_this_broker_as_a_follower() -> None:
    world = World()
    before = ClusterImage().with_topics([Topic("t", b"t" * 16, ())])
    configs = {"follower.replication.throttled.replicas": f"0:{LEADER},1:{LAGGING}"}
    throttled = before.with_topics([Topic("t", b"t" * 16, (), configs)])
    world.throttles.apply(before, throttled)
    assert [world.throttles.follower.covers("t", index) for index in (0, 1)] == [True, False]
    world.throttles.apply(throttled, ClusterImage())
    assert not world.throttles.follower.covers("t", 0)


def test_rate_that_is_changed_holds_from_then_on() -> None:
    listeners: list[Callable[[frozenset[str]], None]] = []
    rates = {"leader.replication.throttled.rate": 1000, "follower.replication.throttled.rate": 2000}
    windows = {"replication.quota.window.num": 11, "replication.quota.window.size.seconds": 1}
    config: Any = SimpleNamespace(
        node_id=LEADER,
        number=lambda name: {**rates, **windows}[name],
        on_change=lambda names, then: listeners.append(then) if set(names) == set(rates) else None,
    )
    states = (PartitionState(LEADER, 0, (LEADER, LAGGING), (LEADER,)),)
    throttled = Topic("throttled", b"a" * 16, states, {"leader.replication.throttled.replicas": "*"})
    sessions = ReplicaSessions(SeededRandom("s"), now_ms=lambda: 0)
    throttles = ReplicationThrottles(config, lambda: 0, sessions, ClusterImage().with_topics([throttled]))
    partition = cast(Partition, SimpleNamespace(topic="throttled", index=0, isr=(LEADER,)))
    throttles.sent(partition, 1500)
    assert throttles.holds_back(partition, LAGGING)
    rates["leader.replication.throttled.rate"] = 1_000_000
    (listener,) = listeners
    listener(frozenset(rates))
    assert not throttles.holds_back(partition, LAGGING)
