"""Which events the audit topic gets: kinds of events, and what settings leave out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from odradek.wire.apis import ApiKey

LOGIN: Final = "login"
"""The event of a client that has proven its identity."""
LOGIN_FAILURE: Final = "login_failure"
"""The event of a client that has not."""
DENIAL: Final = "denial"
"""The event of a right that a client does not have."""
CHANGE: Final = "change"
"""The event of an administrative change, also of one that failed for another reason than missing rights."""
EVENTS: Final = (LOGIN, LOGIN_FAILURE, DENIAL, CHANGE)
"""Values of the field `event`."""


class Selection(NamedTuple):
    """Events that the topic does not get."""

    events: frozenset[str] = frozenset()
    """Values of `event`, and names of APIs such as OFFSET_COMMIT."""
    principals: frozenset[str] = frozenset()
    topics: tuple[str, ...] = ()
    """Names, or prefixes that end with `*`."""

    def admits(self, event: str, request: str | None, principal: str | None, topic: str | None) -> bool:
        """Whether an event belongs into the topic."""
        if event in self.events or request in self.events or principal in self.principals:
            return False
        return topic is None or not any(
            topic.startswith(each[:-1]) if each.endswith("*") else topic == each for each in self.topics
        )


def check_events(names: Iterable[str]) -> frozenset[str]:
    """Events and APIs in the spelling of the topic. Raises ValueError for a name that is neither."""
    found = []
    for name in names:
        if name.lower() in EVENTS:
            found.append(name.lower())
        elif name.upper() in ApiKey.__members__:
            found.append(name.upper())
        else:
            raise ValueError(f"{name} is neither an API nor one of {', '.join(EVENTS)}")
    return frozenset(found)
