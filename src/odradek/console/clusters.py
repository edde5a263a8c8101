"""The clusters that the console shows: an admin client for each, and samples of offsets and sizes for rates."""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from odradek.client.admin import Admin
from odradek.client.errors import ClientError
from odradek.client.network.metadata import TopicInfo
from odradek.client.reports.activity import Sample, group_rows, partition_rows, sample_cluster, topic_rows
from odradek.client.reports.cluster import topics_of
from odradek.console.broker_metrics import BrokerMetrics
from odradek.console.group_watch import GroupWatch
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import KafkaError

logger = logging.getLogger(__name__)

HISTORY: Final = 360
"""Samples that lag plots show: one hour at 10 s."""
BUSY_SHARE: Final = 0.05
"""Largest share of time that sampling may take: large clusters are sampled less often."""
TOPICS_FRESH_S: Final = 2.0
"""Metadata of all topics is asked for at most this often."""
REQUEST_MS: Final = 10_000
"""Limit for answers: a page must not wait longer."""


MAX_PLOTTED: Final = 500
"""Topics with the most records per second whose rates a sample keeps for plots."""


class Rates(NamedTuple):
    """Per second: records and bytes that were appended, and records that groups have committed."""

    records_in: float
    bytes_in: float | None
    records_out: float


class HistoryPoint(NamedTuple):
    """Lag of all groups in records, and rates of busy topics and of all, at a time in seconds since the epoch."""

    at_s: float
    lags: Mapping[str, int]
    total: Rates | None = None
    topics: Mapping[str, Rates] = {}


class ClusterView:
    """One cluster as one user sees it. Asks the cluster only after `start`."""

    __slots__ = ("_before", "_figures", "_sample_s", "_task", "_topics", "_topics_s", "admin", "brokers", "failure",
                 "groups", "history", "name", "options", "sample")  # fmt: skip

    def __init__(self, name: str, options: Mapping[str, Any], sample_s: float, metrics: Sequence[str] = ()) -> None:
        self.name = name
        """The cluster's name in the console."""
        self.options = {"default_api_timeout_ms": REQUEST_MS, "request_timeout_ms": REQUEST_MS, **options}
        """Options for clients; may hold passwords, so pages never show them."""
        self.admin = Admin(**self.options)
        """The admin client."""
        self.sample: Sample | None = None
        """The last sample."""
        self.failure = ""
        """Why the last sample failed; empty if it did not."""
        self.history: deque[HistoryPoint] = deque(maxlen=HISTORY)
        """Lag of groups over time, the oldest first."""
        self.brokers = BrokerMetrics(metrics)
        """Latencies that brokers report."""
        self.groups = GroupWatch()
        """Members of groups over time."""
        self._before: Sample | None = None
        self._figures: _Figures = _Figures({}, {})
        self._sample_s = sample_s
        self._topics: list[TopicInfo] = []
        self._topics_s = -TOPICS_FRESH_S
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the client and the samples."""
        await self.admin.start()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop the samples and close the client."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.admin.close()

    async def topics(self) -> list[TopicInfo]:
        """All topics by name, at most two seconds old. Raises KafkaError, ClientError."""
        if time.monotonic() - self._topics_s > TOPICS_FRESH_S:
            self._topics = sorted(await topics_of(self.admin), key=lambda each: each.name)
            self._topics_s = time.monotonic()
        return self._topics

    def forget_topics(self) -> None:
        """Ask for topics again next time: they were changed here."""
        self._topics_s = -TOPICS_FRESH_S

    def topic_figures(self) -> Mapping[str, Mapping[str, Any]]:
        """Rows of sizes and rates by topic, as far as they were sampled."""
        return self._figures.topics

    def partition_figures(self, topic: str, partitions: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Rows of offsets, sizes and rates of partitions of a topic, as far as they were sampled."""
        if self.sample is None:
            return {}
        places = (TopicPartition(topic, each) for each in partitions)
        part = {place: self.sample.partitions[place] for place in places if place in self.sample.partitions}
        rows = partition_rows(self._before, self.sample._replace(partitions=part)).get(topic, ())
        return {row["partition"]: row for row in rows}

    def group_figures(self) -> Mapping[str, Mapping[str, Any]]:
        """Rows of lag and rates by group, as far as they were sampled."""
        return self._figures.groups

    @property
    def samples(self) -> tuple[Sample | None, Sample | None]:
        """The sample before the last one, and the last one."""
        return self._before, self.sample

    async def take_sample(self) -> None:
        """Sample the cluster now. Raises KafkaError, ClientError."""
        now = await sample_cluster(self.admin, time.monotonic())
        before = self.sample
        # In a thread: a large cluster has many rows, and pages show those of the last sample until these are known.
        figures, point = await asyncio.to_thread(_digest, before, now, time.time())
        self._before, self.sample, self._figures = before, now, figures
        self.history.append(point)
        await self.groups.observe(self.admin, now.groups)

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            await self.brokers.scrape()
            try:
                await self.take_sample()
                self.failure = ""
            except (KafkaError, ClientError) as error:
                if not self.failure:
                    logger.warning("could not sample the cluster %s: %s; retrying", self.name, error)
                self.failure = str(error) or type(error).__name__
            took = time.monotonic() - began
            await asyncio.sleep(max(self._sample_s, took / BUSY_SHARE))


class _Figures(NamedTuple):
    """Rows of the last sample by name."""

    topics: Mapping[str, Mapping[str, Any]]
    groups: Mapping[str, Mapping[str, Any]]


def _digest(before: Sample | None, now: Sample, at_s: float) -> tuple[_Figures, HistoryPoint]:
    """Rows and rates of a sample. Pure."""
    topics = {row["topic"]: row for row in topic_rows(before, now)}
    groups = {row["group"]: row for row in group_rows(before, now)}
    lags = {name: row["lag"] for name, row in groups.items()}
    if before is None or now.at_s <= before.at_s:
        return _Figures(topics, groups), HistoryPoint(at_s, lags)
    out: Counter[str] = Counter()
    for name, group in now.groups.items():
        earlier = before.groups.get(name)
        if earlier is not None:
            for place, offset in group.committed.items():
                out[place.topic] += max(0, offset - earlier.committed.get(place, offset))
    seconds = now.at_s - before.at_s
    rates = {
        name: Rates(row["records_per_second"] or 0.0, row["bytes_per_second"], out[name] / seconds)
        for name, row in topics.items()
    }
    known = [each.bytes_in for each in rates.values() if each.bytes_in is not None]
    total = Rates(
        sum(each.records_in for each in rates.values()),
        sum(known) if known else None,
        sum(each.records_out for each in rates.values()),
    )
    busy = [name for name, each in rates.items() if each.records_in or each.records_out]
    busy = heapq.nlargest(MAX_PLOTTED, busy, key=lambda name: rates[name].records_in + rates[name].records_out)
    return _Figures(topics, groups), HistoryPoint(at_s, lags, total, {name: rates[name] for name in busy})


class Clusters:
    """The clusters of the console, for everyone or for one login."""

    __slots__ = ("_views",)

    def __init__(
        self, options: Mapping[str, Mapping[str, Any]], sample_s: float, metrics: Mapping[str, Sequence[str]] = {}
    ) -> None:
        self._views = {name: ClusterView(name, each, sample_s, metrics.get(name, ())) for name, each in options.items()}

    async def start(self) -> None:
        """Start all clients."""
        for view in self:
            await view.start()

    async def close(self) -> None:
        """Close all clients."""
        for view in self:
            await view.close()

    def __iter__(self) -> Iterator[ClusterView]:
        return iter(self._views.values())

    def __len__(self) -> int:
        return len(self._views)

    def get(self, name: str) -> ClusterView | None:
        """The cluster of a name."""
        return self._views.get(name)
