"""Groups that read a topic begin at the start of partitions that are added to it."""

from __future__ import annotations

import pytest

from tests.unit.groups.consumer_member import ConsumerMember, rebalance
from tests.unit.groups.virtual_shard import RANGE, VirtualShard

TOPIC = "topic"


@pytest.fixture
def shard() -> VirtualShard:
    made = VirtualShard()
    made.topic(TOPIC, 2)
    return made


def offsets(shard: VirtualShard, group_id: str = "g") -> list[int]:
    return [shard.committed(group_id, TOPIC, partition) for partition in range(4)]


def test_new_partition_starts_at_0_for_a_subscribed_classic_group(shard: VirtualShard) -> None:
    (member,) = shard.stable_group(1, protocols=RANGE)
    shard.commit("g", member, 1, (TOPIC, 0, 7))
    shard.topic(TOPIC, 4)
    assert offsets(shard) == [7, -1, 0, 0]
    shard.restart()
    assert offsets(shard) == [7, -1, 0, 0]


def test_new_partition_starts_at_0_for_a_subscribed_consumer_group(shard: VirtualShard) -> None:
    by_name = ConsumerMember(shard, "m", TOPIC).join()
    by_pattern = ConsumerMember(shard, "m", group_id="h", regex="t.*").join()
    shard.commit("g", "m", by_name.epoch, (TOPIC, 1, 7))
    shard.commit("h", "m", by_pattern.epoch, (TOPIC, 1, 8))
    shard.topic(TOPIC, 3)
    assert offsets(shard) == [-1, 7, 0, -1]
    assert offsets(shard, "h") == [-1, 8, 0, -1]
    rebalance(by_name)
    assert by_name.has(TOPIC) == [0, 1, 2]


def test_new_partition_gets_no_offset_when_the_group_has_none(shard: VirtualShard) -> None:
    ConsumerMember(shard, "m", TOPIC).join()
    shard.stable_group(1, "h", protocols=RANGE)
    shard.topic(TOPIC, 4)
    assert offsets(shard) == offsets(shard, "h") == [-1] * 4


def test_new_partition_starts_at_0_for_a_group_without_members(shard: VirtualShard) -> None:
    """They would lose as much as those who are there, when they come back with `auto.offset.reset=latest`."""
    (member,) = shard.stable_group(1, protocols=RANGE)
    shard.commit("g", member, 1, (TOPIC, 0, 7))
    shard.leave("g", member)
    by_name = ConsumerMember(shard, "m", TOPIC, group_id="h").join()
    shard.commit("h", "m", by_name.epoch, (TOPIC, 1, 7))
    by_name.leave()
    shard.topic(TOPIC, 3)
    assert offsets(shard) == [7, -1, 0, -1]
    assert offsets(shard, "h") == [-1, 7, 0, -1]
    shard.restart()
    shard.topic(TOPIC, 4)
    assert offsets(shard) == [7, -1, 0, 0]
    assert offsets(shard, "h") == [-1, 7, 0, 0]


def test_new_partition_gets_no_offset_when_the_group_is_unsubscribed(shard: VirtualShard) -> None:
    member = ConsumerMember(shard, "m", "other").join()
    shard.commit("g", "m", member.epoch, (TOPIC, 0, 7))
    shard.commit("empty", "", -1, (TOPIC, 0, 7))
    shard.topic(TOPIC, 4)
    assert offsets(shard) == offsets(shard, "empty") == [7, -1, -1, -1]


def test_new_partition_keeps_an_offset_that_is_committed_already(shard: VirtualShard) -> None:
    member = ConsumerMember(shard, "m", TOPIC).join()
    shard.commit("g", "m", member.epoch, (TOPIC, 0, 7), (TOPIC, 2, 9))
    shard.topic(TOPIC, 4)
    assert offsets(shard) == [7, -1, 9, 0]


def test_new_partition_gets_no_offset_when_the_setting_is_off() -> None:
    shard = VirtualShard(new_partitions_from_start=False)
    shard.topic(TOPIC, 2)
    member = ConsumerMember(shard, "m", TOPIC).join()
    shard.commit("g", "m", member.epoch, (TOPIC, 0, 7))
    shard.topic(TOPIC, 4)
    assert offsets(shard) == [7, -1, -1, -1]
    rebalance(member)
    assert member.has(TOPIC) == [0, 1, 2, 3]
