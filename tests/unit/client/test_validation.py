"""The check after a change of leader (KIP-320): what it finds, and what it must not take for a truncation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.client.consumer.positions import PartitionState
from odradek.client.network.cluster import Cluster
from odradek.client.validation import check_positions
from odradek.records.topic_partition import TopicPartition
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseEpochEndOffset,
    OffsetForLeaderEpochResponseTopic,
)

KEY = TopicPartition("t", 0)


def find_truncated(cluster: object, states: dict[TopicPartition, PartitionState]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}

    def truncated(state: PartitionState, offset: int) -> None:
        found[state.key] = offset

    assert asyncio.run(check_positions(cast("Cluster", cluster), states, truncated)) == {}
    return found


class OneLeader:
    """A cluster of one leader, whose epoch 1 ends at offset 75."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self.metadata = SimpleNamespace(leader_epoch=lambda *_: 2)
        self._meanwhile = meanwhile

    async def leaders(self, partitions: Iterable[TopicPartition]) -> Any:
        return {1: list(partitions)}, {}

    async def request(self, *_: object) -> OffsetForLeaderEpochResponse:
        self._meanwhile()
        found = OffsetForLeaderEpochResponseEpochEndOffset(0, 0, 1, 75)
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderEpochResponseTopic("t", [found])])


@pytest.mark.parametrize(("read_on", "expected"), [(False, {KEY: 75}), (True, {})])
def test_a_position_that_moves_while_it_is_asked_about_is_not_judged(read_on: bool, expected: object) -> None:
    """Found by the simulator (cluster-118): an answer about the old epoch set a reader back that had read on."""
    state = PartitionState(KEY)
    state.seek(80, 1)

    def read() -> None:
        if read_on:
            state.seek(188, 2)

    assert find_truncated(OneLeader(read), {KEY: state}) == expected


class TwoLeaders:
    """A cluster whose partitions have a leader each, all in the epoch that the test says."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self.epoch = 2
        self.metadata = SimpleNamespace(leader_epoch=lambda *_: self.epoch)
        self.asked: list[tuple[int, OffsetForLeaderEpochRequest]] = []
        self._meanwhile = meanwhile

    async def leaders(self, partitions: Iterable[TopicPartition]) -> Any:
        return {key.partition: [key] for key in partitions}, {}

    async def request(
        self, node_id: int, request: OffsetForLeaderEpochRequest, _: object
    ) -> OffsetForLeaderEpochResponse:
        self.asked.append((node_id, request))
        self._meanwhile()
        found = [
            OffsetForLeaderEpochResponseTopic(
                topic.topic,
                [OffsetForLeaderEpochResponseEpochEndOffset(0, each.partition, 1, 75) for each in topic.partitions],
            )
            for topic in request.topics
        ]
        return OffsetForLeaderEpochResponse(topics=found)


def _read_to(offset: int, *keys: TopicPartition) -> dict[TopicPartition, PartitionState]:
    states = {key: PartitionState(key) for key in keys}
    for state in states.values():
        state.seek(offset, 1)
    return states


def test_partition_revoked_during_validation_of_another_is_not_validated() -> None:
    """Found by the simulator (blackout-500034): a KeyError out of poll."""
    other = TopicPartition("t", 1)
    states = _read_to(80, KEY, other)

    def revoked() -> None:
        states.pop(other, None)

    cluster = TwoLeaders(revoked)
    assert find_truncated(cluster, states) == {KEY: 75}
    assert [node_id for node_id, _ in cluster.asked] == [0]


def test_a_leader_speaks_for_its_own_epoch_only() -> None:
    """When another has taken over by the time of the answer, the position is checked again, against that one."""
    states = _read_to(70, KEY)

    def elected() -> None:
        cluster.epoch = 3

    cluster = TwoLeaders(elected)
    assert find_truncated(cluster, states) == {}
    assert states[KEY].validated_epoch == 2
    assert states[KEY].needs_validation(3)


def test_what_was_cut_off_is_not_fetched_while_another_leader_is_asked() -> None:
    """Fetched at the old position, it would continue behind records of the new leader that it has not read."""
    other = TopicPartition("t", 1)
    states = _read_to(80, KEY, other)
    to_be_checked: list[bool] = []
    cluster = TwoLeaders(lambda: to_be_checked.append(states[KEY].needs_validation(2)))
    assert find_truncated(cluster, states) == {KEY: 75, other: 75}
    assert to_be_checked == [True, True]


def test_position_set_during_a_leader_query_is_not_judged_by_its_answer() -> None:
    other = TopicPartition("t", 1)
    states = _read_to(80, KEY, other)

    def sought() -> None:
        if len(cluster.asked) == 1:
            states[KEY].seek(100)

    cluster = TwoLeaders(sought)
    assert find_truncated(cluster, states) == {other: 75}
