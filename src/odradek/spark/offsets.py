"""Offsets as a Spark source sees them: what a query covers, how much a micro-batch takes, how it is cut into tasks.

Everything here is arithmetic; `topics` asks the brokers. Source of the rules: KafkaMicroBatchStream, KafkaOffsetReader
and KafkaOffsetRangeCalculator of Spark's own connector.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from odradek.records.topic_partition import TopicPartition

Offsets = dict[TopicPartition, int]


class SourceError(RuntimeError):
    """The query cannot continue as its options ask."""


_CLUSTER: Final = "cluster.id:"
_TOPIC: Final = "topic.id:"
_RESUMED: Final = "resumed.from:"


class Origin(NamedTuple):
    """What offsets belong to: the id of the cluster, and the id of each topic, None and missing where unknown.

    It is kept beside the offsets as names that no topic can have, with no partitions. Spark's own connector reads such
    a name as a topic without partitions, which changes nothing: a query may continue under either format.
    """

    cluster: str | None = None
    topic_ids: Mapping[str, str] = {}
    resumed_from: str | None = None
    """The point of a store at which the query began, as the store names it in the starting offsets that it gives."""

    def recreated(self, now: Origin) -> set[str]:
        """Topics that have another id now: they were deleted and created again."""
        ids = self.topic_ids
        return {topic for topic, topic_id in now.topic_ids.items() if ids.get(topic, topic_id) != topic_id}

    def is_of_another_cluster(self, now: Origin) -> bool:
        """Whether the offsets belong to another cluster than the one that is read now."""
        return None not in (self.cluster, now.cluster) and self.cluster != now.cluster


def origin_of(content: Mapping[str, Any]) -> Origin:
    """The origin that a source has noted in Spark's form of its offsets."""
    cluster, topic_ids, resumed_from = None, {}, None
    for name in content:
        if name.startswith(_CLUSTER):
            cluster = name.removeprefix(_CLUSTER)
        elif name.startswith(_RESUMED):
            resumed_from = name.removeprefix(_RESUMED)
        elif name.startswith(_TOPIC):
            topic, _, topic_id = name.removeprefix(_TOPIC).partition(":")
            topic_ids[topic] = topic_id
    return Origin(cluster, topic_ids, resumed_from)


class OffsetRange(NamedTuple):
    """Offsets from `start` up to but not including `end`."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""
    """The id of the topic that the offsets belong to; empty where unknown."""

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.end - self.start


def to_json(offsets: Mapping[TopicPartition, int], origin: Origin = Origin()) -> dict[str, dict[str, int]]:  # noqa: B008
    """The form that Spark's Kafka source keeps in checkpoints: {"topic": {"0": 23}}, in order; then the origin."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    named = sorted(found)
    if origin.cluster is not None:
        found[_CLUSTER + origin.cluster] = {}
    for topic in named:
        if topic in origin.topic_ids:
            found[f"{_TOPIC}{topic}:{origin.topic_ids[topic]}"] = {}
    if origin.resumed_from is not None:
        found[_RESUMED + origin.resumed_from] = {}
    return found


def from_json(content: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Offsets by topic and partition, from Spark's form with partitions as text."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in content.items()
        for partition, offset in partitions.items()
    }


def batch_ranges(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    log_ends: Mapping[TopicPartition, int],
    *,
    fail_on_data_loss: bool,
) -> list[OffsetRange]:
    """The ranges of a batch query; `log_ends` are the ends of logs that its end offsets may lie beyond.

    Raises SourceError for a start after the end, and for an end beyond the log unless data may be lost.
    """
    ranges = []
    for key, wanted in sorted(ends.items()):
        start, end = starts.get(key), wanted
        if start is None:
            continue
        if start > end:
            raise SourceError(f"{key}: the start offset {start} is greater than the end offset {end}")
        logged = log_ends.get(key, end)
        if end > logged:
            if fail_on_data_loss:
                raise SourceError(
                    f"{key}: the end offset {end} lies beyond the end of the log, {logged}; failOnDataLoss=false reads "
                    "the records that are there"
                )
            end = max(start, logged)
        ranges.append(OffsetRange(*key, start, end))
    return ranges


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
