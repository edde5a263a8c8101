"""How the clients treat the errors that librdkafka reports."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults.clients import LibrdkafkaMember, Place

TOLD = 'Failed to fetch committed offsets for {} partition(s) in group "g": Broker: Not coordinator'


class Consumer:
    """Hands out one error, then what ends the test."""

    def __init__(self, member: LibrdkafkaMember, text: str) -> None:
        error = SimpleNamespace(name=lambda: "NOT_COORDINATOR", str=lambda: text)
        self.member = member
        self.messages: list[Any] = [SimpleNamespace(error=lambda: error)]
        self.asked = 0
        self.closed = False

    def subscribe(self, _topics: list[str], **_callbacks: object) -> None: ...

    def consume(self, _count: int, _seconds: float) -> list[Any]:
        self.asked += 1
        if self.asked == 2:
            self.member.caught_up.set()
        found, self.messages = self.messages, []
        return found

    def commit(self, *, asynchronous: bool) -> list[Any]:
        assert not asynchronous
        return []

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(("partitions", "begins_anew"), [(0, True), (2, False)])
def test_member_that_librdkafka_has_given_up_is_recreated(partitions: int, begins_anew: bool) -> None:
    member = LibrdkafkaMember(Place("nowhere", 1), "m", "g", "t")
    consumer: Any = Consumer(member, TOLD.format(partitions))
    member._consume(consumer)
    assert consumer.closed
    assert (consumer.asked == 1) is begins_anew
    assert member.caught_up.is_set() is not begins_anew
