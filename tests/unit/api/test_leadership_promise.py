"""Promises that a broker gives to the leaders of partitions which it could lead instead."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.api_10002_leadership_promise import handle
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.records.topic_partition import TopicIdPartition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.leadership_promise import (
    LeadershipPromiseRequest,
    LeadershipPromiseRequestPartition,
    LeadershipPromiseRequestTopic,
)

TOPIC = bytes(range(16))


class Giver:
    """A broker's promises."""

    def __init__(self, *, notes: bool = True) -> None:
        self.notes = notes
        self.given: list[tuple[list[TopicIdPartition], float]] = []

    async def give(self, places: Collection[TopicIdPartition], seconds: float) -> None:
        if not self.notes:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        self.given.append((list(places), seconds))


def answer(asked: list[tuple[int, int]], promises: Giver | None) -> list[tuple[bytes, list[int]]]:
    """Which partitions are denied, by topic, of those with these leader epochs; epoch 4 is the newest of each."""
    states = tuple(PartitionState(1, 4, (1, 2), (1, 2)) for _ in range(3))
    image = ClusterImage().with_topics([Topic("t", TOPIC, states)])
    services = SimpleNamespace(image=lambda: image, promises=promises)
    parts = [LeadershipPromiseRequestPartition(index, epoch) for index, epoch in asked]
    request = LeadershipPromiseRequest(1, 2500, [LeadershipPromiseRequestTopic(TOPIC, parts)])
    context: Any = SimpleNamespace(services=services)
    return [(topic.topic_id, list(topic.partitions)) for topic in asyncio.run(handle(request, context)).denied]


def test_leaders_of_an_earlier_epoch_are_denied() -> None:
    promises = Giver()
    assert answer([(0, 4), (1, 3), (2, 5)], promises) == [(TOPIC, [1])]
    assert promises.given == [([(TOPIC, 0), (TOPIC, 2)], 2.5)]


def test_answer_is_empty_when_nothing_is_denied() -> None:
    assert answer([(0, 4), (1, 4)], Giver()) == []


def test_promise_that_is_not_noted_is_not_given() -> None:
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        answer([(0, 4)], Giver(notes=False))


def test_promise_is_rejected_where_leases_are_off() -> None:
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        answer([(0, 4)], None)
