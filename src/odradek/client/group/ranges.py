"""The range assignment: topic by topic, consecutive partitions to each member, nearby ones first. Pure.

Source: Kafka's `RangeAssignor`. Members that have a rack get partitions with a replica there as far as that leaves the
numbers of partitions even; topics that all members read and that have the same number of partitions are assigned
alike, if that is possible, so that a member gets the same numbers of each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from odradek.client.group.racks import Racks
from odradek.records.topic_partition import TopicPartition


class _Topic:
    """A topic whose partitions are being assigned."""

    __slots__ = ("_each", "_extra", "_given", "left", "members", "name")

    def __init__(self, name: str, count: int, members: Sequence[str]) -> None:
        self.name = name
        self.members = members
        self.left = list(range(count))
        self._each, self._extra = divmod(count, len(members))
        self._given = dict.fromkeys(members, 0)

    def room(self, member_id: str) -> int:
        """How many more partitions the member may get; as many members as there are extra ones get one more."""
        return max(0, self._each + (self._extra > 0) - self._given[member_id])

    def give(self, member_id: str, numbers: Sequence[int]) -> None:
        if not numbers:
            return
        self._given[member_id] += len(numbers)
        self._extra -= self._given[member_id] > self._each
        self.left = [number for number in self.left if number not in numbers]


def assign_ranges(
    counts: Mapping[str, int], subscribers: Mapping[str, Sequence[str]], racks: Racks
) -> dict[str, list[TopicPartition]]:
    """Every partition of `counts` to one of its topic's subscribers, which are in the order of precedence."""
    found: dict[str, list[TopicPartition]] = {}
    topics = [_Topic(name, counts[name], subscribers[name]) for name in sorted(counts) if subscribers[name]]

    def give(topic: _Topic, member_id: str, numbers: Sequence[int]) -> None:
        topic.give(member_id, numbers)
        found.setdefault(member_id, []).extend(TopicPartition(topic.name, number) for number in numbers)

    def give_ranges(topic: _Topic, may: Callable[[str, int], bool]) -> None:
        for member_id in topic.members:
            allowed = [number for number in topic.left if may(member_id, number)]
            give(topic, member_id, allowed[: topic.room(member_id)])

    with_racks = [topic for topic in topics if racks.matter(topic.members, [topic.name])]
    alike: dict[tuple[tuple[str, ...], int], list[_Topic]] = defaultdict(list)
    for topic in with_racks:
        alike[tuple(topic.members), len(topic.left)].append(topic)
    for (members, count), group in alike.items():
        for number in range(count) if len(group) > 1 else ():
            for member_id in members:
                places = [TopicPartition(topic.name, number) for topic in group]
                if all(racks.are_near(member_id, place) for place in places) and all(
                    topic.room(member_id) for topic in group
                ):
                    for topic in group:
                        give(topic, member_id, [number])
                    break
    for topic in with_racks:
        give_ranges(topic, partial(_is_near, racks, topic.name))
    for topic in topics:
        give_ranges(topic, lambda _member_id, _number: True)
    return {member_id: sorted(partitions) for member_id, partitions in found.items()}


def _is_near(racks: Racks, topic: str, member_id: str, number: int) -> bool:
    return racks.are_near(member_id, TopicPartition(topic, number))
