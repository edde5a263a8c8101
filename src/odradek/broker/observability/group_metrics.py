"""Metrics of groups: members, offsets, and lag in records and in time, by the names of kafka_exporter.

A group has series on the broker that coordinates it, so that sums over brokers count it once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from odradek.broker.observability.partition_ends import PartitionEnds
from odradek.groups.events import GroupSurvey
from odradek.metrics.definition import Family, Metric, gauge, label, several, single
from odradek.records.topic_partition import PartitionKey

_GROUP: Final = ("consumergroup",)
_TOPIC: Final = ("consumergroup", "topic")
_PARTITION: Final = ("consumergroup", "topic", "partition")
_STEP: Final = 64
"""Offsets that are looked at in one step."""


def _exporter(name: str, meaning: str, labels: tuple[str, ...]) -> Metric:
    full = f"kafka_consumergroup_{name}"
    return gauge(full, meaning, f"kafka_exporter: {full}", labels)


OFFSET: Final = _exporter("current_offset", "Committed offset", _PARTITION)
OFFSET_SUM: Final = _exporter("current_offset_sum", "Sum of the committed offsets", _TOPIC)
LAG: Final = _exporter("lag", "Records between the committed offset and the high watermark", _PARTITION)
LAG_SUM: Final = _exporter("lag_sum", "Sum of the lags", _TOPIC)
MEMBERS: Final = _exporter("members", "Members of the group", _GROUP)
LAG_SECONDS: Final = gauge(
    "kafka_consumergroup_lag_seconds",
    "Age of the first record that the group has not read, by the record's timestamp; 0 without lag",
    "kafka-lag-exporter: kafka_consumergroup_group_lag_seconds",
    _PARTITION,
)
MOST_SECONDS: Final = gauge(
    "kafka_consumergroup_max_lag_seconds",
    "The largest lag in seconds of the group's partitions",
    "kafka-lag-exporter: kafka_consumergroup_group_max_lag_seconds",
    _GROUP,
)
_MANAGER: Final = "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups"
GROUPS: Final = gauge("kafka_coordinator_group_groupmetadatamanager_numgroups", "Groups coordinated here", _MANAGER)
BY_STATE: Final = {
    state: gauge(
        f"kafka_coordinator_group_groupmetadatamanager_numgroups{state.lower()}",
        f"Groups coordinated here in state {state}",
        f"{_MANAGER}{state}",
    )
    for state in ("Stable", "Empty", "Dead", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
}


class _Columns:
    """The committed offsets of one scrape, a list per figure: see `partition_metrics`."""

    __slots__ = ("labels", "lags", "of_topics", "offsets", "seconds")

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.of_topics: list[str] = []
        """The labels of group and topic."""
        self.offsets: list[int] = []
        self.lags: list[int] = []
        """-1 where the partition's end is not known."""
        self.seconds: list[float] = []
        """-1 where it is not known."""


class GroupMetrics:
    """Reads the groups of this broker."""

    __slots__ = ("_ends", "_groups", "_most_groups")

    metrics = (GROUPS, *BY_STATE.values(), MEMBERS, OFFSET, OFFSET_SUM, LAG, LAG_SUM, LAG_SECONDS, MOST_SECONDS)
    """See `Collector`."""

    def __init__(
        self, groups: Callable[[], Iterator[GroupSurvey]], ends: PartitionEnds, most_groups: Callable[[], int]
    ) -> None:
        """`most_groups`: how many groups have series of their own, of those that come first by name."""
        self._groups = groups
        self._ends = ends
        self._most_groups = most_groups

    async def refresh(self) -> None:
        """Learn where partitions end that have no replica here."""
        await self._ends.refresh(key for group in self._shown(list(self._groups())) for key in group.offsets)

    def _shown(self, groups: list[GroupSurvey]) -> list[GroupSurvey]:
        return sorted(groups, key=lambda each: each.listing.group_id)[: self._most_groups()]

    def collect(self) -> Iterator[Family | None]:
        """See `Collector`."""
        groups: list[GroupSurvey] = []
        for group in self._groups():
            groups.append(group)
            if not len(groups) % _STEP:
                yield None
        states = Counter(group.listing.state for group in groups)
        yield single(GROUPS, len(groups))
        for state, metric in BY_STATE.items():
            yield single(metric, states[state])
        shown = self._shown(groups)
        yield several(MEMBERS, ((label("consumergroup", g.listing.group_id), g.member_count) for g in shown))
        columns = _Columns()
        most: dict[str, float] = {}
        for group in shown:
            of_group = label("consumergroup", group.listing.group_id)
            offsets = list(group.offsets.items())
            for start in range(0, len(offsets), _STEP):
                for key, stored in islice(offsets, start, start + _STEP):
                    seconds = self._add(columns, of_group, key, stored.value.offset)
                    if seconds >= 0:
                        most[of_group] = max(most.get(of_group, 0.0), seconds)
                yield None
        yield from _of_columns(columns)
        yield several(MOST_SECONDS, most.items())

    def _add(self, columns: _Columns, of_group: str, key: PartitionKey, offset: int) -> float:
        """Add an offset; its lag in seconds."""
        of_topic = f"{of_group},{label('topic', key[0])}"
        end = self._ends.find(key)
        lag, seconds = -1, -1.0
        if end is not None:
            lag = max(0, end.high_watermark - offset)
            age_ms = self._ends.age_ms(key, offset, end)
            seconds = -1.0 if age_ms is None else age_ms / 1000
        columns.labels.append(f'{of_topic},partition="{key[1]}"')
        columns.of_topics.append(of_topic)
        columns.offsets.append(offset)
        columns.lags.append(lag)
        columns.seconds.append(seconds)
        return seconds


def _of_columns(c: _Columns) -> Iterator[Family | None]:
    offsets: Counter[str] = Counter()
    lags: Counter[str] = Counter()
    for number, (of_topic, offset, lag) in enumerate(zip(c.of_topics, c.offsets, c.lags, strict=True)):
        offsets[of_topic] += offset
        if lag >= 0:
            lags[of_topic] += lag
        if not number % 512:
            yield None
    yield several(OFFSET, zip(c.labels, c.offsets, strict=True))
    yield several(OFFSET_SUM, offsets.items())
    yield several(LAG, ((labels, lag) for labels, lag in zip(c.labels, c.lags, strict=True) if lag >= 0))
    yield several(LAG_SUM, lags.items())
    yield several(
        LAG_SECONDS, ((labels, seconds) for labels, seconds in zip(c.labels, c.seconds, strict=True) if seconds >= 0)
    )
