"""The assignment strategies of classic consumer groups, wire-compatible with Java's.

A group's leader runs one of them on all members' subscriptions; names and user data are those of Kafka's RangeAssignor,
RoundRobinAssignor, StickyAssignor and CooperativeStickyAssignor, so that mixed groups work. Pure.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, NamedTuple, Protocol

from odradek.client.errors import ConfigError
from odradek.client.group.racks import PartitionRacks, Racks
from odradek.client.group.ranges import assign_ranges
from odradek.client.group.sticky import Claims, assign_sticky
from odradek.records.topic_partition import TopicPartition

NO_GENERATION: Final = -1
_INT: Final = Struct(">i")
_SHORT: Final = Struct(">h")


class MemberSubscription(NamedTuple):
    """A member's topics, and the partitions that it owns as of a generation (-1: unknown)."""

    topics: Sequence[str]
    owned: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION
    user_data: bytes | None = None
    group_instance_id: str | None = None
    rack_id: str | None = None


Assignment = dict[str, list[TopicPartition]]
NO_RACKS: Final[PartitionRacks] = {}


class Assignor(Protocol):
    """A strategy; `name` is what members agree on, `cooperative` whether they keep partitions while rebalancing."""

    name: str
    cooperative: bool

    def assign(
        self, counts: Mapping[str, int], members: Mapping[str, MemberSubscription], racks: PartitionRacks = NO_RACKS
    ) -> Assignment:
        """Every partition of `counts` (partitions by topic) to exactly one member that subscribes to its topic.

        `racks` are those of the partitions' replicas, by which members in the same racks are preferred (KIP-881).
        """
        ...

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        """User data of this member's subscription, for the leader."""
        ...

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Note this member's partitions after a rebalance."""
        ...


def _in_order(members: Mapping[str, MemberSubscription], topic: str) -> list[str]:
    """Subscribers of a topic in Kafka's order: static members by instance id, then the others by member id."""
    subscribed = [member_id for member_id, each in members.items() if topic in each.topics]
    return sorted(subscribed, key=lambda each: _order(each, members[each]))


def _order(member_id: str, subscription: MemberSubscription) -> tuple[bool, str, str]:
    instance = subscription.group_instance_id
    return (instance is None, instance or "", member_id)


def _racks(members: Mapping[str, MemberSubscription], partitions: PartitionRacks) -> Racks:
    return Racks({member_id: each.rack_id for member_id, each in members.items()}, partitions)


class RangeAssignor:
    """Topic by topic, consecutive partitions to each member, nearby ones first; the first members get one more."""

    __slots__ = ()

    name = "range"
    cooperative = False

    def assign(
        self, counts: Mapping[str, int], members: Mapping[str, MemberSubscription], racks: PartitionRacks = NO_RACKS
    ) -> Assignment:
        """As `Assignor.assign`."""
        subscribers = {topic: _in_order(members, topic) for topic in counts}
        assignment = assign_ranges(counts, subscribers, _racks(members, racks))
        return {member_id: assignment.get(member_id, []) for member_id in members}

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:  # noqa: ARG002
        """None: the leader needs only the subscription."""
        return None

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Nothing to remember."""


class RoundRobinAssignor:
    """All partitions of all topics in order, dealt out in turns."""

    __slots__ = ()

    name = "roundrobin"
    cooperative = False

    def assign(
        self,
        counts: Mapping[str, int],
        members: Mapping[str, MemberSubscription],
        racks: PartitionRacks = NO_RACKS,  # noqa: ARG002
    ) -> Assignment:
        """As `Assignor.assign`; racks make no difference, as in Kafka."""
        assignment: Assignment = {member_id: [] for member_id in members}
        ring = sorted(members, key=lambda each: _order(each, members[each]))
        turn = 0
        for topic in sorted(counts):
            if not any(topic in each.topics for each in members.values()):
                continue
            for number in range(counts[topic]):
                while topic not in members[ring[turn % len(ring)]].topics:
                    turn += 1
                assignment[ring[turn % len(ring)]].append(TopicPartition(topic, number))
                turn += 1
        return assignment

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:  # noqa: ARG002
        """None: the leader needs only the subscription."""
        return None

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Nothing to remember."""


class StickyAssignor:
    """As balanced as possible, with the fewest moves (KIP-54). User data carry each member's last assignment."""

    __slots__ = ("_generation", "_last")

    name = "sticky"
    cooperative = False

    def __init__(self) -> None:
        self._last: Sequence[TopicPartition] = ()
        self._generation = NO_GENERATION

    def assign(
        self, counts: Mapping[str, int], members: Mapping[str, MemberSubscription], racks: PartitionRacks = NO_RACKS
    ) -> Assignment:
        """As `Assignor.assign`."""
        claims = {}
        for member_id, each in members.items():
            owned, generation = decode_sticky_data(each.user_data)
            if each.owned and each.generation > generation:
                owned, generation = list(each.owned), each.generation
            claims[member_id] = (owned, generation)
        return assign_sticky(counts, {m: each.topics for m, each in members.items()}, claims, _racks(members, racks))

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:  # noqa: ARG002
        """The last assignment and its generation."""
        # Eager members have revoked their partitions by now; the last assignment counts.
        return encode_sticky_data(self._last, self._generation)

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Remember the assignment for the next subscription."""
        self._last = partitions
        self._generation = generation


class CooperativeStickyAssignor:
    """Sticky; members keep reading partitions that stay (KIP-429). A partition that moves is only revoked at first."""

    __slots__ = ()

    name = "cooperative-sticky"
    cooperative = True

    def assign(
        self, counts: Mapping[str, int], members: Mapping[str, MemberSubscription], racks: PartitionRacks = NO_RACKS
    ) -> Assignment:
        """As `Assignor.assign`."""
        claims = {}
        for member_id, each in members.items():
            generation = each.generation
            if generation < 0 and each.user_data is not None and len(each.user_data) >= _INT.size:
                (generation,) = _INT.unpack_from(each.user_data)
            claims[member_id] = (list(each.owned), generation)
        assignment = assign_sticky(
            counts, {m: each.topics for m, each in members.items()}, claims, _racks(members, racks)
        )
        return withhold_moving(assignment, claims)

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:  # noqa: ARG002
        """The generation; owned partitions are in the subscription itself."""
        return _INT.pack(generation)

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Nothing to remember."""


def withhold_moving(assignment: Assignment, claims: Claims) -> Assignment:
    """Take partitions that another member still owns out of the assignment; they follow in the next rebalance.

    The owner is the member that claims the partition as of the latest generation. Members that claim it as of the same
    one give it up, as each of them may own it.
    """
    owners: dict[TopicPartition, tuple[int, set[str]]] = {}
    for member_id, (partitions, generation) in claims.items():
        for partition in partitions:
            latest, claimants = owners.get(partition, (generation, set()))
            if generation > latest:
                owners[partition] = (generation, {member_id})
            elif generation == latest:
                owners[partition] = (generation, {*claimants, member_id})
    return {
        member_id: [each for each in partitions if each not in owners or owners[each][1] == {member_id}]
        for member_id, partitions in assignment.items()
    }


def encode_sticky_data(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    """Version 1 of StickyAssignor's user data: [topic, [partition]], generation."""
    grouped: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        grouped[topic].append(partition)
    out = bytearray(_INT.pack(len(grouped)))
    for topic, numbers in grouped.items():
        name = topic.encode()
        out += _SHORT.pack(len(name)) + name + _INT.pack(len(numbers))
        for number in numbers:
            out += _INT.pack(number)
    out += _INT.pack(generation)
    return bytes(out)


def decode_sticky_data(data: bytes | None) -> tuple[list[TopicPartition], int]:
    """(partitions, generation) of versions 0 and 1; no partitions if they cannot be decoded, as in Kafka."""
    owned: list[TopicPartition] = []
    if not data:
        return owned, NO_GENERATION
    try:
        position = _INT.size
        for _ in range(_INT.unpack_from(data)[0]):
            (length,) = _SHORT.unpack_from(data, position)
            topic = data[position + 2 : position + 2 + length].decode()
            position += 2 + length
            (count,) = _INT.unpack_from(data, position)
            if length < 0 or count < 0:  # which would read the same bytes again, perhaps for minutes
                return [], NO_GENERATION
            position += 4
            for _ in range(count):
                owned.append(TopicPartition(topic, _INT.unpack_from(data, position)[0]))
                position += 4
        generation = _INT.unpack_from(data, position)[0] if len(data) >= position + 4 else NO_GENERATION
    except (struct_error, UnicodeDecodeError):
        return [], NO_GENERATION
    return owned, generation


def needs_rejoin(assignor: Assignor) -> bool:
    """Whether a member that revoked partitions must rejoin, so that others get them."""
    return assignor.cooperative


_OPTION: Final = "partition_assignment_strategy"
_JAVA_PREFIX: Final = "org.apache.kafka.clients.consumer."
_ASSIGNORS: Final[Mapping[str, type[Assignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
_JAVA_NAMES: Final = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


def find_assignors(given: Iterable[str | Assignor]) -> dict[str, Assignor]:
    """Strategies by name, in order of preference: fresh ones by name, and a program's own as they are.

    Java's class names are understood. Raises ConfigError.
    """
    found: dict[str, Assignor] = {}
    for each in given:
        assignor = _named(each) if isinstance(each, str) else _own(each)
        if assignor.name in found:
            raise ConfigError(f"{_OPTION}: {assignor.name!r} is there twice")
        found[assignor.name] = assignor
    if not found:
        raise ConfigError(f"{_OPTION} is empty: expected one or more of {', '.join(_ASSIGNORS)}, or an Assignor")
    return found


def _named(given: str) -> Assignor:
    name = _JAVA_NAMES.get(given.removeprefix(_JAVA_PREFIX), given)
    if name not in _ASSIGNORS:
        raise ConfigError(f"{_OPTION}: {given!r} is not one of {', '.join(_ASSIGNORS)}, nor an Assignor")
    return _ASSIGNORS[name]()


def _own(given: Any) -> Assignor:
    """An assignor of the program, if it has all members of `Assignor`. Raises ConfigError."""
    if inspect.isclass(given):
        raise ConfigError(f"{_OPTION}: {given.__name__} is a class: pass an instance, {given.__name__}(...)")
    name = getattr(given, "name", None)
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{_OPTION}: {given!r} is neither a name ({', '.join(_ASSIGNORS)}) nor an Assignor with one")
    if not isinstance(getattr(given, "cooperative", None), bool):
        raise ConfigError(f"{_OPTION}: the assignor {name!r} lacks the flag `cooperative`, True or False")
    lacking = [each for each in ("assign", "user_data", "assigned") if not callable(getattr(given, each, None))]
    if lacking:
        raise ConfigError(f"{_OPTION}: the assignor {name!r} lacks the method {' and the method '.join(lacking)}")
    assignor: Assignor = given
    return assignor
