"""Where partitions end, here and elsewhere, and how old the first record is that a group has not read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.cluster.peers import Purpose
from odradek.broker.observability.partition_ends import ASK_SECONDS, PartitionEnd, PartitionEnds
from odradek.client.errors import TransportError
from odradek.metadata.image import NO_LEADER, ClusterImage, PartitionState, Topic
from odradek.replication.partition import Partition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from tests.unit.log.support import NOW, batch, open_log

HERE, OTHER = 1, 2


class Clock:
    """Both clocks, moved by the test."""

    def __init__(self) -> None:
        self.wall_ms = NOW + 1000
        self.seconds = 100.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.seconds


class Cluster:
    """This broker's replicas, and other brokers with fixed ends of partitions."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.replicas: dict[tuple[str, int], Partition] = {}
        self.leaders = [OTHER, OTHER, 3, HERE, NO_LEADER]
        self.answers: dict[tuple[str, int], tuple[int, int]] = {}
        """(error, offset) by partition."""
        self.requests: list[tuple[int, list[tuple[str, int]]]] = []
        self.fails = False
        self.ends = PartitionEnds(HERE, self, self.image, self, self.clock)

    def image(self) -> ClusterImage:
        states = tuple(PartitionState(leader, 0, (1, 2, 3), (1, 2, 3)) for leader in self.leaders)
        return ClusterImage("cluster").with_topics([Topic("t", b"t" * 16, states)])

    def opened_partition(self, topic: str, index: int) -> Partition | None:
        return self.replicas.get((topic, index))

    async def request(
        self, purpose: Purpose, broker_id: int, request: Any, response_type: Any, version: int, timeout_ms: float
    ) -> ListOffsetsResponse:
        assert (purpose, response_type, version) == (Purpose.METRICS, ListOffsetsResponse, 7)
        assert timeout_ms < ASK_SECONDS * 1000
        assert request.replica_id == -1, "what consumers see"
        asked = [(topic.name, row.partition_index) for topic in request.topics for row in topic.partitions]
        assert {row.timestamp for topic in request.topics for row in topic.partitions} == {-1}
        self.requests.append((broker_id, sorted(asked)))
        if self.fails:
            raise TransportError("no answer")
        rows = [
            ListOffsetsResponsePartition(place[1], found[0], -1, found[1])
            for place in asked
            for found in [self.answers.get(place, (0, 7))]
        ]
        return ListOffsetsResponse(topics=[ListOffsetsResponseTopic("t", rows)])

    def refresh(self, *indexes: int) -> list[tuple[int, list[tuple[str, int]]]]:
        """Ask for these partitions; the requests that were sent."""
        self.requests.clear()
        asyncio.run(self.ends.refresh([("t", index) for index in indexes]))
        return sorted(self.requests)

    def found(self, index: int) -> PartitionEnd:
        end = self.ends.find(("t", index))
        assert end is not None
        return end

    def age(self, index: int, offset: int) -> int | None:
        return self.ends.age_ms(("t", index), offset, self.found(index))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def add_replica(cluster: Cluster, path: Path, *timestamps: list[int], index: int = 0) -> Partition:
    partition = Partition("t", b"t" * 16, index, HERE, open_log(path))
    partition.apply_state(PartitionState(HERE, 0, (HERE,), (HERE,)))
    for times in timestamps:
        partition.append(batch(len(times), timestamps=times), now_ms=NOW)
    cluster.replicas["t", index] = partition
    return partition


def test_end_of_an_open_replica_is_its_high_watermark(cluster: Cluster, tmp_path: Path) -> None:
    partition = add_replica(cluster, tmp_path, [NOW], [NOW])
    assert cluster.found(0) == (2, partition)
    assert cluster.refresh(0) == [], "no other broker is asked"


def test_age_is_that_of_the_records_timestamp(cluster: Cluster, tmp_path: Path) -> None:
    add_replica(cluster, tmp_path, [NOW], [NOW + 400])
    assert (cluster.age(0, 0), cluster.age(0, 1), cluster.age(0, 2), cluster.age(0, 3)) == (1000, 600, 0, 0)


def test_age_of_a_record_of_the_future_is_zero(cluster: Cluster, tmp_path: Path) -> None:
    add_replica(cluster, tmp_path, [NOW + 5000])
    assert cluster.age(0, 0) == 0


def test_age_within_a_batch_is_in_proportion(cluster: Cluster, tmp_path: Path) -> None:
    add_replica(cluster, tmp_path, [NOW], [NOW, NOW + 1, NOW + 2, NOW + 3, NOW + 800])
    assert [cluster.age(0, offset) for offset in range(1, 6)] == [1000, 800, 600, 400, 200]


def test_age_of_deleted_records_is_that_of_the_first_left(cluster: Cluster, tmp_path: Path) -> None:
    partition = add_replica(cluster, tmp_path, [NOW], [NOW + 300])
    partition.log.advance_log_start(1)
    assert cluster.age(0, 0) == 700


def test_timestamp_is_read_once_for_an_offset(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = add_replica(cluster, tmp_path, [NOW], [NOW + 300])
    reads: list[int] = []
    kind = type(partition.log.reader)
    read = kind.read

    def counted(self: Any, offset: int, *args: Any, **kwargs: Any) -> Any:
        reads.append(offset)
        return read(self, offset, *args, **kwargs)

    monkeypatch.setattr(kind, "read", counted)
    assert [cluster.age(0, 0), cluster.age(0, 0), cluster.age(0, 1), cluster.age(0, 1)] == [1000, 1000, 700, 700]
    assert reads == [0, 1]


def test_age_is_unknown_if_the_batch_cannot_be_read(cluster: Cluster, tmp_path: Path) -> None:
    partition = add_replica(cluster, tmp_path, [NOW])
    Path(partition.log.segments[0].path).write_bytes(b"short")
    assert cluster.age(0, 0) is None


def test_end_of_an_unknown_partition_is_unknown(cluster: Cluster) -> None:
    assert cluster.ends.find(("t", 0)) is None


def test_leaders_elsewhere_are_asked_for_their_partitions(cluster: Cluster) -> None:
    cluster.answers = {("t", 0): (0, 5), ("t", 1): (0, 6), ("t", 2): (0, 8)}
    assert cluster.refresh(0, 1, 2, 3, 4, 9) == [(2, [("t", 0), ("t", 1)]), (3, [("t", 2)])]
    assert [cluster.found(index) for index in range(3)] == [(5, None), (6, None), (8, None)]
    assert [cluster.ends.find(("t", index)) for index in (3, 4, 9)] == [None] * 3


@pytest.mark.parametrize(("later", "asked"), [(0.0, 0), (ASK_SECONDS - 0.1, 0), (ASK_SECONDS, 1)])
def test_leaders_are_asked_at_most_every_few_seconds(cluster: Cluster, later: float, asked: int) -> None:
    assert len(cluster.refresh(0)) == 1
    cluster.clock.seconds += later
    assert len(cluster.refresh(0)) == asked


def test_failed_answers_change_nothing(cluster: Cluster) -> None:
    cluster.answers = {("t", 0): (0, 5), ("t", 1): (ErrorCode.NOT_LEADER_OR_FOLLOWER, 9)}
    cluster.refresh(0, 1)
    assert (cluster.found(0).high_watermark, cluster.ends.find(("t", 1))) == (5, None)
    cluster.fails = True
    cluster.clock.seconds += ASK_SECONDS
    assert len(cluster.refresh(0, 1)) == 1
    assert cluster.found(0).high_watermark == 5


def test_age_elsewhere_counts_from_when_the_record_was_seen(cluster: Cluster) -> None:
    for offset, later_ms in ((5, 0), (5, 100), (8, 200), (9, 300)):
        cluster.answers = {("t", 0): (0, offset)}
        cluster.clock.wall_ms = NOW + later_ms
        cluster.clock.seconds += ASK_SECONDS
        cluster.refresh(0)
    cluster.clock.wall_ms = NOW + 1000
    assert [cluster.age(0, offset) for offset in (0, 4, 5, 7, 8, 9)] == [1000, 1000, 800, 800, 700, 0]


def test_age_elsewhere_is_unknown_beyond_the_newest_end(cluster: Cluster) -> None:
    """An unclean election has taken the end back since the caller has seen it."""
    cluster.answers = {("t", 0): (0, 9)}
    cluster.refresh(0)
    before = cluster.found(0)
    cluster.answers = {("t", 0): (0, 5)}
    cluster.clock.seconds += ASK_SECONDS
    cluster.refresh(0)
    assert cluster.ends.age_ms(("t", 0), 7, before) is None


def test_partitions_that_are_wanted_no_longer_are_forgotten(cluster: Cluster, tmp_path: Path) -> None:
    cluster.refresh(0, 2)
    add_replica(cluster, tmp_path, [NOW], index=3)
    assert cluster.age(3, 0) == 1000
    cluster.clock.seconds += ASK_SECONDS
    cluster.refresh(2)
    assert cluster.ends.find(("t", 0)) is None
    assert cluster.found(2).high_watermark == 7
    assert cluster.ends._timestamps == {}
