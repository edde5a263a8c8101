"""What a kind of group, such as classic and consumer groups, supplies to the group coordinator.

A kind is registered in `kinds.KINDS`, with its record types. The coordinator asks kinds and groups by these protocols
and never by their class. Requests that only one kind serves go to the kind itself (`GroupCoordinator.kind`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

from odradek.groups.events import CommitRequest, GroupDecision, GroupListing
from odradek.groups.records import GroupRecord, RecordType
from odradek.groups.settings import GroupSettings
from odradek.groups.timers import Due, Timers
from odradek.metadata.image import ClusterImage
from odradek.ports.randomness import Random

CheckPartition = Callable[[bytes, int], None]
"""(topic id, partition): raises KafkaError if the member's commit must not change this partition's offset."""


class Group(Protocol):
    """A group, as far as offsets and administrators are concerned."""

    @property
    def group_id(self) -> str:
        """The group's id, which is unique among the groups of all kinds."""
        ...

    @property
    def is_dead(self) -> bool:
        """Whether this broker has ceased to coordinate it."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, so that it may be deleted."""
        ...

    @property
    def member_count(self) -> int:
        """The number of its members."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether it is empty and no client is about to join it, so that it expires with its last offset."""
        ...

    @property
    def lets_offsets_be_deleted(self) -> bool:
        """Whether OffsetDelete is served for topics outside the subscription."""
        ...

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member subscribes to the topic; also if the coordinator cannot read the subscriptions."""
        ...

    def will_read(self, topic: str) -> bool:
        """Whether a group that has offsets of the topic reads it, or will when its members return."""
        ...

    def offsets_expire_since(self, commit_timestamp_ms: int) -> int | None:
        """When the retention of an offset begins (KIP-211); None while no offset of the group may expire."""
        ...

    def tombstones(self) -> Iterable[GroupRecord]:
        """The records that remove the group, though not its offsets, from the log."""
        ...

    def listing(self) -> GroupListing:
        """The group as ListGroups returns it."""
        ...


class GroupKind(Protocol):
    """All groups of one kind in a shard."""

    @property
    def by_id(self) -> Mapping[str, Group]:
        """The groups."""
        ...

    @property
    def handlers(self) -> GroupHandlers:
        """What the coordinator passes on to this kind."""
        ...

    @property
    def replays_between_deadlines(self) -> bool:
        """Whether records of one deadline have to be replayed before the next deadline of this kind is expired."""
        ...

    def loaded(self, now_ms: int) -> GroupDecision:
        """The whole log has been replayed: start the groups' deadlines."""
        ...

    def unload(self, now_ms: int) -> None:
        """Another broker coordinates the groups: answer members that wait with NOT_COORDINATOR."""
        ...

    def configure(self, settings: GroupSettings) -> None:
        """Use these settings from now on, as far as Kafka lets them change on a running broker."""
        ...

    def topics_changed(self, topics: frozenset[str]) -> None:
        """Topics were created or deleted, or have more partitions."""
        ...

    def check_commit(self, now_ms: int, request: CommitRequest, *, transactional: bool) -> CheckPartition | None:
        """Check that the member may commit offsets; its session is extended where Kafka extends it.

        Returns a further check of each partition, or None without one. Raises KafkaError.
        """
        ...

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Raise KafkaError unless this member may fetch offsets."""
        ...


@dataclass(frozen=True, slots=True)
class GroupHandlers:
    """Handlers of a kind, by the class of the value that they handle."""

    replay: Mapping[type, Callable[[Any], None]]
    """By class of record: replay it."""
    expire: Mapping[type, Callable[[int, Due], GroupDecision]]
    """By class of a deadline's payload: (now_ms, deadline) -> what follows."""
    stored: Mapping[type, Callable[[int, Any, Any], GroupDecision]]
    """By class of continuation: (now_ms, continuation, error code or None) -> what follows."""


Kind = TypeVar("Kind")


@dataclass(slots=True)
class KindContext:
    """What a kind is created with. `kinds` has those before it in `kinds.KINDS`."""

    settings: GroupSettings
    random: Random
    image: Callable[[], ClusterImage]
    timers: Timers
    has_offsets: Callable[[str], bool]
    """Whether a group id has committed offsets."""
    other_has: Callable[[str, GroupKind], bool]
    """Whether a group id has a group of another kind than this."""
    kinds: dict[type, GroupKind] = field(default_factory=dict)

    def kind(self, wanted: type[Kind]) -> Kind:
        """The groups of this kind."""
        return cast(Kind, self.kinds[wanted])


@dataclass(frozen=True, slots=True)
class KindRegistration:
    """A row of `kinds.KINDS`."""

    name: str
    """As ListGroups filters by it."""
    create: Callable[[KindContext], GroupKind]
    """Makes the groups of this kind of a new shard."""
    record_types: tuple[RecordType[Any], ...]
    """The types of its records in `__consumer_offsets`."""
