"""Metrics of groups: members, offsets, and lag in records and in time, by the names of kafka_exporter.

A group has series on the broker that coordinates it, so that sums over brokers count it once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

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


class _Row(NamedTuple):
    """A committed offset."""

    labels: str
    of_topic: str
    """The labels of group and topic."""
    key: PartitionKey
    offset: int
    lag: int
    """-1 if the partition's end is not known."""
    lag_seconds: float
    """-1 if it is not known."""


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
        rows: list[_Row] = []
        most: dict[str, float] = {}
        for group in shown:
            of_group = label("consumergroup", group.listing.group_id)
            offsets = list(group.offsets.items())
            for start in range(0, len(offsets), _STEP):
                for key, stored in islice(offsets, start, start + _STEP):
                    row = self._row(of_group, key, stored.value.offset)
                    rows.append(row)
                    if row.lag_seconds >= 0:
                        most[of_group] = max(most.get(of_group, 0.0), row.lag_seconds)
                yield None
        yield from _of_rows(rows)
        yield several(MOST_SECONDS, most.items())

    def _row(self, of_group: str, key: PartitionKey, offset: int) -> _Row:
        of_topic = f"{of_group},{label('topic', key[0])}"
        end = self._ends.find(key)
        lag, seconds = -1, -1.0
        if end is not None:
            lag = max(0, end.high_watermark - offset)
            age_ms = self._ends.age_ms(key, offset, end)
            seconds = -1.0 if age_ms is None else age_ms / 1000
        return _Row(f'{of_topic},partition="{key[1]}"', of_topic, key, offset, lag, seconds)


def _of_rows(rows: list[_Row]) -> Iterator[Family | None]:
    offsets: Counter[str] = Counter()
    lags: Counter[str] = Counter()
    for number, row in enumerate(rows):
        offsets[row.of_topic] += row.offset
        if row.lag >= 0:
            lags[row.of_topic] += row.lag
        if not number % 512:
            yield None
    yield several(OFFSET, ((row.labels, row.offset) for row in rows))
    yield several(OFFSET_SUM, offsets.items())
    yield several(LAG, ((row.labels, row.lag) for row in rows if row.lag >= 0))
    yield several(LAG_SUM, lags.items())
    yield several(LAG_SECONDS, ((row.labels, row.lag_seconds) for row in rows if row.lag_seconds >= 0))
