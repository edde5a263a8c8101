"""The ids of one schema in the subjects of topics, as serializers register it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class SubjectIds:
    """Asks for the id of each topic's subject once."""

    __slots__ = ("_ask", "_ids", "_subject")

    def __init__(self, ask: Callable[[str], int], subject: Callable[[str], str] | None, *, is_key: bool) -> None:
        """`ask` returns the id of a subject and blocks; `subject` names the subject of a topic."""
        self._ask = ask
        self._subject = subject or (_key_subject if is_key else _value_subject)
        self._ids: dict[str, int] = {}

    def of(self, topic: str) -> int:
        """The id for a topic. Raises as `ask`."""
        found = self._ids.get(topic)
        if found is None:
            found = self._ids[topic] = self._ask(self._subject(topic))
        return found

    async def prepare(self, *topics: str) -> None:
        """Ask for the ids of these topics, in a thread. Raises as `ask`."""
        for topic in topics:
            await asyncio.to_thread(self.of, topic)


def _value_subject(topic: str) -> str:
    return f"{topic}-value"


def _key_subject(topic: str) -> str:
    return f"{topic}-key"
