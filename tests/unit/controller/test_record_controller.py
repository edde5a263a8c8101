"""Histories of a controller on records: its decisions need nothing that records do not carry.

Two controllers see the same events. One keeps the images of its decisions, disguised with values that no record
carries. The other one decides, each time, on an image that was replayed from the records: from the whole log, or from
the records of a snapshot. Both must write the same records and give the same replies.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.controller.configs import ConfigChange, ResourceChanges, ResourceType
from odradek.controller.features import FeatureUpdate, update_features
from odradek.controller.in_sync import IsrChange, IsrChanged
from odradek.controller.partition_changes import has_directory, has_sole_leader, may_elect_unclean
from odradek.controller.reassignments import Reassignment
from odradek.controller.record_controller import RecordController, Recorded
from odradek.controller.registrations import ReplicaDirectory
from odradek.controller.topics import CreatedTopic, MorePartitions, NewTopic, TopicReference
from odradek.metadata.directories import LOST
from odradek.metadata.image import NO_LEADER, Broker, ClusterImage, PartitionState, Topic
from odradek.metadata.kraft.difference import difference
from odradek.metadata.kraft.partition_records import carried
from odradek.metadata.kraft.replay import replay
from odradek.ports.randomness import SeededRandom
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.cluster_metadata import ProducerIdsRecord
from tests.unit.metadata.kraft.contents import content, through_bytes

CONFIG = BrokerConfig({"min.insync.replicas": "2"})
BROKERS = (1, 2, 3, 4)
FEATURES = {"metadata.version": (7, 30), "group.version": (0, 1)}
LEVELS = (17, 22, 23, 29, 30)
"""The oldest metadata.version of a controller, the last one without eligible leader replicas, the first one with, …"""
Event = Callable[[RecordController], Recorded[Any]]


def log_dirs(broker_id: int) -> tuple[bytes, ...]:
    """Every second broker has two directories."""
    return tuple(bytes([broker_id]) * 15 + bytes([n]) for n in range(1 + broker_id % 2))


def disguised(image: ClusterImage, chance: random.Random) -> ClusterImage:
    """The image with other values for all that no record carries of it, and with brokers in another order."""

    def state(known: PartitionState) -> PartitionState:
        return known._replace(controller_epoch=chance.randrange(9), leader_broker_epoch=chance.randrange(-1, 99))

    topics = [t._replace(partitions=tuple(map(state, t.partitions))) for t in image.topics.values()]
    image = image.with_brokers({i: image.brokers[i] for i in sorted(image.brokers, reverse=True)})
    return image.with_topics(topics).with_controller(9, chance.randrange(9))


def plain(replies: Sequence[Any]) -> list[str]:
    """Replies as text, without an order that only the order of topics in the image gives."""
    return sorted(repr(_plain(reply)) for reply in replies)


def _plain(reply: Any) -> Any:
    """The reply without what no record carries."""
    if isinstance(reply, IsrChanged) and reply.state is not None:
        return reply._replace(state=carried(reply.state))
    if isinstance(reply, CreatedTopic) and reply.topic is not None:
        states = tuple(map(carried, reply.topic.partitions))
        return reply._replace(topic=reply.topic._replace(partitions=states))
    return reply


class World:
    """The log of records, and the image of the controller that wrote it."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.level = chance.choice(LEVELS)
        self.image = ClusterImage().with_features({"metadata.version": self.level}, 0)
        self.log: list[Any] = difference(ClusterImage(), self.image)
        self.epoch = 0
        for broker_id in BROKERS:
            self.register(broker_id, clean=True)
        self.do(lambda controller: controller.fence_brokers((), BROKERS))
        new = [
            NewTopic("three", 2, 3),
            NewTopic("one", 2, 1),
            NewTopic("risky", 1, 2, (), [("min.insync.replicas", "1"), ("unclean.leader.election.enable", "true")]),
        ]
        self.do(lambda controller: controller.create_topics(new))

    def register(self, broker_id: int, *, clean: bool) -> None:
        self.epoch += 1
        known = self.image.brokers.get(broker_id)
        incarnation = self.epoch.to_bytes(16, "big")
        broker = Broker(
            broker_id,
            self.epoch,
            f"rack-{broker_id % 2}",
            {},
            incarnation_id=incarnation,
            features=FEATURES,
            log_dirs=log_dirs(broker_id),
        )
        previous = known.epoch if known is not None and clean else -1
        self.do(lambda controller: controller.register_broker(broker, previous))

    def do(self, event: Event, may_lead: Collection[int] = ()) -> None:
        """Let an event take effect, and compare the controllers.

        `may_lead`: replicas outside ISR and ELR that the event allows to be elected.
        """
        seed = self.chance.randrange(1 << 30)
        from_log = replay(through_bytes(self.log, self.level), ClusterImage())
        from_snapshot = replay(through_bytes(difference(ClusterImage(), from_log), self.level), ClusterImage())
        outcomes = []
        for image in (disguised(self.image, self.chance), from_log, from_snapshot):
            controller = RecordController(image, CONFIG, SeededRandom(seed))
            try:
                found = event(controller)
            except KafkaError as error:
                assert controller.image is image
                outcomes.append((content(image), [f"{error.code} {error.message}"]))
                continue
            assert content(replay(through_bytes(list(found.records), self.level), image)) == content(found.image)
            assert content(controller.image) == content(found.image)
            outcomes.append((content(found.image), plain(found.replies)))
        assert outcomes[0] == outcomes[1] == outcomes[2]
        controller = RecordController(self.image, CONFIG, SeededRandom(seed))
        try:
            found = event(controller)
        except KafkaError:
            return
        self.log += found.records
        check_step(self.image, found.image, may_lead)
        self.image = found.image
        assert not RecordController(found.image, CONFIG, SeededRandom(1)).begin().records, "a new leader finds no work"

    def place(self) -> tuple[Topic, int, PartitionState] | None:
        """A partition by chance."""
        if not self.image.topics:
            return None
        topic = self.image.topics[self.chance.choice(sorted(self.image.topics))]
        index = self.chance.randrange(len(topic.partitions))
        return topic, index, topic.partitions[index]


def check_step(before: ClusterImage, after: ClusterImage, may_lead: Collection[int]) -> None:
    for name, topic in after.topics.items():
        for index, state in enumerate(topic.partitions):
            assert state.isr
            assert set(state.isr) <= set(state.replicas)
            assert len(state.directories) == len(state.replicas)
            old = before.partition(name, index)
            if old is None or before.topics[name].id != topic.id:
                continue
            assert state.partition_epoch >= old.partition_epoch
            assert state.leader_epoch >= old.leader_epoch
            if state.leader != old.leader:
                assert state.leader_epoch > old.leader_epoch
            if state.leader == NO_LEADER or has_sole_leader(state):
                continue
            leader = after.brokers[state.leader]
            assert not leader.fenced
            assert has_directory(state, leader)
            if state.leader != old.leader:
                assert leader.is_active
                complete = {*old.isr, *old.elr, *may_lead}
                assert state.leader in complete or may_elect_unclean(topic, CONFIG)


# --- events ---


def registers(world: World) -> None:
    world.register(world.chance.choice(BROKERS), clean=world.chance.random() < 0.5)


def amends(world: World) -> None:
    broker = world.image.brokers.get(world.chance.choice(BROKERS))
    if broker is not None:
        amended = broker._replace(rack="another")
        world.do(lambda controller: controller.register_broker(amended, -1))


def fences(world: World) -> None:
    ids = world.chance.sample(BROKERS, world.chance.randint(1, 3))
    world.do(lambda controller: controller.fence_brokers(ids))


def releases(world: World) -> None:
    ids = world.chance.sample(BROKERS, world.chance.randint(1, 4))
    world.do(lambda controller: controller.fence_brokers((), ids))


def unregisters(world: World) -> None:
    broker = world.chance.choice(BROKERS)
    world.do(lambda controller: controller.unregister_broker(broker))


def shuts_down(world: World) -> None:
    broker = world.chance.choice(BROKERS)
    known = world.image.brokers.get(broker)
    epoch = -1 if known is None else known.epoch
    world.do(lambda controller: controller.shut_down_broker(broker, epoch))


def directory_fails(world: World) -> None:
    broker = world.chance.choice(BROKERS)
    failed = world.chance.sample(log_dirs(broker), 1)
    world.do(lambda controller: controller.fail_directories(broker, failed))


def directory_is_assigned(world: World) -> None:
    found = world.place()
    broker = world.chance.choice(BROKERS)
    known = world.image.brokers.get(broker)
    if found is None or known is None:
        return
    directory = world.chance.choice((*log_dirs(broker), LOST))
    assigned = [ReplicaDirectory(found[0].id, found[1], directory)]
    world.do(lambda controller: controller.assign_directories(broker, known.epoch, assigned))


def isr_changes(world: World) -> None:
    found = world.place()
    if found is None or found[2].leader not in world.image.brokers:
        return
    topic, index, state = found
    leader = world.image.brokers[state.leader]
    others = [b for b in state.replicas if b != leader.id]
    members = (leader.id, *world.chance.sample(others, world.chance.randint(0, len(others))))
    isr = tuple((b, world.image.brokers[b].epoch if b in world.image.brokers else -1) for b in members)
    change = IsrChange(topic.id, index, state.leader_epoch, state.partition_epoch, isr)
    # A member that the leader adds has caught up, and takes over at once from a leader that shuts down.
    world.do(lambda controller: controller.alter_partitions(leader.id, leader.epoch, [change]), members)


def moves(world: World) -> None:
    found = world.place()
    if found is None:
        return
    target = tuple(world.chance.sample(BROKERS, world.chance.randint(1, 3)))
    move = Reassignment(found[0].name, found[1], world.chance.choice((target, target, None)))
    world.do(lambda controller: controller.alter_reassignments([move]))


def elects(world: World) -> None:
    kind = world.chance.choice((0, 1))
    world.do(lambda controller: controller.elect_leaders(kind, None), BROKERS if kind == 1 else ())


def balances(world: World) -> None:
    world.do(lambda controller: controller.balance_leaders(10))


def settings_change(world: World) -> None:
    name = world.chance.choice(("three", "one", "risky"))
    setting, value = world.chance.choice(
        (("min.insync.replicas", "1"), ("min.insync.replicas", "3"), ("unclean.leader.election.enable", "true"))
    )
    change = ResourceChanges(ResourceType.TOPIC, name, [ConfigChange(setting, 0, value)])
    world.do(lambda controller: controller.alter_configs([change]))


def topics_change(world: World) -> None:
    kind = world.chance.randint(0, 2)
    name = world.chance.choice(("three", "one", "a"))
    if kind == 0:
        new = [NewTopic(name, 2, world.chance.randint(1, 3), (), [("retention.ms", "9")])]
        world.do(lambda controller: controller.create_topics(new))
    elif kind == 1:
        world.do(lambda controller: controller.delete_topics([TopicReference(name)]))
    elif name in world.image.topics:
        more = MorePartitions(name, len(world.image.topics[name].partitions) + 1)
        world.do(lambda controller: controller.create_partitions([more]))


def feature_changes(world: World) -> None:
    update = FeatureUpdate("group.version", world.chance.randint(0, 1), world.chance.choice((1, 2)))
    world.do(lambda controller: controller.step(lambda image: update_features(image, [update])))


def producer_ids(world: World) -> None:
    broker = world.image.brokers.get(world.chance.choice(BROKERS))
    if broker is not None:
        world.do(lambda controller: controller.allocate_producer_ids(broker.id, broker.epoch))


EVENTS: Mapping[str, Callable[[World], None]] = {
    "registers": registers,
    "amends": amends,
    "fences": fences,
    "releases": releases,
    "releases again": releases,
    "unregisters": unregisters,
    "shuts down": shuts_down,
    "directory fails": directory_fails,
    "directory is assigned": directory_is_assigned,
    "isr": isr_changes,
    "isr again": isr_changes,
    "moves": moves,
    "elects": elects,
    "balances": balances,
    "settings": settings_change,
    "topics": topics_change,
    "features": feature_changes,
    "producer ids": producer_ids,
}


@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 15))
def test_decisions_on_replayed_images_are_the_same(chance: random.Random, steps: int) -> None:
    world = World(chance)
    for _ in range(steps):
        EVENTS[chance.choice(sorted(EVENTS))](world)


def test_producer_ids_are_allocated_once() -> None:
    image = ClusterImage().with_broker(Broker(1, 5, None, {}))
    controller = RecordController(image, CONFIG, SeededRandom(1))
    blocks = [list(controller.allocate_producer_ids(1, 5).replies) for _ in range(2)]
    assert blocks == [list(range(1000)), list(range(1000, 2000))]
    with pytest.raises(KafkaError) as raised:
        controller.allocate_producer_ids(1, 4)
    assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_record_of_producer_ids_names_the_broker_and_its_epoch() -> None:
    """As Apache's controller writes it: its log shows which registration has which ids."""
    image = ClusterImage().with_broker(Broker(1, 5, None, {}))
    recorded = RecordController(image, CONFIG, SeededRandom(1)).allocate_producer_ids(1, 5)
    assert recorded.records == [ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=1000)]
    assert replay(recorded.records, image).next_producer_id == recorded.image.next_producer_id == 1000
