"""Whether this broker may act as the leader of a partition now: its lease, promises of followers, new leaderships.

A broker acts as a leader (serves clients, and coordinates groups and transactions) only while its lease from the
controller lasts, or while every replica that could be elected instead has promised not to begin. A partition that the
broker has newly got waits until the controller says that its former leader has ended, or for the time of a lease; and
until this broker's own promises are over. See docs/decisions/0011-leaders-hold-leases.md.

Pure: times are seconds of this broker's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from odradek.metadata.image import NO_LEADER, ClusterImage, PartitionState
from odradek.metadata.topic_changes import partition_changes
from odradek.records.topic_partition import PartitionKey, TopicIdPartition

NEVER: Final = float("-inf")
_LOOK_COUNTS_FOR: Final = 10
"""A look at all partitions counts for so many times as long as it took."""


class LedPartition(Protocol):
    """The part of a partition that is read here."""

    topic: str
    topic_id: bytes
    index: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def min_isr(self) -> int:
        """The smallest ISR in which records are committed."""
        ...

    @property
    def counted_replicas(self) -> Collection[int]:
        """Members of the ISR, and of the one that is proposed."""
        ...


class UnopenedPartition:
    """A `LedPartition` whose log is not open: it has no proposals, and nothing of it but the image is known."""

    __slots__ = ("_min_isr", "index", "isr", "leader_epoch", "replicas", "topic", "topic_id")

    def __init__(
        self, topic: str, topic_id: bytes, index: int, state: PartitionState, min_isr: Callable[[], int]
    ) -> None:
        """`min_isr` is called where it matters, as it takes long."""
        self.topic = topic
        """Its topic."""
        self.topic_id = topic_id
        """The id of its topic."""
        self.index = index
        """Its number."""
        self.leader_epoch = state.leader_epoch
        """The epoch of its leader."""
        self.replicas = state.replicas
        """Its replicas."""
        self.isr = state.isr
        """Its ISR."""
        self._min_isr = min_isr

    @property
    def min_isr(self) -> int:
        """See `LedPartition`."""
        return self._min_isr()

    @property
    def counted_replicas(self) -> tuple[int, ...]:
        """See `LedPartition`."""
        return self.isr


class Elected(NamedTuple):
    """A partition that this broker has newly got."""

    number: int
    """A later election has another one."""
    place: PartitionKey
    topic_id: bytes
    state: PartitionState

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        """The partition by the id of its topic."""
        return self.topic_id, self.place[1]


class _Pending(NamedTuple):
    number: int
    topic_id: bytes
    since: float
    """When a controller said that this broker leads the partition: its former leader has got no lease since."""
    is_first: bool
    """Whether no other broker has led the partition before."""


class _Promise(NamedTuple):
    until: float
    places: frozenset[TopicIdPartition]


class _Look(NamedTuple):
    image: ClusterImage
    shown: ClusterImage
    until: float


class Leadership:
    """This broker's right to act as a leader."""

    __slots__ = (
        "_look",
        "_node_id",
        "_now",
        "_pending",
        "_promised",
        "_promised_before_until",
        "_promises",
        "_sequence",
        "_sole_topics",
        "lease_until",
    )

    def __init__(self, node_id: int, now: Callable[[], float]) -> None:
        self._node_id = node_id
        self._now = now
        self._pending: dict[PartitionKey, _Pending] = {}
        self._sequence = 0
        self._promises: dict[int, _Promise] = {}
        self._promised: dict[TopicIdPartition, float] = {}
        self._promised_before_until = NEVER
        self._look: _Look | None = None
        self._sole_topics: object = None
        """Topics of an image in which no partition has several replicas; None before one was seen."""
        self.lease_until = NEVER
        """When the lease ends, a margin for clocks that drift deducted."""

    # --- the lease ---

    def extend(self, asked_at: float, seconds: float) -> None:
        """A lease of that length, asked for at that time: the controller's clock ran from a later moment."""
        self.lease_until = max(self.lease_until, asked_at + seconds)

    def surrender(self) -> None:
        """Give the lease and all promises up, before a new registration and at the stop of the broker."""
        self.lease_until = NEVER
        self._promises.clear()

    # --- partitions that this broker has newly got ---

    def follow(self, old: ClusterImage, new: ClusterImage) -> list[Elected]:
        """Partitions that `new` gives to this broker wait; to be called before they are led."""
        elected: list[Elected] = []
        if old.topics is new.topics:
            return elected
        node_id = self._node_id
        for topic, index, was, state in partition_changes(old, new):
            if state.leader != node_id:
                self._pending.pop((topic.name, index), None)
            elif was is None or (was.leader, was.leader_epoch) != (node_id, state.leader_epoch):
                self._sequence += 1
                is_first = state.leader_epoch == 0
                self._pending[topic.name, index] = _Pending(self._sequence, topic.id, self._now(), is_first)
                elected.append(Elected(self._sequence, (topic.name, index), topic.id, state))
        for place in [place for place in self._pending if new.partition(*place) is None]:
            del self._pending[place]
        return elected

    @property
    def sequence(self) -> int:
        """Number of the newest partition that waits; to be remembered when the controller is asked."""
        return self._sequence

    @property
    def has_pending(self) -> bool:
        """Whether partitions wait."""
        return bool(self._pending)

    @property
    def pending(self) -> tuple[PartitionKey, ...]:
        """The partitions that wait, in the order in which they came."""
        return tuple(self._pending)

    def is_pending(self, topic: str, index: int) -> bool:
        """Whether the partition waits."""
        return (topic, index) in self._pending

    def waits(self, elected: Elected) -> bool:
        """Whether the partition waits since this election."""
        found = self._pending.get(elected.place)
        return found is not None and found.number == elected.number

    def begin(self, sequence: int) -> None:
        """The controller says that those that waited when it was asked may be led; promised ones wait longer."""
        self._begin(lambda waits: waits.number <= sequence)

    def begin_elected(self, numbers: Container[int]) -> None:
        """The partitions of these elections may be led: their former leaders have ended."""
        self._begin(lambda waits: waits.number in numbers)

    def begin_after(self, seconds: float) -> None:
        """Those that have waited for the time of a lease may be led: the leases of their former leaders are over.

        The controller cannot say so while it is dead, or while the metadata store does not confirm it.
        """
        begun_by = self._now() - seconds
        self._begin(lambda waits: waits.since <= begun_by)

    def _begin(self, has_waited: Callable[[_Pending], bool]) -> None:
        now = self._now()
        for place, waits in list(self._pending.items()):
            is_promised_before = now < self._promised_before_until and not waits.is_first
            if has_waited(waits) and not is_promised_before and self._may_begin((waits.topic_id, place[1]), now):
                del self._pending[place]

    def _may_begin(self, place: TopicIdPartition, now: float) -> bool:
        """Whether no promise to a former leader of the partition lasts."""
        return self._promised.get(place, NEVER) <= now

    # --- promises ---

    def promise(self, places: Iterable[TopicIdPartition], seconds: float) -> None:
        """Promise the leader of these partitions not to begin to lead them for that long."""
        now = self._now()
        self._promised = {place: until for place, until in self._promised.items() if until > now}
        for place in places:
            self._promised[place] = max(self._promised.get(place, NEVER), now + seconds)

    def promise_before(self, until: float) -> None:
        """The process before this one may have promised, until then, not to begin to lead any partition."""
        self._promised_before_until = until

    def promised(self, broker_id: int, until: float, places: Iterable[TopicIdPartition]) -> None:
        """Another broker has promised not to begin to lead these partitions until then.

        It has promised nothing of partitions that this broker got after the question.
        """
        self._promises[broker_id] = _Promise(until, frozenset(places))

    def _is_promised(self, partition: LedPartition, now: float) -> bool:
        place = (partition.topic_id, partition.index)
        for member in successors(partition, self._node_id):
            promise = self._promises.get(member)
            if promise is None or promise.until <= now or place not in promise.places:
                return False
        return True

    # --- decisions ---

    def may_lead(self, partition: LedPartition) -> bool:
        """Whether this broker may act as the leader of a partition that it leads."""
        if self._pending and (partition.topic, partition.index) in self._pending:
            return False
        if len(partition.replicas) == 1:
            return True
        now = self._now()
        return now < self.lease_until or self._is_promised(partition, now)

    def is_lease_needed(self, image: ClusterImage) -> bool:
        """Whether a partition has several replicas: a sole replica leads without a lease.

        Where none has, the next calls for the same topics cost nothing.
        """
        if image.topics is self._sole_topics:
            return False
        if any(len(state.replicas) > 1 for topic in image.topics.values() for state in topic.partitions):
            return True
        self._sole_topics = image.topics
        return False

    def shown(self, image: ClusterImage, may_lead: Callable[[str, int], bool]) -> ClusterImage:
        """The cluster as clients may see it: without leadership of this broker that it may not act on.

        A look at all partitions of a large cluster takes long. It counts for ten times that, so that the Metadata
        requests of many clients do not use up a processor while the lease is missing.
        """
        now = self._now()
        if not self._pending and (now < self.lease_until or not self.is_lease_needed(image)):
            return image
        if self._look is not None and self._look.image is image and now < self._look.until:
            return self._look.shown
        found = self._without_own(image, may_lead)
        self._look = _Look(image, found, now + _LOOK_COUNTS_FOR * (self._now() - now))
        return found

    def _without_own(self, image: ClusterImage, may_lead: Callable[[str, int], bool]) -> ClusterImage:
        changed = []
        for name, topic in image.topics.items():
            states = tuple(self._shown(topic.partitions, name, may_lead))
            if any(state is not known for state, known in zip(states, topic.partitions, strict=True)):
                changed.append(topic._replace(partitions=states))
        return image.with_topics(changed) if changed else image

    def _shown(
        self, states: Iterable[PartitionState], name: str, may_lead: Callable[[str, int], bool]
    ) -> Iterator[PartitionState]:
        for index, state in enumerate(states):
            hides = state.leader == self._node_id and not may_lead(name, index)
            yield state._replace(leader=NO_LEADER) if hides else state


def successors(partition: LedPartition, node_id: int) -> set[int]:
    """The brokers of which the controller may elect one instead: the ISR and, below the minimum, every replica.

    Below `min.insync.replicas` replicas outside the ISR may be eligible (KIP-966), and a leader does not know which.
    """
    found = set(partition.counted_replicas) | set(partition.isr)
    if len(partition.isr) < partition.min_isr:
        found.update(partition.replicas)
    found.discard(node_id)
    return found


def agrees(image: ClusterImage, topic_id: bytes, index: int, leader_epoch: int) -> bool:
    """Whether an image knows of no later leader of a partition than that of the epoch."""
    name = image.topic_names.get(topic_id)
    state = None if name is None else image.partition(name, index)
    return state is None or state.leader_epoch <= leader_epoch
