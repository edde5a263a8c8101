"""Changes of a group's members over time, from descriptions that were taken one after the other. Pure.

Kafka's protocol reports no history: changes between two descriptions are seen as one, and their times are those of the
descriptions. A rebalance of the classic protocol after which all members have the same partitions is not seen unless a
description falls into it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.client.admin import GroupDescription, GroupState, MemberDescription
from odradek.records.topic_partition import TopicPartition

HISTORY: Final = 100
"""Rebalances that a timeline keeps."""
MAX_NAMES: Final = 10
"""Members that one rebalance names."""
_STABLE: Final = (GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD)


class Rebalance(NamedTuple):
    """A change of the members or of their partitions.

    `at_s` is when it was first seen, in the clock of the caller. `duration_s` is None while it runs; it is at most
    that long if no description fell into it. `joined`, `left` and `restarted` name members by client id and host, also
    those that came and went within it; static members that came back under another member id are restarted. `epoch` is
    that of KIP-848.
    """

    at_s: float
    duration_s: float | None
    is_upper_bound: bool
    joined: tuple[str, ...]
    left: tuple[str, ...]
    restarted: tuple[str, ...]
    moved_partitions: int
    members: int
    reason: str
    epoch: int | None


class _Settled(NamedTuple):
    """A group between rebalances."""

    members: Mapping[str, MemberDescription]
    owners: Mapping[TopicPartition, str]
    assignor: str
    epoch: int | None


class Timeline:
    """The last rebalances of one group."""

    __slots__ = ("_began_s", "_last_s", "_passing", "_settled", "rebalances")

    def __init__(self) -> None:
        self.rebalances: deque[Rebalance] = deque(maxlen=HISTORY)
        """The oldest first; a running one is the last."""
        self._settled: _Settled | None = None
        self._passing: dict[str, MemberDescription] = {}
        self._last_s = 0.0
        self._began_s: float | None = None

    def observe(self, at_s: float, group: GroupDescription) -> None:
        """Note what has changed since the description before."""
        now = _settled(group)
        is_stable = group.state in _STABLE
        before = self._settled
        if before is None:
            if is_stable:
                self._settled = now
        elif is_stable:
            if self._began_s is not None:
                self.rebalances.pop()
                self._add(before, now, self._began_s, at_s - self._began_s)
                self._began_s = None
                self._passing = {}
            elif _has_changed(before, now):
                self._add(before, now, at_s, at_s - self._last_s, is_upper_bound=True)
            self._settled = now
        else:
            if self._began_s is None:
                self._began_s = at_s
            else:
                self.rebalances.pop()
            self._passing |= now.members
            self._add(before, now, self._began_s, None)
        self._last_s = at_s

    def _add(
        self, before: _Settled, now: _Settled, at_s: float, duration_s: float | None, *, is_upper_bound: bool = False
    ) -> None:
        """Note a rebalance. Members that were seen in its course count, too."""
        seen = {**before.members, **self._passing, **now.members}
        new = [each for name, each in seen.items() if name not in before.members]
        gone = [each for name, each in seen.items() if name not in now.members]
        static = {each.group_instance_id for each in before.members.values() if each.group_instance_id}
        restarted = [each for each in new if each.group_instance_id in static and each.member_id in now.members]
        back = {each.group_instance_id for each in restarted}
        joined = [each for each in new if each not in restarted]
        left = [each for each in gone if each.group_instance_id not in back]
        places = before.owners.keys() | now.owners.keys()
        moved = sum(before.owners.get(place) != now.owners.get(place) for place in places)
        reason = _reason(before, now, len(joined), len(left), len(restarted))
        self.rebalances.append(
            Rebalance(
                at_s, duration_s, is_upper_bound, _names(joined), _names(left), _names(restarted),
                0 if duration_s is None else moved, len(now.members), reason, now.epoch,
            )
        )  # fmt: skip


def _settled(group: GroupDescription) -> _Settled:
    return _Settled(
        {each.member_id: each for each in group.members},
        {place: each.group_instance_id or each.member_id for each in group.members for place in each.assignment or ()},
        group.partition_assignor,
        group.epoch,
    )


def _has_changed(before: _Settled, now: _Settled) -> bool:
    return (
        before.members.keys() != now.members.keys()
        or before.owners != now.owners
        or before.epoch != now.epoch
        or (before.assignor != now.assignor and bool(before.assignor) and bool(now.assignor))
    )


def _reason(before: _Settled, now: _Settled, joined: int, left: int, restarted: int) -> str:
    causes = [
        f"{count} {what}"
        for count, what in ((joined, "joined"), (left, "left or timed out"), (restarted, "restarted (static)"))
        if count
    ]
    if before.assignor and now.assignor and before.assignor != now.assignor:
        causes.append(f"assignor changed from {before.assignor} to {now.assignor}")
    return ", ".join(causes) or "subscriptions or partitions of topics changed, or a member joined again"


def _names(members: list[MemberDescription]) -> tuple[str, ...]:
    names = sorted(f"{each.client_id} at {each.client_host.removeprefix('/')}" for each in members)
    rest = len(names) - MAX_NAMES
    return (*names[:MAX_NAMES], f"and {rest} more") if rest > 0 else tuple(names)
