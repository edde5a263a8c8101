"""When a broker of a KRaft cluster begins to lead what another broker led before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.cluster.peers import Purpose
from odradek.broker.kraft.former_leaders import FormerLeaders
from odradek.client.errors import Disconnected
from odradek.metadata.image import Broker, ClusterImage, PartitionState, Topic
from odradek.replication.leadership import Leadership
from odradek.wire.errors import ErrorCode as E
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseEpochEndOffset,
    OffsetForLeaderEpochResponseTopic,
)

SELF = 3
BROKERS = {i: Broker(i, 10 + i, None, {}) for i in (1, 2, SELF)}
SESSION = 9.0


def state(leader: int, epoch: int, replicas: tuple[int, ...] = (1, 2, SELF)) -> PartitionState:
    return PartitionState(leader, epoch, replicas, replicas)


def image(*states: PartitionState, fenced: tuple[int, ...] = ()) -> ClusterImage:
    """One topic; some brokers are fenced."""
    brokers = {i: broker._replace(fenced=i in fenced) for i, broker in BROKERS.items()}
    return ClusterImage("c").with_brokers(brokers).with_topics([Topic("t", b"t" * 16, states)])


def only_self(whole: ClusterImage) -> ClusterImage:
    """The other brokers are not registered."""
    return whole.with_brokers({SELF: BROKERS[SELF]})


class World:
    """The former leaders, as their successor reaches them."""

    node_id = SELF

    def __init__(self) -> None:
        self.now = 100.0
        self.leadership = Leadership(SELF, lambda: self.now)
        self.answers: dict[int, E | Exception] = {}
        self.silent: set[int] = set()
        self.asked: list[tuple[int, list[tuple[int, int]]]] = []
        config: Any = SimpleNamespace(number={"broker.session.timeout.ms": SESSION * 1000}.__getitem__)
        peers: Any = self
        self.taken_in: list[int] = []
        """The partitions whose followers may join the ISR."""
        self.former = FormerLeaders(config, self.leadership, peers, lambda: self.now, self._opened)

    def _opened(self) -> Any:
        for index in range(4):
            followers = SimpleNamespace(take_in=partial(self.taken_in.append, index))
            yield SimpleNamespace(topic="t", index=index, followers=followers)

    async def request(
        self, purpose: Purpose, broker_id: int, request: OffsetForLeaderEpochRequest, _kind: type, *_: object
    ) -> OffsetForLeaderEpochResponse:
        assert purpose is Purpose.FORMER_LEADERS
        assert request.replica_id == SELF
        ((name, partitions),) = [(topic.topic, topic.partitions) for topic in request.topics]
        self.asked.append((broker_id, [(each.partition, each.current_leader_epoch) for each in partitions]))
        if broker_id in self.silent:
            await asyncio.Event().wait()
        answer = self.answers[broker_id]
        if isinstance(answer, Exception):
            raise answer
        rows = [OffsetForLeaderEpochResponseEpochEndOffset(answer, each.partition) for each in partitions]
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderEpochResponseTopic(name, rows)])

    def waits(self, *indexes: int) -> bool:
        return set(self.leadership.pending) == {("t", index) for index in indexes}

    async def until_asked(self, times: int) -> None:
        while len(self.asked) < times:
            await asyncio.sleep(0)

    async def until_begun(self, *others: int) -> None:
        """Nothing waits, or only the partitions of these numbers."""
        while not self.waits(*others):
            await asyncio.sleep(0)


def run(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        world = World()
        async with asyncio.timeout(20):
            await scenario(world)
        world.former.close()

    asyncio.run(main())


def test_leader_begins_once_the_former_one_knows_of_it() -> None:
    """It was deposed by a preferred election, is not fenced, and has not applied the image yet."""

    async def scenario(world: World) -> None:
        world.answers[1] = E.UNKNOWN_LEADER_EPOCH
        world.former.follow(image(state(1, 4)), image(state(SELF, 5)))
        await world.until_asked(3)
        assert world.waits(0)
        assert world.asked[0] == (1, [(0, 5)])
        world.answers[1] = E.NOT_LEADER_OR_FOLLOWER
        await world.until_begun()

    run(scenario)


def test_leader_begins_when_the_former_one_has_lost_its_log_directory() -> None:
    async def scenario(world: World) -> None:
        world.answers[1] = E.KAFKA_STORAGE_ERROR
        world.former.follow(image(state(1, 4)), image(state(SELF, 5)))
        await world.until_begun()

    run(scenario)


@pytest.mark.parametrize("answer", [E.FENCED_LEADER_EPOCH, E.NONE])
def test_leader_waits_while_the_former_one_has_a_deleted_topic(answer: E) -> None:
    """It leads that in a later epoch, or in the same one. The next image lets it lead the new topic in epoch 0."""

    async def scenario(world: World) -> None:
        world.answers[1] = answer
        world.former.follow(image(state(1, 0)), image(state(SELF, 1)))
        for _ in range(3):
            world.now += SESSION - 0.1
            await world.until_asked(len(world.asked) + 2)
        assert world.waits(0)
        world.answers[1] = E.NOT_LEADER_OR_FOLLOWER
        await world.until_begun()

    run(scenario)


def test_each_former_leader_is_asked_once_for_all_partitions_of_an_image() -> None:
    async def scenario(world: World) -> None:
        world.answers = {1: E.NOT_LEADER_OR_FOLLOWER, 2: E.NOT_LEADER_OR_FOLLOWER}
        old = image(state(1, 4), state(2, 7), state(1, 0), state(2, 3))
        world.former.follow(old, image(state(SELF, 5), state(SELF, 8), state(SELF, 1), state(2, 3)))
        await world.until_begun()
        assert sorted(world.asked) == [(1, [(0, 5), (2, 1)]), (2, [(1, 8)])]

    run(scenario)


def test_silent_former_leader_does_not_delay_partitions_of_others() -> None:
    async def scenario(world: World) -> None:
        world.silent = {1}
        world.answers = {2: E.NOT_LEADER_OR_FOLLOWER}
        world.former.follow(image(state(1, 4), state(2, 7)), image(state(SELF, 5), state(SELF, 8)))
        await world.until_begun(0)
        assert world.taken_in == [1]

    run(scenario)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (image(state(1, 4)), image(state(SELF, 5), fenced=(1,))),
        (only_self(image(state(1, 4))), only_self(image(state(SELF, 5)))),
        (image(state(SELF, 4)), image(state(SELF, 5))),
        (ClusterImage("c"), image(state(SELF, 0))),
        (ClusterImage("c"), image(state(SELF, 8, (SELF,)))),
    ],
)
def test_leader_begins_at_once_where_no_other_broker_acts(old: ClusterImage, new: ClusterImage) -> None:
    async def scenario(world: World) -> None:
        world.former.follow(old, new)
        assert world.waits()
        assert not world.asked

    run(scenario)


@pytest.mark.parametrize(
    ("old", "asked"),
    [
        (image(state(1, 3)), {1, 2}),
        (image(state(-1, 4)), {1, 2}),
        (image(state(2, 3, (2, SELF))), {1, 2}),
        (ClusterImage("c"), {1, 2}),
    ],
)
def test_all_replicas_are_asked_where_the_former_leader_is_unknown(old: ClusterImage, asked: set[int]) -> None:
    """The image before is an older one: another replica may have been elected, and deposed, since."""

    async def scenario(world: World) -> None:
        world.answers = {1: E.NOT_LEADER_OR_FOLLOWER, 2: E.UNKNOWN_LEADER_EPOCH}
        world.former.follow(old, image(state(SELF, 5)))
        await world.until_asked(4)
        assert {broker for broker, _ in world.asked} == asked
        assert world.waits(0)
        world.answers[2] = E.NOT_LEADER_OR_FOLLOWER
        await world.until_begun()

    run(scenario)


def test_leader_begins_when_the_former_one_is_fenced() -> None:
    async def scenario(world: World) -> None:
        world.silent = {1}
        new = image(state(SELF, 5))
        world.former.follow(image(state(1, 4)), new)
        await world.until_asked(1)
        world.former.follow(new, image(state(SELF, 5), fenced=(2,)))
        await asyncio.sleep(0.05)
        assert world.waits(0)
        world.former.follow(new, image(state(SELF, 5), fenced=(1,)))
        await world.until_begun()

    run(scenario)


@pytest.mark.parametrize("answer", [Disconnected("cut off"), E.UNKNOWN_TOPIC_OR_PARTITION])
def test_leader_begins_after_a_session_without_proof(answer: E | Exception, caplog: pytest.LogCaptureFixture) -> None:
    """The former leader has got no lease since it was deposed. One that lacks the topic does not know of it yet."""

    async def scenario(world: World) -> None:
        world.answers[1] = answer
        world.former.follow(image(state(1, 4)), image(state(SELF, 5)))
        await world.until_asked(1)
        world.now += SESSION - 0.1
        await world.until_asked(3)
        assert world.waits(0)
        world.now += 0.2
        await world.until_begun()

    run(scenario)
    assert "broker 1 has not answered for 9 s" in caplog.text


def test_leader_waits_while_the_former_one_answers_that_it_does_not_know() -> None:
    async def scenario(world: World) -> None:
        world.answers[1] = E.UNKNOWN_LEADER_EPOCH
        world.former.follow(image(state(1, 4)), image(state(SELF, 5)))
        for _ in range(3):
            world.now += SESSION - 0.1
            await world.until_asked(len(world.asked) + 2)
        assert world.waits(0)

    run(scenario)


def test_partition_that_is_lost_is_asked_about_no_longer() -> None:
    async def scenario(world: World) -> None:
        world.answers[1] = E.UNKNOWN_LEADER_EPOCH
        led = image(state(SELF, 5), state(SELF, 8))
        world.former.follow(image(state(1, 4), state(1, 7)), led)
        await world.until_asked(1)
        world.former.follow(led, image(state(2, 6), state(SELF, 8)))
        await world.until_asked(4)
        assert world.asked[-1] == (1, [(1, 8)])
        assert world.waits(1)

    run(scenario)


def test_leader_waits_for_the_one_before_a_leader_that_is_fenced() -> None:
    """Broker 2 was elected, and never learned of it: that it is fenced says nothing of broker 1."""

    async def scenario(world: World) -> None:
        world.answers[1] = E.UNKNOWN_LEADER_EPOCH
        between = image(state(2, 5))
        world.former.follow(image(state(1, 4)), between)
        world.former.follow(between, image(state(SELF, 6), fenced=(2,)))
        await world.until_asked(3)
        assert world.waits(0)
        assert world.asked[0] == (1, [(0, 6)])
        world.answers[1] = E.NOT_LEADER_OR_FOLLOWER
        await world.until_begun()

    run(scenario)


def test_leader_of_the_next_epoch_waits_for_whom_it_waited_before() -> None:
    """A reassignment that removes a replica changes the epoch, and not the leader."""

    async def scenario(world: World) -> None:
        world.answers[1] = E.UNKNOWN_LEADER_EPOCH
        led = image(state(SELF, 5))
        world.former.follow(image(state(1, 4)), led)
        await world.until_asked(1)
        world.former.follow(led, image(state(SELF, 6, (2, SELF))))
        await world.until_asked(4)
        assert world.waits(0)
        assert world.asked[-1] == (1, [(0, 6)])

    run(scenario)


def test_leader_that_has_begun_acts_at_once_in_its_next_epoch() -> None:
    async def scenario(world: World) -> None:
        world.answers[1] = E.NOT_LEADER_OR_FOLLOWER
        led = image(state(SELF, 5))
        world.former.follow(image(state(1, 4)), led)
        await world.until_begun()
        world.former.follow(led, image(state(SELF, 6, (2, SELF))))
        assert world.waits()

    run(scenario)


def test_answer_to_an_earlier_election_does_not_end_a_later_leader() -> None:
    """Broker 1 knew of its successor, and led again since."""

    async def scenario(world: World) -> None:
        world.answers[1] = E.UNKNOWN_LEADER_EPOCH
        images = [image(state(leader, epoch)) for epoch, leader in enumerate((1, SELF, 1, 2), 4)]
        world.former.follow(images[0], images[1])
        await world.until_asked(1)
        world.former.follow(images[1], images[2])
        world.former.follow(images[2], images[3])
        world.answers[1] = E.NOT_LEADER_OR_FOLLOWER
        await world.until_asked(2)
        await asyncio.sleep(0.05)
        world.answers[1] = E.UNKNOWN_LEADER_EPOCH
        world.former.follow(images[3], image(state(SELF, 8), fenced=(2,)))
        await world.until_asked(4)
        assert world.waits(0)

    run(scenario)


def test_leader_waits_for_the_session_of_one_that_is_unregistered() -> None:
    """Its process runs, and has its lease; it applies no image without its registration."""

    async def scenario(world: World) -> None:
        world.answers[1] = Disconnected("broker 1 is not there")
        world.former.follow(image(state(1, 4)), only_self(image(state(SELF, 5))))
        await world.until_asked(3)
        assert world.waits(0)
        world.now += SESSION
        await world.until_begun()

    run(scenario)


def test_answer_to_an_earlier_election_begins_no_later_one() -> None:
    async def scenario(world: World) -> None:
        world.answers = {1: E.UNKNOWN_LEADER_EPOCH, 2: E.UNKNOWN_LEADER_EPOCH}
        first, between, last = image(state(SELF, 5)), image(state(2, 6)), image(state(SELF, 7))
        world.former.follow(image(state(1, 4)), first)
        await world.until_asked(1)
        world.former.follow(first, between)
        world.former.follow(between, last)
        world.answers[1] = E.NOT_LEADER_OR_FOLLOWER
        await world.until_asked(6)
        assert world.waits(0)
        world.answers[2] = E.NOT_LEADER_OR_FOLLOWER
        await world.until_begun()

    run(scenario)


def test_broker_that_stops_begins_nothing() -> None:
    async def scenario(world: World) -> None:
        world.silent = {1}
        world.former.follow(image(state(1, 4)), image(state(SELF, 5)))
        await world.until_asked(1)
        world.former.close()
        await asyncio.sleep(0.05)
        assert world.waits(0)

    run(scenario)
