"""Whatever happens in whatever order: the promises of the controller's pure part, over random histories of a cluster.

A model on the side knows which replicas hold every committed record. It commits whenever the leader may, the worst case
for whoever is elected later.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.controller.batching import batches
from odradek.controller.brokers import (
    brokers_changed,
    leaders_sought,
    recovered_partitions,
    replicas_offline,
    shutting_down,
)
from odradek.controller.config_effects import with_effects
from odradek.controller.configs import ConfigChange, ResourceChanges, ResourceType, alter_configs
from odradek.controller.elections import elect_leaders
from odradek.controller.in_sync import IsrChange, alter_partitions
from odradek.controller.leader_balance import imbalanced_partitions
from odradek.controller.notices import difference, everything, notice
from odradek.controller.outcome import Decision
from odradek.controller.partition_changes import has_sole_leader, may_elect_unclean, min_in_sync
from odradek.controller.reassignments import Reassignment, alter_reassignments
from odradek.controller.topics import (
    MorePartitions,
    NewTopic,
    TopicReference,
    create_partitions,
    create_topics,
    delete_topics,
)
from odradek.metadata.changes import image_of
from odradek.metadata.image import NO_LEADER, Broker, ClusterImage, PartitionState, Topic
from odradek.metadata.nodes import BrokerNode
from odradek.metadata.stores.memory_store import MemoryStore, MemoryTree
from odradek.ports.randomness import SeededRandom
from odradek.ports.store import Create, Delete, Node, Operation
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode

CONFIG = BrokerConfig({"min.insync.replicas": "2"})
BROKERS = (1, 2, 3, 4)
Place = tuple[str, int]


def state_of(image: ClusterImage) -> dict[str, tuple[PartitionState, ...]]:
    """As the store can know it."""
    return {
        name: tuple(state._replace(offline_replicas=()) for state in topic.partitions)
        for name, topic in image.topics.items()
    }


class World:
    """A store, the controller's image, and what the replicas hold."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.session = MemoryStore(self.tree).session
        self.random = SeededRandom(1)
        self.registrations: dict[int, Broker] = {}
        self.suspect: set[int] = set()
        self.epoch = 0
        self.complete: dict[tuple[bytes, int], set[int]] = {}
        self.known_images: dict[int, ClusterImage | None] = {}
        self.known: dict[int, Known] = {}
        self.image = ClusterImage("c").with_controller(9, 1)
        for broker in BROKERS:
            self.register(broker, unclean=False)
        self.look()
        new = [
            NewTopic("three", 2, 3),
            NewTopic("one", 2, 1),
            NewTopic("risky", 1, 2, (), [("min.insync.replicas", "1"), ("unclean.leader.election.enable", "true")]),
            NewTopic("light", 1, 3, (), [("min.insync.replicas", "1")]),
        ]
        self.do(create_topics(self.image, new, CONFIG, self.random))

    # --- the world moves ---

    def register(self, broker_id: int, *, unclean: bool) -> None:
        self.epoch += 1
        if unclean:
            self.suspect.add(broker_id)
        broker = Broker(broker_id, self.epoch, None, {}, unclean=broker_id in self.suspect)
        self.registrations[broker_id] = broker
        path = BrokerNode.path(broker_id)
        if self.tree.find(path) is not None:
            self.tree.apply([Delete(path)], self.session)
        self.tree.apply([Create(path, BrokerNode.encode(broker, 0))], self.session)
        if unclean:
            for replicas in self.complete.values():
                replicas.discard(broker_id)

    def unregister(self, broker_id: int) -> None:
        if self.registrations.pop(broker_id, None) is not None:
            self.tree.apply([Delete(BrokerNode.path(broker_id))], self.session)

    def commit(self) -> None:
        """Every leader that may commits something that only its ISR has."""
        for topic in self.image.topics.values():
            minimum = min_in_sync(topic, CONFIG)
            for index, state in enumerate(topic.partitions):
                holders = self.complete.setdefault((topic.id, index), set(state.replicas))
                holders &= set(state.replicas)
                if state.leader not in self.registrations or state.leader == NO_LEADER:
                    continue
                if not holders:
                    holders.add(state.leader)
                if len(state.isr) >= min(minimum, len(state.replicas)) and set(state.isr) <= self.registrations.keys():
                    self.complete[topic.id, index] = set(state.isr)

    # --- the controller acts ---

    def look(self) -> None:
        self.do(brokers_changed(self.image, dict(self.registrations), CONFIG))
        self.clear_unclean()

    def clear_unclean(self) -> None:
        for broker_id, broker in self.registrations.items():
            if broker.unclean:
                self.suspect.discard(broker_id)
                clean = self.registrations[broker_id] = broker._replace(unclean=False)
                self.image = self.image.with_broker(self.image.brokers[broker_id]._replace(unclean=False))
                path = BrokerNode.path(broker_id)
                self.tree.apply([Delete(path), Create(path, BrokerNode.encode(clean, 0))], self.session)

    def do(self, decision: Decision[Any]) -> Sequence[Any]:
        before = self.image
        self.check_prefixes(decision)
        if decision.operations:
            self.tree.apply(list(decision.operations), self.session)
        self.image = decision.image
        assert state_of(self.loaded()) == state_of(self.image), "the store holds the image"
        check_step(before, self.image)
        self.check_safety(before)
        self.commit()
        self.notify_brokers()
        return decision.replies

    def nodes(self, tree: MemoryTree | None = None) -> dict[str, Node]:
        return {path: Node(e.data, e.version) for path, e in (tree or self.tree).below("/")}

    def loaded(self, tree: MemoryTree | None = None) -> ClusterImage:
        return image_of(self.nodes(tree)).with_controller(9, self.image.controller_epoch)

    # --- what must hold ---

    def check_safety(self, before: ClusterImage) -> None:
        for topic in self.image.topics.values():
            if may_elect_unclean(topic, CONFIG):
                continue
            for index, state in enumerate(topic.partitions):
                old = before.partition(topic.name, index)
                holders = self.complete.get((topic.id, index), set())
                elected = old is None or (state.leader, state.leader_epoch) != (old.leader, old.leader_epoch)
                if elected and state.leader != NO_LEADER and holders:
                    assert state.leader in holders, (topic.name, index, old, state, holders)

    def check_prefixes(self, decision: Decision[Any]) -> None:
        """A controller that starts after any part of the transactions finishes what is half done."""
        whole = [[*decision.operations]] if decision.operations else []
        parts: list[list[Operation]] = []
        start = 0
        for cut in (*decision.cuts, len(decision.operations)):
            parts.append(list(decision.operations[start:cut]))
            start = cut
        assert [operation for part in parts for operation in part] == list(decision.operations)
        assert list(batches(decision.operations, decision.cuts, 0)) == whole
        if len(parts) > 1:
            for count in range(1, len(parts)):
                tree = copy_of(self.tree)
                for part in parts[:count]:
                    tree.apply(part, 0)
                self.check_recovery(tree, decision)

    def check_recovery(self, tree: MemoryTree, decision: Decision[Any]) -> None:
        image = self.loaded(tree)
        assert not image.topics_in_deletion
        recovered = recovered_partitions(image, CONFIG)
        tree.apply(list(recovered.operations), 0)
        check_step(image, recovered.image)
        again = self.loaded(tree)
        assert state_of(again) == state_of(recovered.image)
        # What is left of a creation is made, as long as somebody lives to hold it.
        for topic in again.topics.values():
            wanted = decision.image.topics.get(topic.name)
            if wanted is not None:
                assert len(wanted.partitions) == len(topic.partitions)
                assert wanted.configs == topic.configs
        assert {path.rpartition("/")[2] for path, _ in tree.below("/config/topics") if path.count("/") == 3} == set(
            again.topics
        ), "no configuration without its topic"

    def check_rest(self) -> None:
        """Nothing is left to do that would be done if a new controller looked at everything now."""
        assert recovered_partitions(self.image, CONFIG).operations == ()

    # --- notices to brokers ---

    def notify_brokers(self) -> None:
        """Notify each broker now and then; one that is away starts from an empty image."""
        for broker_id in BROKERS:
            broker = self.registrations.get(broker_id)
            known = self.known.get(broker_id)
            if broker is None or known is None or known.epoch != broker.epoch:
                self.known_images[broker_id] = None
                self.known[broker_id] = Known(broker.epoch if broker is not None else -1)
            if broker is None or self.random.randrange(3) == 0:
                continue
            old = self.known_images[broker_id]
            known_images = (
                everything(self.image, broker_id) if old is None else notice(difference(old, self.image), broker_id)
            )
            self.known[broker_id].apply(known_images)
            self.known_images[broker_id] = self.image
            self.known[broker_id].check(self.image, broker_id)


class Known:
    """What a broker has made of its notices."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.partitions: dict[tuple[bytes, int], PartitionState] = {}
        self.names: dict[bytes, str] = {}
        self.held: dict[Place, tuple[bytes, PartitionState]] = {}

    def apply(self, known_images: Any) -> None:
        for stopped in known_images.stop:
            place = (stopped.topic.name, stopped.partition)
            assert place in self.held, "only what is here is stopped"
            assert self.held[place][0] == stopped.topic.id, "and of the topic that it is of"
            del self.held[place]
        for each in known_images.lead:
            place = (each.topic.name, each.partition)
            assert each.is_new is (place not in self.held and not known_images.full)
            self.held[place] = (each.topic.id, each.state)
        for topic in known_images.deleted:
            del self.names[topic.id]
            self.partitions = {key: s for key, s in self.partitions.items() if key[0] != topic.id}
        if known_images.full:
            self.partitions.clear()
            self.names.clear()
        for each in known_images.know:
            self.names[each.topic.id] = each.topic.name
            self.partitions[each.topic.id, each.partition] = each.state

    def check(self, image: ClusterImage, broker_id: int) -> None:
        assert self.names == dict(image.topic_names)
        assert self.partitions == {
            (topic.id, index): state for topic in image.topics.values() for index, state in enumerate(topic.partitions)
        }
        expected = {
            (topic.name, index): (topic.id, state)
            for topic in image.topics.values()
            for index, state in enumerate(topic.partitions)
            if broker_id in state.replicas
        }
        assert self.held.keys() == expected.keys()
        for place, (topic_id, state) in self.held.items():
            wanted_id, wanted = expected[place]
            assert topic_id == wanted_id
            assert (state.leader, state.leader_epoch, state.replicas) == (
                wanted.leader,
                wanted.leader_epoch,
                wanted.replicas,
            )


def copy_of(tree: MemoryTree) -> MemoryTree:
    copy = MemoryTree()
    for path, entry in sorted(tree.below("/")):
        if copy.find(path) is None:
            copy.apply([Create(path, entry.data)], 0)
        found = copy.find(path)
        assert found is not None
        found.data, found.version = entry.data, entry.version
    return copy


def check_step(before: ClusterImage, after: ClusterImage) -> None:
    for topic in after.topics.values():
        old = before.topics.get(topic.name)
        for index, state in enumerate(topic.partitions):
            if old is None or index >= len(old.partitions) or old.partitions[index] is not state:
                check_state(after, topic, state)
            if old is not None and old.id == topic.id and index < len(old.partitions):
                check_change(old.partitions[index], state)


def check_state(image: ClusterImage, topic: Topic, state: PartitionState) -> None:
    if state.leader_epoch < 0:
        assert state.leader == NO_LEADER
        return
    assert state.replicas
    assert len(set(state.replicas)) == len(state.replicas)
    assert state.isr, (topic.name, state)
    assert set(state.isr) <= set(state.replicas)
    assert len(set(state.isr)) == len(state.isr)
    assert state.leader == NO_LEADER or state.leader in state.isr
    assert not set(state.elr) & set(state.isr)
    assert set(state.elr) <= set(state.replicas)
    assert set(state.adding_replicas) <= set(state.replicas)
    assert set(state.removing_replicas) <= set(state.replicas)
    assert not set(state.adding_replicas) & set(state.removing_replicas)
    if len(state.isr) >= min(min_in_sync(topic, CONFIG), len(state.replicas)):
        assert state.elr == ()
    if state.leader != NO_LEADER and not has_sole_leader(state):
        assert state.leader in image.brokers
        assert image.brokers[state.leader].epoch == state.leader_broker_epoch
        if not image.brokers[state.leader].fenced and state.leader not in state.offline_replicas:
            assert all(b in image.brokers and b not in state.offline_replicas for b in state.isr)


def check_change(old: PartitionState, new: PartitionState) -> None:
    assert new.leader_epoch >= old.leader_epoch
    written = new._replace(offline_replicas=()) != old._replace(offline_replicas=())
    if old.leader_epoch < 0:
        return
    assert new.partition_epoch == old.partition_epoch + written
    if new.leader != old.leader or new.leader_broker_epoch != old.leader_broker_epoch:
        assert new.leader_epoch == old.leader_epoch + 1 or has_sole_leader(old)
    if not written:
        assert new.leader_epoch == old.leader_epoch
    if old.adding_replicas and not new.adding_replicas and set(new.replicas) - set(old.replicas) == set():
        gone = set(old.replicas) - set(new.replicas)
        ended = set(old.removing_replicas) == gone and set(old.adding_replicas) <= set(new.replicas)
        assert not ended or set(old.adding_replicas) <= set(new.isr), "a move waits for everybody it adds"


# --- histories ---

Event = Callable[[World, random.Random], None]


def place_of(world: World, chance: random.Random) -> tuple[Topic, int, PartitionState] | None:
    if not world.image.topics:
        return None
    topic = world.image.topics[chance.choice(sorted(world.image.topics))]
    index = chance.randint(0, len(topic.partitions) - 1)
    return topic, index, topic.partitions[index]


def dies(world: World, chance: random.Random) -> None:
    world.unregister(chance.choice(BROKERS))
    world.look()


def starts(world: World, chance: random.Random) -> None:
    away = [b for b in BROKERS if b not in world.registrations]
    if away:
        world.register(chance.choice(away), unclean=chance.random() < 0.5)
        world.look()


def bounces(world: World, chance: random.Random) -> None:
    world.register(chance.choice(BROKERS), unclean=chance.random() < 0.5)
    world.look()


def interregnum(world: World, chance: random.Random) -> None:
    """Brokers come and go while there is no controller; the next one finds what the store has."""
    for broker in chance.choices(BROKERS, k=chance.randint(0, 4)):
        if chance.random() < 0.5:
            world.unregister(broker)
        else:
            world.register(broker, unclean=chance.random() < 0.5)
    before = world.image
    world.image = world.loaded().with_controller(9, before.controller_epoch + 1)
    world.do(recovered_partitions(world.image, CONFIG))
    world.clear_unclean()


def shuts_down(world: World, chance: random.Random) -> None:
    broker = world.image.brokers.get(chance.choice(BROKERS))
    if broker is None:
        return
    for topic, index in world.do(shutting_down(world.image, broker.id, broker.epoch, CONFIG)):
        state = world.image.topics[topic].partitions[index]
        assert state.leader == broker.id
        assert len(state.replicas) > 1


def isr_changes(world: World, chance: random.Random) -> None:
    found = place_of(world, chance)
    if found is None or found[2].leader not in world.registrations:
        return
    topic, index, state = found
    leader = world.image.brokers[state.leader]
    others = [b for b in state.replicas if b != leader.id]
    chosen = chance.sample(others, chance.randint(0, len(others)))
    isr = tuple((b, world.image.brokers[b].epoch if b in world.image.brokers else -1) for b in (leader.id, *chosen))
    epoch = state.partition_epoch - chance.choice((0, 0, 0, 1))
    change = IsrChange(topic.id, index, state.leader_epoch, epoch, isr)
    # Whom a leader wants in its ISR has caught up; whether anybody will know is another matter.
    known = set(world.complete[topic.id, index])
    world.complete[topic.id, index] |= set(chosen) & world.registrations.keys()
    (reply,) = world.do(alter_partitions(world.image, leader.id, leader.epoch, [change], CONFIG))
    after = world.image.topics[topic.name].partitions[index]
    if reply.error is ErrorCode.NONE:
        assert reply.state == after
        assert set(after.isr) <= {leader.id, *chosen}
    elif reply.error is not ErrorCode.NEW_LEADER_ELECTED:
        assert after == state
        world.complete[topic.id, index] &= known | set(after.isr)


def moves(world: World, chance: random.Random) -> None:
    found = place_of(world, chance)
    if found is None:
        return
    topic, index, state = found
    target: tuple[int, ...] | None = tuple(chance.sample(BROKERS, chance.randint(1, 3)))
    if chance.randint(0, 3) == 0:
        target = None
    (reply,) = world.do(alter_reassignments(world.image, [Reassignment(topic.name, index, target)], CONFIG))
    after = world.image.topics[topic.name].partitions[index]
    if reply.failure is not None:
        assert after == state
    elif not after.adding_replicas and not after.removing_replicas and target is not None:
        assert after.replicas == target, "a move ends with exactly what was asked for"


def elects(world: World, chance: random.Random) -> None:
    before = {
        (name, index): state
        for name, topic in world.image.topics.items()
        for index, state in enumerate(topic.partitions)
    }
    for reply in world.do(elect_leaders(world.image, 0, None, CONFIG)):
        state = world.image.topics[reply.topic].partitions[reply.partition]
        if reply.failure is None:
            assert state.leader == state.replicas[0]
        else:
            assert state == before[reply.topic, reply.partition]


def balances(world: World, chance: random.Random) -> None:
    partitions = imbalanced_partitions(world.image, chance.choice((0, 50)))
    assert all(reply.failure is None for reply in world.do(elect_leaders(world.image, 0, partitions, CONFIG)))


def directory_fails(world: World, chance: random.Random) -> None:
    found = place_of(world, chance)
    if found is None:
        return
    topic, index, state = found
    broker = chance.choice(state.replicas)
    if broker in world.image.brokers:
        world.do(replicas_offline(world.image, broker, [TopicPartition(topic.name, index)], CONFIG))


def minimum_changes(world: World, chance: random.Random) -> None:
    found = place_of(world, chance)
    if found is None:
        return
    value = chance.choice(("1", "2", "3"))
    change = ResourceChanges(ResourceType.TOPIC, found[0].name, [ConfigChange("min.insync.replicas", 0, value)])
    # A leader that is deposed and does not know it yet may go by the new minimum, too.
    for index, state in enumerate(found[0].partitions):
        if len(state.isr) >= min(int(value), len(state.replicas)):
            world.complete[found[0].id, index] &= set(state.isr)
    world.do(with_effects(world.image, alter_configs(world.image, [change], CONFIG), CONFIG))


def topics_change(world: World, chance: random.Random) -> None:
    kind = chance.randint(0, 2)
    if kind == 0:
        names = chance.sample(("three", "one", "a", "b"), chance.randint(0, 3))
        copies = chance.randint(1, 3)
        new = [NewTopic(n, 2, copies, (), [("retention.ms", "9")]) for n in names]
        world.do(create_topics(world.image, new, CONFIG, world.random))
    elif kind == 1 and world.image.topics:
        name = chance.choice(sorted(world.image.topics))
        world.do(delete_topics(world.image, [TopicReference(name)], CONFIG))
        assert not [path for path in world.nodes() if f"/{name}/" in path or path.endswith(f"/{name}")]
    elif world.image.topics:
        name = chance.choice(sorted(world.image.topics))
        more = MorePartitions(name, len(world.image.topics[name].partitions) + 1)
        world.do(create_partitions(world.image, [more], world.random))


EVENTS: Mapping[str, Event] = {
    "dies": dies,
    "starts": starts,
    "starts again": starts,
    "bounces": bounces,
    "interregnum": interregnum,
    "shuts down": shuts_down,
    "isr": isr_changes,
    "isr again": isr_changes,
    "moves": moves,
    "elects": elects,
    "balances": balances,
    "directory": directory_fails,
    "minimum": minimum_changes,
    "topics": topics_change,
}


def play(chance: random.Random, steps: int) -> None:
    world = World()
    for _ in range(steps):
        EVENTS[chance.choice(sorted(EVENTS))](world, chance)
        world.check_rest()
        world.do(leaders_sought(world.image, CONFIG))


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 30))
def test_any_history(chance: random.Random, steps: int) -> None:
    play(chance, steps)
