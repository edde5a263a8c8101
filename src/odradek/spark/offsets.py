"""Offsets as a Spark source sees them: what a query covers, how much a micro-batch takes, how it is cut into tasks.

Everything here is arithmetic; `topics` asks the brokers. Source of the rules: KafkaMicroBatchStream, KafkaOffsetReader
and KafkaOffsetRangeCalculator of Spark's own connector.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from odradek.records.topic_partition import TopicPartition

Offsets = dict[TopicPartition, int]


class OffsetRange(NamedTuple):
    """Offsets from `start` up to but not including `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.end - self.start


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The form that Spark's Kafka source keeps in checkpoints: {"topic": {"0": 23}}, in order."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(content: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Offsets by topic and partition, from Spark's form with partitions as text."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in content.items()
        for partition, offset in partitions.items()
    }


def limit_rows(limit: int, start: Offsets, latest: Offsets, earliest_of_new: Offsets) -> Offsets:
    """The end of a micro-batch of about `limit` offsets, shared out in proportion to what each partition has.

    Partitions with little still get one at least. `earliest_of_new` are the beginnings of partitions that `start` does
    not know.
    """
    sizes = {}
    for key, end in latest.items():
        begin = start.get(key, earliest_of_new.get(key))
        if begin is not None and end > begin:
            sizes[key] = (begin, end - begin)
    total = sum(size for _, size in sizes.values())
    if total < 1:
        return dict(latest)
    ends = {}
    for key, end in latest.items():
        if key not in sizes:
            ends[key] = end
            continue
        begin, size = sizes[key]
        share = limit * (size / total)
        ends[key] = min(end, begin + (math.ceil(share) if share < 1 else math.floor(share)))
    return ends


def new_rows(start: Offsets, latest: Offsets) -> int:
    """The number of offsets between two sets; new partitions count from zero."""
    return sum(max(0, end - start.get(key, 0)) for key, end in latest.items())


def split_ranges(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """One range per task: at most `max_records` each, and large ranges cut until there are about `min_partitions`."""
    whole = [each for each in ranges if each.size > 0]
    if max_records is not None:
        whole = [part for each in whole for part in _cut(each, math.ceil(each.size / max_records))]
    if min_partitions is None or len(whole) >= min_partitions:
        return whole
    total = sum(each.size for each in whole)
    kept = [each for each in whole if _parts(each.size, total, min_partitions) == 1]
    rest_total = total - sum(each.size for each in kept)
    rest_partitions = max(min_partitions - len(kept), 1)
    unsplit = set(kept)
    found: list[OffsetRange] = []
    for each in whole:
        if each in unsplit:
            found.append(each)
        else:
            found += _cut(each, _parts(each.size, rest_total, rest_partitions))
    return found


def group_small(
    ranges: Iterable[OffsetRange], limit: int, leader_of: Callable[[OffsetRange], object]
) -> list[list[OffsetRange]]:
    """The ranges of each task: those of one leader share one while they hold no more than `limit` offsets together."""
    tasks: list[list[OffsetRange]] = []
    open_tasks: dict[object, tuple[list[OffsetRange], int]] = {}
    for each in ranges:
        leader = leader_of(each)
        task, size = open_tasks.get(leader, ([], limit))
        if size + each.size > limit:
            task, size = [], 0
            tasks.append(task)
        task.append(each)
        open_tasks[leader] = (task, size + each.size)
    return tasks


def _parts(size: int, total: int, wanted: int) -> int:
    return math.floor(max(size / total * wanted, 1.0) + 0.5)


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    found = []
    start, remaining = whole.start, whole.size
    for number in range(parts):
        size = remaining // (parts - number)
        remaining -= size
        if size:
            found.append(whole._replace(start=start, end=start + size))
            start += size
    return found
