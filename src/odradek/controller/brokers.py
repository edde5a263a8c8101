"""Brokers that come, go, restart or shut down, and what it means for all their partitions. Pure decisions.

Every decision here answers the same question, what the partitions must look like with these brokers: asking again
changes nothing. So a new controller only needs to ask it of everything to finish what its predecessor had begun.
Source: Kafka's `ReplicationControlManager` (handleBrokerFenced, handleUncleanBrokerShutdown, ...).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from odradek.controller.aliveness import BY_SESSIONS, Aliveness
from odradek.controller.outcome import Decision
from odradek.controller.partition_changes import (
    NEVER_LED,
    Defaults,
    PartitionChanges,
    Rules,
    has_sole_leader,
    is_alive,
    next_state,
    rules_of,
)
from odradek.metadata.image import Broker, ClusterImage, PartitionState, Topic
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError

_MOST_CHANGES: Final = 100
"""Changed partitions in one part of a decision: some 5 ms of the controller with records and report."""
_MOST_LOOKS: Final = 10_000
"""Partitions that one part of a decision looks at."""


class TopicWalk:
    """The topics that a decision has still to look at. It is true as long as there are any.

    A decision on the partitions of a broker may be made in parts, each of them on the newest image and committed by
    itself: what it leaves undone, a part of the next controller's first decision completes.
    """

    __slots__ = ("_names",)

    def __init__(self, image: ClusterImage) -> None:
        self._names = list(image.topics)
        self._names.reverse()

    def __bool__(self) -> bool:
        return bool(self._names)

    def topics(self, image: ClusterImage) -> Iterator[Topic]:
        """Take the next topics, as they are in this image."""
        while self._names:
            topic = image.topics.get(self._names.pop())
            if topic is not None:
                yield topic


class BrokerChanges(NamedTuple):
    """`bounced` have another registration than before: whatever was with them under the old one is over."""

    gone: frozenset[int]
    started: frozenset[int]
    bounced: frozenset[int]

    def __bool__(self) -> bool:
        return bool(self.gone or self.started or self.bounced)


def broker_changes(before: Mapping[int, Broker], after: Mapping[int, Broker]) -> BrokerChanges:
    """The brokers that ended, started or restarted between two sets of registrations."""
    return BrokerChanges(
        frozenset(before.keys() - after.keys()),
        frozenset(after.keys() - before.keys()),
        frozenset(i for i in before.keys() & after.keys() if before[i].epoch != after[i].epoch),
    )


def brokers_changed(image: ClusterImage, brokers: Mapping[int, Broker], defaults: Defaults) -> Decision[TopicPartition]:
    """The registered brokers are now these. A broker that is shutting down stays so under the same registration.

    Replies name the partitions that changed.
    """
    changes = broker_changes(image.brokers, brokers)
    kept = with_states_of(image.brokers, brokers)
    unclean = frozenset(i for i in changes.started | changes.bounced if brokers[i].unclean)
    concerned = changes.gone | changes.started | changes.bounced
    return reconsidered(image.with_brokers(kept), defaults, concerned, unclean, out_of_sync=changes.bounced)


def with_states_of(before: Mapping[int, Broker], brokers: Mapping[int, Broker]) -> dict[int, Broker]:
    """The brokers as registered in a store, which knows neither fences nor controlled shutdowns.

    Under the same registration a broker keeps the state that it had before.
    """
    kept = dict(brokers)
    for i, broker in brokers.items():
        known = before.get(i)
        if known is not None and known.epoch == broker.epoch and not known.is_active:
            kept[i] = broker._replace(fenced=known.fenced, in_controlled_shutdown=known.in_controlled_shutdown)
    return kept


def recovered_partitions(
    image: ClusterImage, defaults: Defaults, *, aliveness: Aliveness = BY_SESSIONS, walk: TopicWalk | None = None
) -> Decision[TopicPartition]:
    """What a new controller does first: partitions without a leader or a state, half-done moves, restarted leaders."""
    unclean = frozenset(i for i, broker in image.brokers.items() if broker.unclean)
    return reconsidered(image, defaults, None, unclean, aliveness=aliveness, walk=walk)


def leaders_sought(
    image: ClusterImage, defaults: Defaults, *, aliveness: Aliveness = BY_SESSIONS
) -> Decision[TopicPartition]:
    """Look again at every partition, for instance since unclean elections are allowed now."""
    return reconsidered(image, defaults, None, frozenset(), aliveness=aliveness)


def registered(image: ClusterImage, broker_id: int, broker_epoch: int) -> Broker:
    """The broker that asks. Raises KafkaError BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH under another epoch."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered.")
    if broker.epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {broker_id} asks with epoch {broker_epoch}, but is registered with {broker.epoch}.",
        )
    return broker


def begin_shutdown(
    image: ClusterImage,
    broker_id: int,
    broker_epoch: int,
    defaults: Defaults,
    *,
    aliveness: Aliveness,
    walk: TopicWalk | None = None,
) -> Decision[TopicPartition]:
    """Move leadership away from a broker that wants to stop; replies name the partitions that changed.

    Raises KafkaError BROKER_ID_NOT_REGISTERED or STALE_BROKER_EPOCH.
    """
    broker = registered(image, broker_id, broker_epoch)
    leaving = image.with_broker(broker._replace(in_controlled_shutdown=True))
    return reconsidered(leaving, defaults, frozenset((broker_id,)), frozenset(), aliveness=aliveness, walk=walk)


def shutting_down(
    image: ClusterImage, broker_id: int, broker_epoch: int, defaults: Defaults
) -> Decision[TopicPartition]:
    """Move leadership away from a broker that wants to stop; replies name the partitions that it still leads.

    Sole replicas stay where they are and are not named. Raises
    KafkaError BROKER_ID_NOT_REGISTERED or STALE_BROKER_EPOCH.
    """
    decision = begin_shutdown(image, broker_id, broker_epoch, defaults, aliveness=BY_SESSIONS)
    remaining = [
        TopicPartition(topic.name, index)
        for topic in decision.image.topics.values()
        for index, state in enumerate(topic.partitions)
        if state.leader == broker_id and len(state.replicas) > 1
    ]
    return decision._replace(replies=remaining)


def fencing_changed(
    image: ClusterImage,
    fence: Iterable[Broker],
    release: Iterable[Broker],
    defaults: Defaults,
    *,
    aliveness: Aliveness = BY_SESSIONS,
    walk: TopicWalk | None = None,
) -> Decision[TopicPartition]:
    """Brokers are silent, or no longer. Silent ones neither lead, where another replica in sync can, nor count as in
    sync. Replies name the partitions that changed.
    """
    concerned = set()
    brokers = dict(image.brokers)
    for group, fenced in ((fence, True), (release, False)):
        for broker in group:
            concerned.add(broker.id)
            brokers[broker.id] = brokers[broker.id]._replace(fenced=fenced)
    # Under the same registration: a directory that failed has still failed.
    return reconsidered(
        image.with_brokers(brokers),
        defaults,
        frozenset(concerned),
        frozenset(),
        directories_are_good=False,
        aliveness=aliveness,
        walk=walk,
    )


def replicas_offline(
    image: ClusterImage, broker_id: int, replicas: Iterable[TopicPartition], defaults: Defaults
) -> Decision[TopicPartition]:
    """The directories of these replicas have failed; the broker lives on. Replies name the partitions that changed."""
    changes = PartitionChanges(image)
    changed = []
    for topic_name, index in dict.fromkeys(replicas):
        before = changes.state(topic_name, index)
        if before is None or broker_id not in before.replicas or broker_id in before.offline_replicas:
            continue
        topic = image.topics[topic_name]
        offline = tuple(b for b in before.replicas if b == broker_id or b in before.offline_replicas)
        known = before._replace(offline_replicas=offline)
        changes.put(topic, index, before, next_state(known, known, rules_of(image, topic, defaults, BY_SESSIONS)))
        changed.append(TopicPartition(topic_name, index))
    return changes.decision(changed)


def replicas_online(
    image: ClusterImage, broker_id: int, replicas: Iterable[TopicPartition], defaults: Defaults
) -> Decision[TopicPartition]:
    """Replicas that were offline answer again, for instance since their log is recovered."""
    changes = PartitionChanges(image)
    changed = []
    for topic_name, index in dict.fromkeys(replicas):
        before = changes.state(topic_name, index)
        if before is None or broker_id not in before.offline_replicas:
            continue
        topic = image.topics[topic_name]
        known = before._replace(offline_replicas=tuple(b for b in before.offline_replicas if b != broker_id))
        changes.put(topic, index, before, next_state(known, known, rules_of(image, topic, defaults, BY_SESSIONS)))
        changed.append(TopicPartition(topic_name, index))
    return changes.decision(changed)


def reconsidered(
    image: ClusterImage,
    defaults: Defaults,
    concerned: frozenset[int] | None,
    unclean: frozenset[int],
    out_of_sync: frozenset[int] = frozenset(),
    *,
    directories_are_good: bool = True,
    aliveness: Aliveness = BY_SESSIONS,
    walk: TopicWalk | None = None,
) -> Decision[TopicPartition]:
    """Decide on the partitions of the `concerned` brokers, or on all (None); replies name those that changed.

    `unclean` ones may have lost records, those `out_of_sync` have restarted, and so has a leader with another
    registration than the one that it was elected in. `directories_are_good`: the brokers have registered, and count
    as brokers without failed directories. With a walk, it is the walk's next part.
    """
    changes = PartitionChanges(image)
    changed: list[TopicPartition] = []
    may_be_settled = not unclean and not out_of_sync
    healthy = _Healthy(image.brokers, aliveness)
    looked = 0
    for topic in image.topics.values() if walk is None else walk.topics(image):
        rules = None
        for index, before in enumerate(topic.partitions):
            if concerned is not None and concerned.isdisjoint(before.replicas):
                continue
            if has_sole_leader(before) and not before.offline_replicas:
                continue
            if may_be_settled and healthy.has_settled(before):
                continue
            if rules is None:
                rules = rules_of(image, topic, defaults, aliveness)._replace(unclean=unclean)
            known = before
            if before.offline_replicas and concerned is not None and directories_are_good:
                # A registration begins with all directories presumed good.
                offline = tuple(b for b in before.offline_replicas if b not in concerned)
                known = before._replace(offline_replicas=offline) if offline != before.offline_replicas else before
            after = next_state(known, _wanted(known, rules, out_of_sync), rules)
            if after is not before:
                changes.put(topic, index, before, after)
                changed.append(TopicPartition(topic.name, index))
        looked += len(topic.partitions)
        if walk is not None and (len(changed) >= _MOST_CHANGES or looked >= _MOST_LOOKS):
            break
    return changes.decision(changed)


class _Healthy:
    """The brokers that may lead, with their directories."""

    __slots__ = ("_active", "_aliveness", "_brokers", "_directories")

    def __init__(self, brokers: Mapping[int, Broker], aliveness: Aliveness) -> None:
        active = [broker for broker in brokers.values() if broker.is_active]
        self._brokers = brokers
        self._aliveness = aliveness
        self._active = frozenset(broker.id for broker in active)
        self._directories = frozenset(directory for broker in active for directory in broker.log_dirs)

    def has_settled(self, state: PartitionState) -> bool:
        """Whether nothing is to be decided on a partition: its leader leads, all replicas are in sync, none moves.

        It is a quick look. False says nothing: `next_state` finds out.
        """
        return (
            len(state.isr) == len(state.replicas)
            and state.leader in state.isr
            and self._active.issuperset(state.isr)
            and self._directories.issuperset(state.directories)
            and not (state.adding_replicas or state.removing_replicas or state.offline_replicas)
            and not (state.elr or state.last_known_elr)
            and state.leader_epoch != NEVER_LED
            and not self._aliveness.has_bounced(state, self._brokers)
        )


def _wanted(state: PartitionState, rules: Rules, out_of_sync: frozenset[int]) -> PartitionState:
    if state.leader_epoch == NEVER_LED:
        # Its controller ended between the topic and the state: all replicas are in sync with an empty partition.
        return state._replace(isr=state.replicas)
    if rules.unclean:
        state = _without_unclean(state, rules)
    if rules.aliveness.has_bounced(state, rules.brokers):
        # A new controller sees no registration change: the state names the registration that its leader had.
        out_of_sync = out_of_sync | {state.leader}
    if out_of_sync:
        isr = tuple(b for b in state.isr if b not in out_of_sync)
        if any(is_alive(state, b, rules.brokers) for b in isr):
            state = state._replace(isr=isr)
    return state


def _without_unclean(state: PartitionState, rules: Rules) -> PartitionState:
    """A broker that may have lost records yields wherever another replica has them all."""
    suspects = rules.unclean
    if rules.aliveness.has_led(state, rules.brokers):
        # It has led since it came back: its records are the only ones left.
        suspects = suspects - {state.leader}
    isr = tuple(b for b in state.isr if b not in suspects)
    elr = tuple(b for b in state.elr if b not in suspects)
    if isr:
        return state._replace(isr=isr, elr=elr)
    return state._replace(isr=elr, elr=()) if elr else state
