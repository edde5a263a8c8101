"""Sizes and rates of topics, brokers and groups, from two samples of a cluster.

Samples use Kafka's protocol alone, so clusters of Apache Kafka are reported, too. Rates are differences of end offsets
and sizes: bytes are those on disk, compressed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.client.admin.requests import raise_first
from odradek.client.model import EARLIEST, LATEST
from odradek.client.reports.cluster import topics_of
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.client.admin import Admin


class PartitionSample(NamedTuple):
    """A partition: its leader, offsets, and the bytes of each replica by broker, empty where they may not be read."""

    leader: int
    start_offset: int
    end_offset: int
    replica_bytes: Mapping[int, int]

    @property
    def size_bytes(self) -> int | None:
        """Bytes of the leader's replica."""
        return self.replica_bytes.get(self.leader)


class GroupSample(NamedTuple):
    """A group: its state, and committed offsets."""

    state: str | None
    committed: Mapping[TopicPartition, int]


class Sample(NamedTuple):
    """A cluster at a moment, in seconds of a monotonic clock. `brokers` has the address of each live one by id."""

    at_s: float
    brokers: Mapping[int, str]
    partitions: Mapping[TopicPartition, PartitionSample]
    groups: Mapping[str, GroupSample]


async def sample_partitions(
    admin: Admin, topics: Collection[str] | None = None
) -> dict[TopicPartition, PartitionSample]:
    """Partitions that have a leader, of these topics or of all. Raises KafkaError, ClientError."""
    found = [each for each in await topics_of(admin) if topics is None or each.name in topics]
    leaders = {
        TopicPartition(topic.name, each.partition): each.leader
        for topic in found
        for each in topic.partitions
        if each.leader >= 0
    }
    if not leaders:
        return {}
    starts = raise_first(await admin.list_offsets(dict.fromkeys(leaders, EARLIEST)))
    ends = raise_first(await admin.list_offsets(dict.fromkeys(leaders, LATEST)))
    sizes: dict[TopicPartition, dict[int, int]] = defaultdict(dict)
    for broker, directories in (await admin.log_dirs.describe(partitions=list(leaders))).items():
        if isinstance(directories, KafkaError):
            continue
        for directory in directories.values():
            for place, replica in directory.replicas.items():
                if not replica.is_future:
                    sizes[place][broker] = replica.size_bytes
    return {
        place: PartitionSample(leader, starts[place].offset, ends[place].offset, sizes.get(place, {}))
        for place, leader in leaders.items()
    }


async def sample_cluster(admin: Admin, at_s: float) -> Sample:
    """Brokers, partitions, and groups that commit offsets, at `at_s`. Raises KafkaError, ClientError."""
    described = await admin.describe_cluster()
    brokers = {each.node_id: f"{each.host}:{each.port}" for each in described.brokers}
    groups = {}
    for listing in await admin.groups.list():
        if listing.protocol_type not in ("", "consumer"):
            continue
        offsets = await admin.groups.offsets(listing.group_id)
        groups[listing.group_id] = GroupSample(listing.state, {place: at.offset for place, at in offsets.items()})
    # After the groups: a committed offset is then never beyond the end.
    return Sample(at_s, brokers, await sample_partitions(admin), groups)


def topic_rows(before: Sample | None, now: Sample) -> list[dict[str, Any]]:
    """A row for each topic: sizes, records, rates since `before`."""
    grouped: dict[str, list[TopicPartition]] = defaultdict(list)
    for place in now.partitions:
        grouped[place.topic].append(place)
    return [
        {"topic": topic, "partitions": len(places), **_figures(before, now, places)}
        for topic, places in sorted(grouped.items())
    ]


def partition_rows(before: Sample | None, now: Sample) -> dict[str, list[dict[str, Any]]]:
    """A row for each partition, by topic."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for place, each in sorted(now.partitions.items()):
        records, size = rates_of(before, now, [place])
        rows[place.topic].append(
            {
                "partition": place.partition,
                "leader": each.leader,
                "start_offset": each.start_offset,
                "end_offset": each.end_offset,
                "size_bytes": each.size_bytes,
                "replica_bytes": {str(broker): count for broker, count in sorted(each.replica_bytes.items())},
                "records_per_second": records,
                "bytes_per_second": size,
            }
        )
    return rows


def broker_rows(before: Sample | None, now: Sample) -> list[dict[str, Any]]:
    """A row for each live broker: rates of the partitions that it leads, bytes of all its replicas."""
    grouped: dict[int, list[TopicPartition]] = defaultdict(list)
    stored: dict[int, int] = defaultdict(int)
    for place, each in now.partitions.items():
        grouped[each.leader].append(place)
        for broker, size in each.replica_bytes.items():
            stored[broker] += size
    rows = []
    for broker, address in sorted(now.brokers.items()):
        figures = _figures(before, now, grouped[broker])
        rows.append(
            {
                "broker": broker,
                "address": address,
                "leads": len(grouped[broker]),
                "records_per_second": figures["records_per_second"],
                "bytes_per_second": figures["bytes_per_second"],
                "size_bytes": stored.get(broker),
            }
        )
    return rows


def group_rows(before: Sample | None, now: Sample) -> list[dict[str, Any]]:
    """A row for each group: lag, records read per second, records per second by which the lag grows."""
    rows = []
    for name, group in sorted(now.groups.items()):
        lag = _lag(group.committed, now)
        earlier = None if before is None else before.groups.get(name)
        seconds = 0.0 if before is None else now.at_s - before.at_s
        rates: dict[str, float | None] = {"records_per_second": None, "lag_per_second": None}
        if before is not None and earlier is not None and seconds > 0:
            read = sum(
                max(0, offset - earlier.committed.get(place, offset)) for place, offset in group.committed.items()
            )
            rates = {
                "records_per_second": read / seconds,
                "lag_per_second": (lag - _lag(earlier.committed, before)) / seconds,
            }
        rows.append({"group": name, "state": group.state, "partitions": len(group.committed), "lag": lag, **rates})
    return rows


def topic_group_rows(now: Sample, topic: str) -> list[dict[str, Any]]:
    """A row for each group that has committed offsets of the topic: partitions, and lag in records of this topic."""
    rows = []
    for name, group in sorted(now.groups.items()):
        committed = {place: offset for place, offset in group.committed.items() if place.topic == topic}
        if committed:
            lag = _lag(committed, now)
            rows.append({"group": name, "state": group.state, "partitions": len(committed), "lag": lag})
    return rows


def rates_of(before: Sample | None, now: Sample, places: Iterable[TopicPartition]) -> tuple[float | None, float | None]:
    """Records and bytes per second that were appended to the partitions; None where there is nothing to compare.

    Bytes are unknown if a partition shrank: retention or compaction hides the growth.
    """
    if before is None or now.at_s <= before.at_s:
        return None, None
    seconds = now.at_s - before.at_s
    records = 0
    grown: int | None = 0
    for place in places:
        earlier, later = before.partitions.get(place), now.partitions[place]
        if earlier is None:
            continue
        records += max(0, later.end_offset - earlier.end_offset)
        growth = _growth(earlier.size_bytes, later.size_bytes)
        grown = None if grown is None or growth is None else grown + growth
    return records / seconds, None if grown is None else grown / seconds


def _growth(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None or now < before else now - before


def _figures(before: Sample | None, now: Sample, places: Collection[TopicPartition]) -> dict[str, Any]:
    records, size = rates_of(before, now, places)
    samples = [now.partitions[place] for place in places]
    sizes = [each.size_bytes for each in samples]
    known = [each for each in sizes if each is not None]
    return {
        "records": sum(each.end_offset - each.start_offset for each in samples),
        "size_bytes": sum(known) if len(known) == len(sizes) else None,
        "total_bytes": sum(sum(each.replica_bytes.values()) for each in samples) if known else None,
        "records_per_second": records,
        "bytes_per_second": size,
    }


def _lag(committed: Mapping[TopicPartition, int], sample: Sample) -> int:
    ends = sample.partitions
    return sum(max(0, ends[place].end_offset - offset) for place, offset in committed.items() if place in ends)
