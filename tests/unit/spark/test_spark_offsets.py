"""Offset arithmetic of the Spark source."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.topic_partition import TopicPartition
from odradek.spark.offsets import (
    OffsetRange,
    SourceError,
    batch_ranges,
    from_json,
    group_small,
    limit_rows,
    new_rows,
    split_ranges,
    to_json,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_offsets_have_the_form_of_sparks_checkpoints() -> None:
    content = to_json({B0: 7, A1: 2, A0: 1})
    assert json.dumps(content, separators=(",", ":")) == '{"a":{"0":1,"1":2},"b":{"0":7}}'
    assert from_json(content) == {A0: 1, A1: 2, B0: 7}


def test_a_limit_is_shared_in_proportion() -> None:
    assert limit_rows(100, {A0: 0, A1: 10}, {A0: 300, A1: 110}, {}) == {A0: 75, A1: 35}


def test_partitions_with_little_are_not_starved() -> None:
    assert limit_rows(10, {A0: 0, A1: 0}, {A0: 1_000_000, A1: 1}, {})[A1] == 1


def test_new_partitions_begin_where_they_begin() -> None:
    ends = limit_rows(10, {A0: 100}, {A0: 110, A1: 60}, {A1: 50})
    assert ends == {A0: 105, A1: 55}


def test_nothing_new_stays() -> None:
    assert limit_rows(10, {A0: 5}, {A0: 5}, {}) == {A0: 5}
    assert new_rows({A0: 5}, {A0: 5, A1: 3}) == 3


OFFSETS = st.dictionaries(st.sampled_from([A0, A1, B0]), st.integers(0, 10**12))


@given(start=OFFSETS, more=OFFSETS, limit=st.integers(1, 10**9))
def test_limited_batches_make_progress_and_end(
    start: dict[TopicPartition, int], more: dict[TopicPartition, int], limit: int
) -> None:
    latest = {key: start.get(key, 0) + size for key, size in more.items()}
    earliest = {key: 0 for key in latest if key not in start}
    ends = limit_rows(limit, start, latest, earliest)
    begins = {**earliest, **start}
    assert ends.keys() == latest.keys()
    sizes = [ends[key] - begins[key] for key in ends]
    assert all(0 <= size <= latest[key] - begins[key] for key, size in zip(ends, sizes, strict=True))
    assert sum(sizes) <= limit + len(ends)
    assert (sum(sizes) > 0) == any(latest[key] > begins[key] for key in latest)


def test_ranges_are_split_into_tasks() -> None:
    whole = [OffsetRange("a", 0, 0, 100), OffsetRange("a", 1, 5, 5), OffsetRange("b", 0, 0, 300)]
    assert split_ranges(whole, None, None) == [whole[0], whole[2]]
    assert split_ranges(whole, 4, None) == [
        OffsetRange("a", 0, 0, 100),
        OffsetRange("b", 0, 0, 100),
        OffsetRange("b", 0, 100, 200),
        OffsetRange("b", 0, 200, 300),
    ]
    assert [each.size for each in split_ranges(whole, None, 150)] == [100, 150, 150]


@given(
    sizes=st.lists(st.integers(0, 10_000), max_size=6),
    least=st.none() | st.integers(1, 50),
    most=st.none() | st.integers(1, 5_000),
)
def test_splits_cover_every_offset_once(sizes: list[int], least: int | None, most: int | None) -> None:
    whole = [OffsetRange("t", number, 10, 10 + size) for number, size in enumerate(sizes)]
    parts = split_ranges(whole, least, most)
    assert all(each.size > 0 for each in parts)
    for each in whole:
        at = each.start
        for part in (part for part in parts if part.partition == each.partition):
            assert part.start == at
            at = part.end
        assert at == each.end
    if most is not None:
        assert all(each.size <= most for each in parts)


@pytest.mark.parametrize("least", [1, 2, 3])
def test_few_partitions_wanted_change_nothing(least: int) -> None:
    whole = [OffsetRange("t", number, 0, 10) for number in range(3)]
    assert split_ranges(whole, least, None) == whole


def test_small_ranges_of_one_leader_share_a_task() -> None:
    ranges = [OffsetRange("t", partition, 0, size) for partition, size in enumerate((3, 4, 50, 5, 2, 6))]
    tasks = group_small(ranges, 10, lambda each: each.partition % 2)
    assert [[each.partition for each in task] for task in tasks] == [[0], [1, 3], [2], [4], [5]]
    assert [len(task) for task in group_small(ranges, 1000, lambda _: 0)] == [6]
    assert [len(task) for task in group_small(ranges, 0, lambda _: 0)] == [1] * 6


@given(st.lists(st.integers(1, 50)), st.integers(0, 100))
def test_groups_hold_every_range_once(sizes: list[int], limit: int) -> None:
    ranges = [OffsetRange("t", partition, 0, size) for partition, size in enumerate(sizes)]
    tasks = group_small(ranges, limit, lambda each: each.partition % 3)
    assert sorted(each for task in tasks for each in task) == ranges
    assert all(len(task) == 1 or sum(each.size for each in task) <= limit for task in tasks)


def test_batch_that_starts_after_its_end_is_an_error() -> None:
    with pytest.raises(SourceError, match="a-0: the start offset 4 is greater than the end offset 2"):
        batch_ranges({A0: 4}, {A0: 2}, {}, fail_on_data_loss=False)


def test_end_beyond_the_log_is_an_error_or_cut() -> None:
    with pytest.raises(SourceError, match="end offset 9 lies beyond the end of the log, 5; failOnDataLoss=false"):
        batch_ranges({A0: 0}, {A0: 9}, {A0: 5}, fail_on_data_loss=True)
    assert batch_ranges({A0: 0}, {A0: 9}, {A0: 5}, fail_on_data_loss=False) == [OffsetRange("a", 0, 0, 5)]
    assert batch_ranges({A0: 7}, {A0: 9}, {A0: 5}, fail_on_data_loss=False)[0].size == 0
