"""The next state of a partition: one rule for every event, and the operations that write many of them.

Whatever happens (a broker dies or comes back, followers fall behind, a move is asked for), the caller says what the
partition shall become and `next_state` completes it: moves that are done end, eligible leader replicas are kept, a
leader is chosen, epochs grow. Source: Kafka's `PartitionChangeBuilder`, `PartitionLeaderElectionAlgorithms`, KIP-966.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeVar

from odradek.controller.aliveness import BY_SESSIONS, Aliveness
from odradek.controller.outcome import Decision
from odradek.metadata.configs.catalog import BROKER
from odradek.metadata.configs.definitions import InvalidConfig, Value
from odradek.metadata.directories import default_directory, directories_after_move, is_online
from odradek.metadata.features import is_on_records, metadata_level
from odradek.metadata.image import DEFAULT_BROKER, NO_BROKER, NO_LEADER, Broker, ClusterImage, PartitionState, Topic
from odradek.metadata.metadata_versions import ELR_SINCE
from odradek.metadata.nodes import PartitionNode, TopicNode
from odradek.ports.store import Create, Operation, Put
from odradek.records.topic_partition import PartitionKey

T = TypeVar("T")

_MIN_IN_SYNC: Final = "min.insync.replicas"
_MOVES_AT_ONCE = 1000

NEVER_LED = -1
"""The leader epoch of a partition whose state was never written."""


class Election(Enum):
    """Whom a partition may be led by. ONLINE: who is in the ISR, else who is eligible, the present leader first."""

    ONLINE = 0
    PREFERRED = 1
    UNCLEAN = 2


class Defaults(Protocol):
    """What holds for topics that have not set it."""

    def number(self, name: str) -> int:
        """The value of a numeric configuration."""
        ...

    def flag(self, name: str) -> bool:
        """The value of a boolean configuration."""
        ...


class DefaultsOf(NamedTuple):
    """Defaults with what an image sets for all brokers: the configuration of a controller on records follows later."""

    image: ClusterImage
    rest: Defaults

    def number(self, name: str) -> int:
        """See `Defaults`."""
        value = self._set(name)
        return value if isinstance(value, int) else self.rest.number(name)

    def flag(self, name: str) -> bool:
        """See `Defaults`."""
        value = self._set(name)
        return value if isinstance(value, bool) else self.rest.flag(name)

    def _set(self, name: str) -> Value:
        """The value for all brokers; None where it is not valid, or one broker has its own, which may be this one."""
        text = self.image.broker_configs.get(DEFAULT_BROKER, {}).get(name)
        if text is None or _has_single(self.image, name):
            return None
        try:
            return BROKER[name].parse(text)
        except InvalidConfig:
            return None


def _has_single(image: ClusterImage, name: str) -> bool:
    """Whether a single broker has a value of its own."""
    return any(broker != DEFAULT_BROKER and name in configs for broker, configs in image.broker_configs.items())


class Rules(NamedTuple):
    """What a change of a partition depends on besides its state.

    `min_in_sync` is 0 where the cluster's records cannot name eligible leader replicas: there are none then.
    `unclean` are brokers that may have lost records: none of them becomes eligible by leaving the ISR.
    """

    brokers: Mapping[int, Broker]
    controller_epoch: int
    min_in_sync: int
    election: Election = Election.ONLINE
    unclean: frozenset[int] = frozenset()
    aliveness: Aliveness = BY_SESSIONS


def eligible_below(image: ClusterImage, topic: Topic, defaults: Defaults) -> int:
    """The size of the ISR below which replicas stay eligible that leave it: the topic's `min.insync.replicas`.

    0 where the metadata.version has no eligible leader replicas yet, and where a single broker has a minimum of its
    own, by which its partitions commit: it may be lower than this one. Apache Kafka forbids such a minimum.
    """
    if is_on_records(image) and metadata_level(image) < ELR_SINCE:
        return 0
    if _MIN_IN_SYNC not in topic.configs and _has_single(image, _MIN_IN_SYNC):
        return 0
    return min_in_sync(topic, DefaultsOf(image, defaults))


def min_in_sync(topic: Topic, defaults: Defaults) -> int:
    """The topic's `min.insync.replicas`."""
    text = topic.configs.get(_MIN_IN_SYNC)
    return defaults.number(_MIN_IN_SYNC) if text is None else int(text)


def may_elect_unclean(topic: Topic, defaults: Defaults) -> bool:
    """The topic's `unclean.leader.election.enable`."""
    text = topic.configs.get("unclean.leader.election.enable")
    return defaults.flag("unclean.leader.election.enable") if text is None else text.lower() == "true"


def rules_of(image: ClusterImage, topic: Topic, defaults: Defaults, aliveness: Aliveness) -> Rules:
    """For events without a request: an unclean leader only where the topic allows it."""
    election = Election.UNCLEAN if may_elect_unclean(topic, DefaultsOf(image, defaults)) else Election.ONLINE
    below = eligible_below(image, topic, defaults)
    return Rules(image.brokers, image.controller_epoch, below, election, aliveness=aliveness)


def is_alive(state: PartitionState, broker_id: int, brokers: Mapping[int, Broker]) -> bool:
    """Whether the replica can lead and follow: its broker is there, does not leave, and has the directory."""
    broker = brokers.get(broker_id)
    return broker is not None and broker.is_active and has_directory(state, broker)


def has_directory(state: PartitionState, broker: Broker) -> bool:
    """Whether the directory of the broker's replica is online.

    On a store, the state lists the replicas whose directories have failed. KRaft's records name the directory of each
    replica, and the registration those that are online (KIP-858).
    """
    if broker.id in state.offline_replicas:
        return False
    if not state.directories or broker.id not in state.replicas:
        return True
    return is_online(state.directories[state.replicas.index(broker.id)], broker)


def has_sole_leader(state: PartitionState) -> bool:
    """Whether a sole replica leads: it does whenever its broker is there, in the same epoch, as none can diverge."""
    return len(state.replicas) == 1 and state.leader == state.replicas[0]


def next_state(before: PartitionState, wanted: PartitionState, rules: Rules) -> PartitionState:
    """The state to be written; `before` itself when nothing changes.

    Of `wanted` count replicas, adding, removing, isr, elr and directories. A member of its ISR must be among its
    replicas. Its directories, if any, are of the replicas of `before`.
    """
    brokers = rules.brokers
    wanted = _with_directories(before, wanted, brokers)
    isr = tuple(b for b in wanted.isr if b in wanted.replicas)
    # Without a live replica in sync, the last ones in sync are those to wait for.
    isr = tuple(b for b in isr if is_alive(wanted, b, brokers)) or isr
    state = _without_finished_move(wanted._replace(isr=isr))
    state = _with_eligible({*before.isr, *wanted.isr}, state, rules)
    alone = has_sole_leader(before)
    bounced = not alone and rules.aliveness.has_bounced(before, brokers)
    leader = before.leader if alone and has_sole_leader(state) else _leader(before, state, rules, bounced=bounced)
    if before.leader_epoch == NEVER_LED and leader == NO_LEADER:
        return before
    led = _led_by(state, leader)
    if led is not state:
        # The new leader may be the one that a move has waited for.
        state = _without_finished_move(led)
        enough = len(state.isr) >= min(rules.min_in_sync, len(state.replicas))
        state = state._replace(elr=() if enough else tuple(b for b in state.elr if b in state.replicas))
    renewed = bounced and leader == before.leader
    if not renewed and leader == before.leader and _same_members(before, state):
        return before
    new_epoch = renewed or leader != before.leader or not set(before.replicas) <= set(state.replicas)
    # A sole replica's registration is not followed: the present one counts when it gets company.
    elected_in = (
        rules.aliveness.elected_in(brokers[leader])
        if (new_epoch or alone) and leader in brokers
        else before.leader_broker_epoch
    )
    return state._replace(
        leader=leader,
        leader_epoch=before.leader_epoch + 1 if new_epoch else before.leader_epoch,
        partition_epoch=before.partition_epoch if before.leader_epoch == NEVER_LED else before.partition_epoch + 1,
        controller_epoch=rules.controller_epoch,
        leader_broker_epoch=NO_BROKER if leader == NO_LEADER else elected_in,
        # A broker that gets the partition again has its replica in another directory.
        offline_replicas=tuple(b for b in state.offline_replicas if b in state.replicas),
    )


def _same_members(before: PartitionState, after: PartitionState) -> bool:
    return (
        after.isr == before.isr
        and after.replicas == before.replicas
        and after.elr == before.elr
        and after.adding_replicas == before.adding_replicas
        and after.removing_replicas == before.removing_replicas
        and after.directories == before.directories
    )


def _with_directories(before: PartitionState, wanted: PartitionState, brokers: Mapping[int, Broker]) -> PartitionState:
    """`wanted` with a directory for each of its replicas, where they are known: it has those of `before`'s replicas."""
    if not wanted.directories or wanted.replicas == before.replicas:
        return wanted
    known = before._replace(directories=wanted.directories)
    return wanted._replace(
        directories=directories_after_move(
            known, wanted.replicas, lambda replica: default_directory(brokers.get(replica))
        )
    )


def _without_finished_move(state: PartitionState) -> PartitionState:
    if not state.adding_replicas and not state.removing_replicas:
        return state
    if not set(state.adding_replicas) <= set(state.isr):
        return state
    staying = tuple(b for b in state.isr if b not in state.removing_replicas)
    if not staying:
        return state
    replicas = tuple(b for b in state.replicas if b not in state.removing_replicas)
    directories = state.directories
    if directories:
        pairs = zip(state.replicas, directories, strict=True)
        directories = tuple(directory for replica, directory in pairs if replica not in state.removing_replicas)
    return state._replace(
        replicas=replicas, isr=staying, adding_replicas=(), removing_replicas=(), directories=directories
    )


def _with_eligible(in_sync: set[int], state: PartitionState, rules: Rules) -> PartitionState:
    """Who leaves an ISR that is below the minimum has every committed record: nothing is committed meanwhile."""
    if len(state.isr) >= min(rules.min_in_sync, len(state.replicas)):
        return state._replace(elr=(), last_known_elr=())
    candidates = in_sync.union(state.elr).difference(state.isr, rules.unclean)
    return state._replace(elr=tuple(b for b in state.replicas if b in candidates))


def _leader(before: PartitionState, state: PartitionState, rules: Rules, *, bounced: bool) -> int:
    brokers, present = rules.brokers, before.leader
    in_sync = [b for b in state.replicas if b in state.isr and is_alive(state, b, brokers)]
    if rules.election is Election.PREFERRED and state.replicas[0] in in_sync:
        return state.replicas[0]
    if present in in_sync and not bounced:
        return present
    if in_sync:
        # A replica that stayed is ahead of the one that has just come back.
        return next((b for b in in_sync if b != present), present)
    for broker in state.elr:
        if is_alive(state, broker, brokers):
            return broker
    may_finish = rules.aliveness.may_finish(present, brokers) and has_directory(state, brokers[present])
    if present in state.isr and not bounced and may_finish:
        # It is shutting down, and leads until it is gone: no other replica has all records.
        return present
    if not state.isr and not state.elr and len(state.last_known_elr) == 1:
        # Apache's controller emptied the ISR: the last leader has the most records, though perhaps not all of them.
        (last,) = state.last_known_elr
        if last in state.replicas and is_alive(state, last, brokers):
            return last
    if rules.election is Election.UNCLEAN:
        for broker in state.replicas:
            if is_alive(state, broker, brokers):
                return broker
    return NO_LEADER


def _led_by(state: PartitionState, leader: int) -> PartitionState:
    """ISR and eligible replicas under this leader."""
    if leader == NO_LEADER or leader in state.isr:
        return state
    if leader in state.elr:
        # The ISR that it takes the place of was below the minimum, too: its members are as complete.
        rest = {*state.elr, *state.isr} - {leader}
        return state._replace(isr=(leader,), elr=tuple(b for b in state.replicas if b in rest))
    return state._replace(isr=(leader,), elr=(), last_known_elr=())


class PartitionChanges:
    """Gathers new states of partitions of one image, and makes the decision of them."""

    __slots__ = ("_changed", "_has_store", "_moved", "_written", "image")

    def __init__(self, image: ClusterImage) -> None:
        self.image: Final = image
        """The image before the changes."""
        self._has_store = not is_on_records(image)
        self._changed: dict[str, list[PartitionState]] = {}
        self._written: dict[PartitionKey, Operation] = {}
        self._moved: dict[str, dict[int, None]] = {}

    def state(self, topic: str, index: int) -> PartitionState | None:
        """With the changes so far; None when there is no such partition."""
        changed = self._changed.get(topic)
        if changed is None:
            return self.image.partition(topic, index)
        return changed[index] if 0 <= index < len(changed) else None

    def put(self, topic: Topic, index: int, before: PartitionState, after: PartitionState) -> None:
        """At most one change that is written for each partition. Nothing happens when both are the same."""
        if after is before:
            return
        states = self._changed.get(topic.name)
        if states is None:
            states = self._changed[topic.name] = list(topic.partitions)
        states[index] = after
        if not self._has_store:
            return
        path = PartitionNode.path(topic.name, index)
        if before.leader_epoch == NEVER_LED and after.leader_epoch != NEVER_LED:
            self._written[topic.name, index] = Create(path, PartitionNode.encode(after))
        elif after.partition_epoch != before.partition_epoch:
            self._written[topic.name, index] = Put(path, PartitionNode.encode(after), before.partition_epoch)
        if (after.replicas, after.adding_replicas, after.removing_replicas) != (
            before.replicas,
            before.adding_replicas,
            before.removing_replicas,
        ):
            self._moved.setdefault(topic.name, {})[index] = None

    def decision(self, replies: Sequence[T]) -> Decision[T]:
        """The change of an assignment and that of its state are one transaction; apart from that each stands alone."""
        if not self._changed:
            return Decision((), self.image, replies)
        image = self.image.with_topics(
            self.image.topics[name]._replace(partitions=tuple(states)) for name, states in self._changed.items()
        )
        operations: list[Operation] = []
        cuts: list[int] = []
        for name, moved in self._moved.items():
            states = list(self.image.topics[name].partitions)
            indices = list(moved)
            for start in range(0, len(indices), _MOVES_AT_ONCE):
                part = indices[start : start + _MOVES_AT_ONCE]
                for index in part:
                    states[index] = image.topics[name].partitions[index]
                cuts.append(len(operations))
                operations.append(Put(TopicNode.path(name), TopicNode.encode(image.topics[name].id, states)))
                operations += [self._written.pop((name, i)) for i in part if (name, i) in self._written]
        cuts.extend(range(len(operations), len(operations) + len(self._written)))
        operations.extend(self._written.values())
        return Decision(operations, image, replies, [cut for cut in cuts if cut])
