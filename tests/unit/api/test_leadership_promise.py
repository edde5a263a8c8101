"""Promises that a broker gives to the leaders of partitions which it could lead instead."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.api_10002_leadership_promise import handle
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.replication.leadership import Leadership
from odradek.wire.errors import KafkaError
from odradek.wire.messages.leadership_promise import (
    LeadershipPromiseRequest,
    LeadershipPromiseRequestPartition,
    LeadershipPromiseRequestTopic,
)

TOPIC = bytes(range(16))


def answer(asked: list[tuple[int, int]], leadership: Any) -> list[tuple[bytes, list[int]]]:
    """Which partitions are denied, by topic, of those with these leader epochs; epoch 4 is the newest of each."""
    states = tuple(PartitionState(1, 4, (1, 2), (1, 2)) for _ in range(3))
    image = ClusterImage().with_topics([Topic("t", TOPIC, states)])
    services = SimpleNamespace(image=lambda: image, leadership=leadership)
    parts = [LeadershipPromiseRequestPartition(index, epoch) for index, epoch in asked]
    request = LeadershipPromiseRequest(1, 2500, [LeadershipPromiseRequestTopic(TOPIC, parts)])
    context: Any = SimpleNamespace(services=services)
    return [(topic.topic_id, list(topic.partitions)) for topic in handle(request, context).denied]


def test_leaders_of_an_earlier_epoch_are_denied() -> None:
    promised: list[Any] = []
    leadership = SimpleNamespace(promise=lambda places, seconds: promised.append((list(places), seconds)))
    assert answer([(0, 4), (1, 3), (2, 5)], leadership) == [(TOPIC, [1])]
    assert promised == [([(TOPIC, 0), (TOPIC, 2)], 2.5)]


def test_answer_is_empty_when_nothing_is_denied() -> None:
    assert answer([(0, 4), (1, 4)], Leadership(2, lambda: 0.0)) == []


def test_promise_is_rejected_where_leases_are_off() -> None:
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        answer([(0, 4)], None)
