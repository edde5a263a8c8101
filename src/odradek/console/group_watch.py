"""Members of active groups over time: descriptions at each sample, and timelines of rebalances."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from odradek.client.admin import Admin, GroupDescription, GroupState
from odradek.client.reports.activity import GroupSample
from odradek.client.reports.rebalances import Timeline
from odradek.wire.errors import KafkaError

MAX_GROUPS: Final = 200
"""Groups that one sample describes: each is a request."""
_INACTIVE: Final = (GroupState.EMPTY, GroupState.DEAD)


class GroupWatch:
    """The watched groups of one cluster."""

    __slots__ = ("_wanted", "described", "timelines")

    def __init__(self) -> None:
        self.described: dict[str, GroupDescription] = {}
        """Groups as the last sample found them."""
        self.timelines: dict[str, Timeline] = {}
        """Rebalances by group."""
        self._wanted: dict[str, None] = {}

    def want(self, group: str) -> None:
        """Watch a group in preference to others: a person looks at it. The last ones of this kind count."""
        self._wanted.pop(group, None)
        self._wanted[group] = None
        if len(self._wanted) > MAX_GROUPS // 2:
            del self._wanted[next(iter(self._wanted))]

    async def observe(self, admin: Admin, groups: Mapping[str, GroupSample]) -> None:
        """Describe active groups, and those that were active before. Raises KafkaError, ClientError."""
        active = [name for name, each in groups.items() if each.state not in _INACTIVE or self._had_members(name)]
        chosen = [*(name for name in self._wanted if name in groups), *sorted(active)]
        described = {}
        for name in list(dict.fromkeys(chosen))[:MAX_GROUPS]:
            found = (await admin.groups.describe([name]))[name]
            if isinstance(found, KafkaError):
                continue
            described[name] = found
            self.timelines.setdefault(name, Timeline()).observe(time.time(), found)
        self.described = described
        self.timelines = {name: each for name, each in self.timelines.items() if name in groups}

    def _had_members(self, name: str) -> bool:
        known = self.described.get(name)
        return known is not None and bool(known.members)
