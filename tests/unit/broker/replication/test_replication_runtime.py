"""Whom a broker follows as images come, and what it asks the controller for."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.replication import isr_changes
from odradek.broker.replication.replica_fetcher import ReplicaFetcher
from odradek.broker.replication.replication_parts import ReplicationParts, replication_parts
from odradek.broker.replication.replication_runtime import ReplicationRuntime
from odradek.broker.storage.partitions import Partitions
from odradek.client.errors import Disconnected
from odradek.controller.in_sync import IsrChange, IsrChanged
from odradek.log.config import LogConfig
from odradek.log.environment import LogEnvironment
from odradek.log.partition_log import PartitionLog
from odradek.log.turns import TURN_SECONDS
from odradek.metadata.image import Broker, ClusterImage, PartitionState, Topic
from odradek.metrics.invariants import InvariantCounters
from odradek.ports.clock import Clock, SystemClock
from odradek.ports.disk import SystemDisk
from odradek.ports.randomness import SeededRandom
from odradek.records.builder import encode_batch
from odradek.replication.follower import FollowedLog, Next
from odradek.replication.partition import Partition, PartitionEnvironment
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.replica_fetch import FetchedReplica
from tests.unit.metadata.images import with_partition, without_broker

TOPIC_ID = b"topic under test"
LAG_MS = 60


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


class StandingClock(SystemClock):
    """No turn is over, however slow the disk of the test is."""

    def monotonic(self) -> float:  # type: ignore[override]
        return 0.0


class SlowClock(SystemClock):
    """Each look at it takes more than half of a turn."""

    looks = 0

    def monotonic(self) -> float:  # type: ignore[override]
        self.looks += 1
        return self.looks * 0.6 * TURN_SECONDS


class Held:
    """The partitions of broker 1, opened when they are first asked for."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = PartitionEnvironment()
        self.image = ClusterImage()
        self.held: dict[tuple[str, int], Partition] = {}
        self.refuse = 0
        self.offline: set[tuple[str, int]] = set()

    def is_offline(self, topic: str, index: int) -> bool:
        return (topic, index) in self.offline

    def find(self, topic: str, index: int) -> Partition | None:
        state = self.image.partition(topic, index)
        if state is None or 1 not in state.replicas:
            return None
        if self.refuse:
            self.refuse -= 1
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "is being recovered")
        if (topic, index) not in self.held:
            path = self.directory / f"{topic}-{index}"
            path.mkdir()
            environment = LogEnvironment(SystemDisk(), SystemClock())
            log = PartitionLog.open(topic, index, str(path), LogConfig(), environment, clean=True)
            self.held[topic, index] = Partition(topic, TOPIC_ID, index, 1, log, self.environment)
            self.held[topic, index].apply_state(state)
        return self.held[topic, index]

    def opened(self) -> list[Partition]:
        return list(self.held.values())


class World:
    """Broker 1 with a controller of its own, to which no other broker responds."""

    def __init__(self, directory: Path) -> None:
        self.partitions = Held(directory)
        self.asked: list[Sequence[IsrChange]] = []
        self.failures: list[Exception] = []
        self.starts_written = asyncio.Event()
        self.error = ErrorCode.NONE
        self.image = ClusterImage()
        for broker_id in (1, 2, 3):
            self.image = self.image.with_broker(Broker(broker_id, 10 + broker_id, None, {}))
        config = BrokerConfig({"node.id": "1", "replica.lag.time.max.ms": str(LAG_MS)})
        self.parts = self.make_parts(config)
        self.partitions.environment = self.parts.environment
        self.runtime = self.make_runtime(config, self.parts)
        self.publish(self.image)

    def make_parts(self, config: BrokerConfig) -> ReplicationParts:
        clock, random, invariants = SystemClock(), SeededRandom("s"), InvariantCounters()
        return replication_parts(config, self, clock, random, lambda: self.image, self.write_starts, None, invariants)

    def make_runtime(self, config: BrokerConfig, parts: ReplicationParts) -> ReplicationRuntime:
        partitions = cast(Partitions, self.partitions)
        return ReplicationRuntime(config, partitions, self, parts, StandingClock(), lambda: self.image)

    async def connect(self, broker_id: int, _client_id: str) -> Any:
        raise Disconnected(f"connection to broker {broker_id} rejected")

    async def alter_partitions(self, changes: Sequence[IsrChange]) -> Sequence[IsrChanged]:
        self.asked.append(changes)
        if self.failures:
            raise self.failures.pop(0)
        answers = []
        for change in changes:
            state = self.image.topics["t"].partitions[change.partition]
            isr = tuple(member for member, _ in change.isr)
            state = state._replace(isr=isr, partition_epoch=state.partition_epoch + 1)
            answers.append(IsrChanged(change.topic_id, change.partition, self.error, None if self.error else state))
        return answers

    async def write_starts(self, starts: Mapping[tuple[str, int], int], written: Callable[[], None]) -> None:
        await self.starts_written.wait()
        written()

    def publish(self, image: ClusterImage) -> None:
        old, self.image = self.image, image
        self.partitions.image = image
        for (topic, index), partition in list(self.partitions.held.items()):
            state = image.partition(topic, index)
            if state is not None:
                partition.apply_state(state)
        self.runtime.apply(old, image)

    def place(self, *states: PartitionState) -> None:
        self.publish(self.image.with_topic(Topic("t", TOPIC_ID, states)))


@in_a_loop
async def test_leaders_are_followed_as_images_name_them(tmp_path: Path) -> None:
    world = World(tmp_path)
    following = world.parts.followed.following
    world.place(
        PartitionState(2, 0, (1, 2), (1, 2)),
        PartitionState(3, 0, (1, 3), (1, 3)),
        PartitionState(1, 0, (1, 2), (1, 2)),
        PartitionState(2, 0, (2, 3), (2, 3)),
    )
    assert following() == {("t", 0): (2, ""), ("t", 1): (3, "")}
    world.place(
        PartitionState(3, 1, (1, 2), (1, 2), 1),
        PartitionState(-1, 1, (1, 3), (3,), 1),
        PartitionState(2, 1, (1, 2), (1, 2), 1),
        PartitionState(2, 0, (1, 2, 3), (2, 3), 1),
    )
    assert following() == {("t", 0): (3, ""), ("t", 2): (2, ""), ("t", 3): (2, "")}
    world.publish(world.image.without_topics(["t"]))
    assert following() == {}
    world.runtime.close()


@in_a_loop
async def test_no_partition_is_followed_twice_with_another_number_of_fetchers(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.place(*[PartitionState(2, 0, (1, 2), (1, 2))] * 8)
    assert len(world.runtime._fetchers) == 1
    world.runtime._config = BrokerConfig({"node.id": "1", "num.replica.fetchers": "3"})
    world.place(*[PartitionState(2, 1, (1, 2), (1, 2), 1)] * 8)
    fetchers = world.runtime._fetchers.values()
    assert len(fetchers) == 3
    assert sum(len(list(fetcher.partitions)) for fetcher in fetchers) == 8
    world.runtime.close()


@in_a_loop
async def test_logs_that_are_slow_to_open_are_opened_in_several_turns(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.runtime.clock = SlowClock()
    world.place(*[PartitionState(2, 0, (1, 2), (1, 2))] * 7)
    turns = [len(world.parts.followed.following())]
    while turns[-1] < 7:
        await asyncio.sleep(0)
        turns.append(len(world.parts.followed.following()))
    assert turns == [2, 4, 6, 7]
    world.runtime.close()


@in_a_loop
async def test_a_log_that_cannot_be_opened_yet_is_followed_later(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.partitions.refuse = 1
    world.place(PartitionState(2, 0, (1, 2), (1, 2)))
    assert world.parts.followed.following() == {}
    await until(lambda: world.parts.followed.following() == {("t", 0): (2, "")})
    world.runtime.close()


@in_a_loop
async def test_logs_in_a_failed_directory_are_not_followed(tmp_path: Path) -> None:
    world = World(tmp_path)
    following = world.parts.followed.following
    world.place(*(PartitionState(2, 0, (1, 2), (1, 2)) for _ in range(3)))
    assert following().keys() == {("t", 0), ("t", 1), ("t", 2)}
    world.partitions.offline = {("t", 0), ("t", 1)}
    for key in world.partitions.offline:
        world.partitions.held[key].log.fail("the directory is offline")
    world.runtime.directory_failed()
    assert following().keys() == {("t", 2)}
    # Nor when the controller says something else of them, whether their logs can be opened or not.
    for refuse in (0, 2):
        world.partitions.refuse = refuse
        world.place(*(PartitionState(3 - refuse // 2, 1 + refuse, (1, 2, 3), (2, 3)) for _ in range(3)))
        assert following().keys() == {("t", 2)}
        assert not world.partitions.refuse
        assert not world.runtime._unopened, "what only a restart can open is tried again and again"


@in_a_loop
async def test_replica_that_was_offline_during_its_move_is_followed_again(tmp_path: Path) -> None:
    """Without a descriptor for its new log it has none for a second, and each answer of its leader fails."""
    world = World(tmp_path)
    world.place(PartitionState(2, 0, (1, 2), (1, 2)))
    partition = world.partitions.held["t", 0]
    place = TOPIC_ID, 0
    fetcher, followed = world.parts.followed.by_place[place]
    partition.log.fail("it was moved")
    following = followed.received(FetchedReplica(TOPIC_ID, 0, 0, 0, 0, memoryview(b""), None, None), 0)
    assert following is Next.STOP
    fetcher._otherwise(place, followed, following)
    assert fetcher.problems() == {place: "it was moved"}
    environment = LogEnvironment(SystemDisk(), SystemClock())
    partition.replace_log(PartitionLog.open("t", 0, str(tmp_path / "moved"), LogConfig(), environment))
    world.runtime.replica_moved("t", 0)
    assert fetcher.problems() == {}
    assert world.parts.followed.by_place[place][1] is not followed
    world.runtime.close()
    world.runtime.replica_moved("t", 0)
    assert world.parts.followed.by_place == {}


@in_a_loop
async def test_follower_reports_deleted_records_once_that_is_durable(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.place(PartitionState(2, 0, (1, 2), (1, 2)))
    partition = world.partitions.held["t", 0]
    records = [(offset, None, b"value", ()) for offset in range(3)]
    assert partition.replicated.append(memoryview(encode_batch(records)), 0, 0)
    for _ in range(2):
        partition.replicated.advance(3, 2)
        await asyncio.sleep(0)
    followed = FollowedLog(partition)
    assert (partition.log.log_start_offset, followed.row(1)[4]) == (2, 0)
    world.starts_written.set()
    await until(lambda: followed.row(1)[4] == 2)
    world.runtime.close()


@in_a_loop
async def test_stopping_broker_follows_no_leader_whatever_the_controller_says(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.runtime.close()
    world.place(PartitionState(2, 0, (1, 2), (1, 2)), PartitionState(1, 0, (1, 2), (1,)))
    await asyncio.sleep(0)
    assert world.parts.followed.following() == {}
    assert not world.runtime._fetchers
    assert world.runtime._led._tick is None


@in_a_loop
async def test_broker_that_stops_while_it_starts_to_follow_ends_following(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.runtime.clock = SlowClock()
    world.partitions.refuse = 1
    world.place(*[PartitionState(2, 0, (1, 2), (1, 2))] * 7)
    assert world.runtime._working
    world.runtime.close()
    await asyncio.sleep(0)
    assert world.runtime._reopening is None
    assert not world.runtime._fetchers


@in_a_loop
async def test_proposals_of_one_turn_go_together_and_are_repeated_until_answered(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.failures = [Disconnected("no controller"), KafkaError(ErrorCode.NOT_CONTROLLER)]
    world.place(*(PartitionState(1, 3, (1, 2), (1,), 5) for _ in range(3)))
    partitions = [world.partitions.find("t", index) for index in range(3)]
    for partition in partitions:
        assert partition is not None
        partition.followers.fetched(2, 12, 0, 0, 1)
    await until(lambda: all(partition is not None and partition.isr == (1, 2) for partition in partitions))
    wanted = [IsrChange(TOPIC_ID, index, 3, 5, ((1, 11), (2, 12))) for index in range(3)]
    asked = [list(changes) for changes in world.asked]
    assert asked[:3] == [wanted] * 3
    # Who sleeps longer than a follower may lag is soon asked about what is silent since.
    assert wanted not in asked[3:]
    world.runtime.close()


@in_a_loop
async def test_a_fetch_of_an_earlier_life_of_a_broker_does_not_join_the_isr(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.place(PartitionState(1, 0, (1, 2), (1,)))
    partition = world.partitions.find("t", 0)
    assert partition is not None
    partition.followers.fetched(2, 9, 0, 0, 1)
    assert partition.followers.proposal is None
    partition.followers.fetched(2, 13, 0, 0, 1)
    assert partition.followers.proposal is None, "not known to be alive with that epoch"
    world.publish(world.image.with_broker(Broker(2, 13, None, {})))
    await until(lambda: partition.isr == (1, 2))
    world.runtime.close()


@in_a_loop
async def test_partitions_measure_lag_in_milliseconds(tmp_path: Path) -> None:
    """Another unit would remove followers from the ISR before or after `replica.lag.time.max.ms`."""
    world = World(tmp_path)
    clock = cast(Clock, SimpleNamespace(monotonic=lambda: 12.5))
    config, random, invariants = BrokerConfig({"node.id": "1"}), SeededRandom("s"), InvariantCounters()
    link: Any = world
    parts = replication_parts(config, link, clock, random, lambda: world.image, world.write_starts, None, invariants)
    assert parts.environment.now_ms() == 12_500
    world.runtime.close()


@in_a_loop
async def test_followers_that_are_silent_are_left_out(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.place(PartitionState(1, 0, (1, 2, 3), (1, 2, 3)))
    partition = world.partitions.find("t", 0)
    assert partition is not None
    await until(lambda: partition.isr == (1,))
    assert world.asked[0][0].isr == ((1, 11),)
    world.runtime.close()


@in_a_loop
async def test_a_rejected_change_waits_for_what_the_controller_says(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.error = ErrorCode.INVALID_UPDATE_VERSION
    world.place(PartitionState(1, 0, (1, 2), (1,)))
    partition = world.partitions.find("t", 0)
    assert partition is not None
    partition.followers.fetched(2, 12, 0, 0, 1)
    await until(lambda: partition.followers.proposal is not None and partition.followers.proposal.refused)
    partition.followers.fetched(2, 12, 0, 0, 2)
    assert len(world.asked) == 1
    world.error = ErrorCode.NONE
    world.place(PartitionState(1, 0, (1, 2), (1,), 1))
    partition.followers.fetched(2, 12, 0, 0, 3)
    await until(lambda: partition.isr == (1, 2))
    world.runtime.close()


@in_a_loop
async def test_leader_stays_suspected_until_the_controller_decides(tmp_path: Path) -> None:
    world = World(tmp_path)
    unreachable = world.runtime.unreachable
    world.place(PartitionState(2, 0, (1, 2), (1, 2)), PartitionState(3, 0, (1, 3), (1, 3)))
    world.runtime.suspect(2, gone=True)
    world.runtime.suspect(3, gone=True)
    assert unreachable == {2, 3}
    world.runtime.suspect(3, gone=False)
    assert unreachable == {2}
    world.publish(without_broker(world.image, 2))
    assert unreachable == set()
    world.runtime.suspect(3, gone=True)
    world.place(PartitionState(1, 1, (1, 2), (1, 2), 1), PartitionState(1, 1, (1, 3), (1,), 1))
    assert unreachable == set(), "no partition is fetched from it"
    world.runtime.close()


@in_a_loop
async def test_ineligible_follower_is_proposed_again_without_new_records(tmp_path: Path) -> None:
    """It may have become eligible while the controller was asked; nothing is written that would make it fetch."""
    world = World(tmp_path)
    world.error = ErrorCode.INELIGIBLE_REPLICA
    world.place(PartitionState(1, 0, (1, 2), (1,)))
    partition = world.partitions.find("t", 0)
    assert partition is not None
    partition.followers.fetched(2, 12, 0, 0, 1)
    await until(lambda: bool(world.asked) and partition.followers.proposal is None)
    world.error = ErrorCode.NONE
    await until(lambda: partition.isr == (1, 2))
    world.runtime.close()


def test_rejected_follower_is_proposed_once_until_brokers_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower that shuts down fetches with every append until it is gone."""
    monkeypatch.setattr(isr_changes, "_RECONSIDER_SECONDS", 1e6)

    @in_a_loop
    async def test(tmp_path: Path) -> None:
        world = World(tmp_path)
        world.error = ErrorCode.INELIGIBLE_REPLICA
        world.place(PartitionState(1, 0, (1, 2), (1,)))
        partition = world.partitions.find("t", 0)
        assert partition is not None
        partition.followers.fetched(2, 12, 0, 0, 1)
        await until(lambda: bool(world.asked) and partition.followers.proposal is None)
        for attempt in range(2, 5):
            partition.followers.fetched(2, 12, 0, 0, attempt)
            assert partition.followers.proposal is None
        world.error = ErrorCode.NONE
        world.publish(without_broker(world.image, 3))
        await until(lambda: partition.isr == (1, 2))
        assert len(world.asked) == 2
        world.runtime.close()

    with caplog.at_level(logging.INFO, "odradek.replication"):
        test(tmp_path)
    texts = [record.getMessage() for record in caplog.records if "rejected" in record.getMessage()]
    assert texts == ["the controller rejected other in-sync replicas of 1 partitions: INELIGIBLE_REPLICA (t-0)"]


@in_a_loop
async def test_what_was_throttled_before_a_broker_started_is_throttled(tmp_path: Path) -> None:
    """A restart during a throttled move: the stored topic is unchanged when its leader is notified."""
    world = World(tmp_path)
    state = PartitionState(-1, 0, (1, 2), (1,))
    stored = world.image.with_topic(Topic("t", TOPIC_ID, (state,), {"leader.replication.throttled.replicas": "*"}))
    world.image = stored
    config = BrokerConfig({"node.id": "1", "leader.replication.throttled.rate": "1000"})
    parts = world.make_parts(config)
    runtime, sessions = world.make_runtime(config, parts), parts.sessions
    world.publish(with_partition(stored, "t", 0, state._replace(leader=1)))
    runtime.apply(stored, world.image)
    assert sessions.throttle is not None
    runtime.close()
    world.runtime.close()


@in_a_loop
async def test_throttle_pauses_only_what_is_beyond_its_rate(tmp_path: Path) -> None:
    """While a reassignment is throttled, followers of other partitions must keep up, or they leave the ISR."""
    world = World(tmp_path)
    state = PartitionState(-1, 0, (1, 2), (1,))
    throttled = {"follower.replication.throttled.replicas": "*"}
    world.image = world.image.with_topics([Topic("t", TOPIC_ID, (state,), throttled), Topic("free", bytes(16), ())])
    config = BrokerConfig({"node.id": "1", "follower.replication.throttled.rate": "1000"})
    runtime = world.make_runtime(config, world.make_parts(config))

    def followed(topic: str) -> Any:
        return SimpleNamespace(partition=SimpleNamespace(topic=topic, index=0), lag=5, leader_end_offset=9)

    assert not runtime.is_throttled(followed("t"))
    runtime.appended(followed("t").partition, 1_000_000)
    assert runtime.is_throttled(followed("t"))
    assert not runtime.is_throttled(followed("free"))
    runtime.close()
    world.runtime.close()


@in_a_loop
async def test_partition_that_did_not_change_keeps_its_fetch(tmp_path: Path) -> None:
    """Another image names the same leader in the same epoch: the progress of the fetch is not thrown away."""
    world = World(tmp_path)
    states = [PartitionState(2, 0, (1, 2), (1, 2)), PartitionState(3, 0, (1, 3), (1, 3))]
    world.place(*states)
    before = dict(world.runtime._followed)
    world.place(*(state._replace(isr=(state.leader,), partition_epoch=1) for state in states))
    assert world.runtime._followed == before
    world.place(states[0]._replace(leader_epoch=1, partition_epoch=2), states[1]._replace(partition_epoch=2))
    assert world.runtime._followed[TOPIC_ID, 0] != before[TOPIC_ID, 0]
    assert world.runtime._followed[TOPIC_ID, 1] == before[TOPIC_ID, 1]
    world.runtime.close()


@in_a_loop
async def test_leader_learns_of_a_persisted_log_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fetch of exactly the partition whose log start is on the disk is sent again."""
    world = World(tmp_path)
    world.place(PartitionState(2, 0, (1, 2), (1, 2)), PartitionState(2, 0, (1, 2), (1, 2)))
    written: list[tuple[bytes, int]] = []
    monkeypatch.setattr(ReplicaFetcher, "start_persisted", lambda _, place: written.append(place))
    partition = world.partitions.held["t", 1]
    records = [(offset, None, b"value", ()) for offset in range(3)]
    assert partition.replicated.append(memoryview(encode_batch(records)), 0, 0)
    world.starts_written.set()
    partition.replicated.advance(3, 2)
    await until(lambda: bool(written))
    assert written == [(TOPIC_ID, 1)]
    world.runtime.close()


@in_a_loop
async def test_partition_after_an_unchanged_one_is_taken_over(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = PartitionState(2, 0, (1, 2), (1, 2))
    world.place(first, PartitionState(2, 0, (1, 2), (1, 2)))
    world.place(first, PartitionState(3, 1, (1, 2, 3), (1, 2, 3), 1))
    await until(lambda: world.parts.followed.following() == {("t", 0): (2, ""), ("t", 1): (3, "")})
    world.runtime.close()
