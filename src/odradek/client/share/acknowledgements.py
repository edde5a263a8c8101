"""What a share consumer does with the records that it has acquired: a state machine without I/O (KIP-932).

A record is delivered to the program, acknowledged by it, taken into a request, and gone once that is answered. A
renewed record (KIP-1222) is in the program's hands again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from odradek.client.errors import IllegalState
from odradek.records.topic_partition import TopicPartition


class AcknowledgeType(IntEnum):
    """The fate of a record; numbers as in ShareAcknowledge."""

    ACCEPT = 1
    """It was processed."""
    RELEASE = 2
    """It was not processed: another delivery may try."""
    REJECT = 3
    """It cannot be processed: no other delivery is to try."""
    RENEW = 4
    """It is still being processed: its acquisition lock begins again."""


class Source(NamedTuple):
    """The partition of a record, and the broker that gave it: only that one accepts the acknowledgement."""

    node_id: int
    topic: str
    topic_id: bytes
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition by name."""
        return TopicPartition(self.topic, self.partition)


class OffsetRange(NamedTuple):
    """Consecutive offsets with an acknowledgement each, or one for all of them."""

    first: int
    last: int
    types: list[int]


GAP: Final = 0
"""Acknowledges an offset without a record: a control record, or one that compaction removed."""
_DELIVERED: Final = -1
_RENEWED: Final = -2

Taken = dict[Source, dict[int, int]]
"""Acknowledgements of a request: type by offset."""


class Acknowledgements:
    """The acquired records of a consumer that the program, or a request, has not yet dealt with."""

    __slots__ = ("_states",)

    def __init__(self) -> None:
        self._states: dict[Source, dict[int, int]] = {}

    def deliver(self, source: Source, offset: int) -> None:
        """Hand a record to the program."""
        # A later delivery replaces an earlier one, whose lock has expired or whose broker no longer leads.
        for other in [each for each in self._states if each[1:] == source[1:] and each != source]:
            self._states[other].pop(offset, None)
        self._states.setdefault(source, {})[offset] = _DELIVERED

    def resolve(self, source: Source, offsets: Iterable[int], kind: int) -> None:
        """Acknowledge offsets that the program does not get to see: gaps, and records that are given back."""
        self._states.setdefault(source, {}).update(dict.fromkeys(offsets, kind))

    def acknowledge(self, partition: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """Note what becomes of a delivered record; the last call before a request counts.

        Raises IllegalState for a record that is not in the program's hands.
        """
        for source, states in self._states.items():
            if source.topic_partition == partition and states.get(offset, GAP) != GAP:
                states[offset] = kind
                return
        raise IllegalState(f"the record at offset {offset} of {partition} is not acquired, or is acknowledged already")

    def acknowledge_all(self, kind: AcknowledgeType) -> None:
        """Note the same for all records that are in the program's hands."""
        for states in self._states.values():
            for offset, state in states.items():
                if state < 0:
                    states[offset] = kind

    @property
    def unacknowledged(self) -> int:
        """Delivered records without an acknowledgement; renewed ones do not count."""
        return sum(state == _DELIVERED for states in self._states.values() for state in states.values())

    def pending_nodes(self) -> set[int]:
        """The brokers for which acknowledgements wait."""
        return {
            source.node_id for source, states in self._states.items() if any(state >= 0 for state in states.values())
        }

    def take(self, node_id: int) -> Taken:
        """Remove the acknowledgements for a broker, to be sent."""
        taken: Taken = {}
        for source in [each for each in self._states if each.node_id == node_id]:
            states = self._states[source]
            ready = {offset: state for offset, state in states.items() if state >= 0}
            if ready:
                taken[source] = ready
                for offset in ready:
                    del states[offset]
            if not states:
                del self._states[source]
        return taken

    def completed(self, source: Source, sent: Mapping[int, int], error: Exception | None) -> None:
        """A broker has answered: records that it renewed are in the program's hands again, the others are gone."""
        renewed = [offset for offset, kind in sent.items() if kind == AcknowledgeType.RENEW]
        if renewed and error is None:
            states = self._states.setdefault(source, {})
            for offset in renewed:
                states.setdefault(offset, _RENEWED)


def offset_ranges(sent: Mapping[int, int]) -> list[OffsetRange]:
    """Acknowledgements by offset as a request carries them, in order."""
    ranges: list[OffsetRange] = []
    for offset in sorted(sent):
        if ranges and offset == ranges[-1].last + 1:
            first, _, types = ranges[-1]
            types.append(sent[offset])
            ranges[-1] = OffsetRange(first, offset, types)
        else:
            ranges.append(OffsetRange(offset, offset, [sent[offset]]))
    return [each if len(set(each.types)) > 1 else OffsetRange(each.first, each.last, each.types[:1]) for each in ranges]
