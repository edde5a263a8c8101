"""The observer of the metadata log, as transcripts of requests, answers and steps."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from odradek.kraft.checkpoints import CheckpointId
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.metadata_log import encode_metadata_batch
from odradek.kraft.metadata_observer import (
    Append,
    Ask,
    InstallSnapshot,
    LogEnd,
    MetadataObserver,
    ObserverIdentity,
    Server,
    TruncateTo,
    WriteSnapshot,
)
from odradek.kraft.metadata_records import VersionedRecord
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import fetch, fetch_snapshot
from odradek.wire.messages.cluster_metadata import NoOpRecord

FIRST, SECOND, THIRD = (Server("c", port) for port in (1, 2, 3))
SNAPSHOT = CheckpointId(100, 4)
NO_SNAPSHOT = CheckpointId(-1, -1)
BEGINNING = LogEnd(0, 0)


def batch(offset: int, epoch: int, count: int = 1) -> bytes:
    records = [VersionedRecord(NoOpRecord(), 0)] * count
    return encode_metadata_batch(records, base_offset=offset, leader_epoch=epoch, timestamp_ms=0)


def observer(
    *, start: LogEnd = BEGINNING, epochs: Sequence[tuple[int, int]] = (), end_offset: int = 0
) -> MetadataObserver:
    identity = ObserverIdentity("cluster", 7, b"d" * 16)
    return MetadataObserver(identity, [FIRST, SECOND], start=start, epochs=epochs, end_offset=end_offset)


def asked(found: MetadataObserver, now_ms: float = 0.0) -> tuple[Server, int, int, int]:
    """The server, and of its Fetch the leader epoch, the offset and the last epoch."""
    ask = found.poll(now_ms)
    assert isinstance(ask, Ask)
    assert isinstance(ask.request, fetch.FetchRequest)
    (part,) = ask.request.topics[0].partitions
    return ask.server, part.current_leader_epoch, part.fetch_offset, part.last_fetched_epoch


def answer(
    *,
    leader: int = 1,
    epoch: int = 5,
    error: ErrorCode = ErrorCode.NONE,
    records: bytes = b"",
    high_watermark: int = -1,
    diverging: tuple[int, int] = (-1, -1),
    snapshot: CheckpointId = NO_SNAPSHOT,
) -> fetch.FetchResponse:
    part = fetch.FetchResponsePartition(
        error_code=error,
        high_watermark=high_watermark,
        diverging_epoch=fetch.FetchResponseEpochEndOffset(*diverging),
        current_leader=fetch.FetchResponseLeaderIdAndEpoch(leader, epoch),
        snapshot_id=fetch.FetchResponseSnapshotId(*snapshot),
        records=records,
    )
    servers = [fetch.FetchResponseNodeEndpoint(n, s.host, s.port) for n, s in ((1, SECOND), (2, THIRD)) if n == leader]
    return fetch.FetchResponse(responses=[fetch.FetchResponseTopic(partitions=[part])], node_endpoints=servers)


def part_answer(
    data: bytes, position: int, size: int, *, error: ErrorCode = ErrorCode.NONE, found: CheckpointId = SNAPSHOT
) -> fetch_snapshot.FetchSnapshotResponse:
    part = fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(
        0,
        error,
        fetch_snapshot.FetchSnapshotResponseSnapshotId(*found),
        fetch_snapshot.FetchSnapshotResponseLeaderIdAndEpoch(1, 5),
        size,
        position,
        data,
    )
    return fetch_snapshot.FetchSnapshotResponse(
        topics=[fetch_snapshot.FetchSnapshotResponseTopicSnapshot("__cluster_metadata", [part])],
        node_endpoints=[fetch_snapshot.FetchSnapshotResponseNodeEndpoint(1, SECOND.host, SECOND.port)],
    )


def test_leader_is_found_by_a_bootstrap_server() -> None:
    found = observer()
    assert asked(found) == (FIRST, 0, 0, 0)
    assert found.fetched(answer(leader=2, error=ErrorCode.FENCED_LEADER_EPOCH), 0.0) == []
    assert asked(found) == (THIRD, 5, 0, 0)
    assert (found.leader_id, found.epoch, found.problem) == (2, 5, "")


def test_next_bootstrap_server_is_asked_when_one_fails() -> None:
    found = observer()
    assert asked(found)[0] == FIRST
    found.failed("no route", 100.0)
    assert found.poll(105.0) == 15.0
    assert asked(found, 120.0)[0] == SECOND


def test_pauses_grow_while_voters_name_a_dead_leader() -> None:
    found = observer()
    pauses, now = [], 0.0
    for _ in range(6):
        asked(found, now)
        found.fetched(answer(leader=2, error=ErrorCode.NOT_LEADER_OR_FOLLOWER), now)
        assert asked(found, now)[0] == THIRD
        found.failed("connection refused", now)
        pause = found.poll(now)
        assert isinstance(pause, float)
        pauses.append(pause)
        now += pause
    assert pauses == [20, 40, 80, 160, 200, 200]
    asked(found, now)
    found.fetched(answer(leader=1, epoch=6), now)
    found.failed("connection refused", now)
    assert found.poll(now) == 20.0


def test_leader_that_fails_is_looked_for_again() -> None:
    found = observer()
    asked(found)
    found.fetched(answer(leader=2), 0.0)
    assert asked(found)[0] == THIRD
    found.failed("timed out", 0.0)
    assert asked(found, 20.0)[0] == SECOND


def test_records_are_appended_and_fetches_name_their_end() -> None:
    found = observer()
    asked(found)
    data = batch(0, 4, 3) + batch(3, 5, 2)
    assert found.fetched(answer(records=data, high_watermark=3), 0.0) == [Append(memoryview(data))]
    assert (found.high_watermark, found.log_end) == (3, LogEnd(5, 5))
    assert asked(found) == (SECOND, 5, 5, 5)


def test_high_watermark_never_passes_the_log_nor_moves_back() -> None:
    found = observer()
    asked(found)
    found.fetched(answer(records=batch(0, 5, 3), high_watermark=9), 0.0)
    assert found.high_watermark == 3
    found.fetched(answer(high_watermark=1), 0.0)
    assert found.high_watermark == 3


def test_batch_that_is_cut_off_is_not_appended() -> None:
    found = observer()
    asked(found)
    whole = batch(0, 5)
    assert found.fetched(answer(records=whole + batch(1, 5)[:-3]), 0.0) == [Append(memoryview(whole))]
    assert found.end_offset == 1


@pytest.mark.parametrize(
    "records",
    [
        batch(1, 5),
        batch(0, 5) + batch(0, 5),
        batch(0, 5) + batch(1, 4),
        batch(0, 6),
        batch(0, 5)[:-1] + b"\xff",
    ],
    ids=["gap", "repeated", "older epoch", "future epoch", "CRC"],
)
def test_records_that_do_not_follow_are_rejected(records: bytes) -> None:
    found = observer()
    asked(found)
    assert found.fetched(answer(records=records), 0.0) == []
    assert "damaged records" in found.problem
    assert found.log_end == LogEnd(0, 0)
    assert found.poll(0.0) == 20.0


@pytest.mark.parametrize(
    ("diverging", "end", "last_epoch"),
    [((4, 25), 25, 4), ((4, 40), 30, 4), ((3, 20), 20, 2), ((2, 15), 15, 2)],
    ids=["inside the epoch", "end of the epoch", "epoch unknown here", "earlier epoch"],
)
def test_log_is_truncated_to_what_the_leader_has(diverging: tuple[int, int], end: int, last_epoch: int) -> None:
    found = observer(epochs=[(2, 0), (4, 20), (5, 30)], end_offset=40)
    asked(found)
    assert found.fetched(answer(epoch=6, diverging=diverging), 0.0) == [TruncateTo(end)]
    assert asked(found) == (SECOND, 6, end, last_epoch)


def test_truncation_to_the_start_leaves_no_epoch() -> None:
    found = observer(epochs=[(2, 0)], end_offset=40)
    asked(found)
    assert found.fetched(answer(diverging=(1, 10)), 0.0) == [TruncateTo(0)]
    assert found.log_end == LogEnd(0, 0)


def test_truncation_of_committed_records_stops_the_broker() -> None:
    found = observer(start=LogEnd(100, 4), epochs=[(4, 100)], end_offset=120)
    asked(found)
    with pytest.raises(CorruptMetadata, match=r"lacks committed records: its log ends at 90"):
        found.fetched(answer(diverging=(4, 90)), 0.0)


def test_snapshot_is_fetched_in_parts_and_replaces_the_log() -> None:
    found = observer(epochs=[(2, 0)], end_offset=10)
    asked(found)
    assert found.fetched(answer(snapshot=SNAPSHOT), 0.0) == []
    for data, position in ((b"abc", 0), (b"de", 3)):
        ask = found.poll(0.0)
        assert isinstance(ask, Ask)
        assert isinstance(ask.request, fetch_snapshot.FetchSnapshotRequest)
        (part,) = ask.request.topics[0].partitions
        assert (ask.server, part.position, part.current_leader_epoch) == (SECOND, position, 5)
        assert part.snapshot_id == fetch_snapshot.FetchSnapshotRequestSnapshotId(100, 4)
        steps = found.snapshot_fetched(part_answer(data, position, 5), 0.0)
        assert steps[0] == WriteSnapshot(SNAPSHOT, position, memoryview(data))
    assert steps[1:] == [InstallSnapshot(SNAPSHOT)]
    assert asked(found) == (SECOND, 5, 100, 4)
    assert found.high_watermark == 100


@pytest.mark.parametrize(
    "part",
    [
        part_answer(b"abc", 1, 5),
        part_answer(b"abcdef", 0, 5),
        part_answer(b"", 0, 5),
        part_answer(b"abc", 0, 5, found=CheckpointId(99, 4)),
        part_answer(b"", 0, 5, error=ErrorCode.SNAPSHOT_NOT_FOUND),
    ],
    ids=["position", "too long", "empty", "another snapshot", "gone"],
)
def test_snapshot_that_does_not_fit_is_given_up(part: fetch_snapshot.FetchSnapshotResponse) -> None:
    found = observer()
    asked(found)
    found.fetched(answer(snapshot=SNAPSHOT), 0.0)
    found.poll(0.0)
    assert found.snapshot_fetched(part, 0.0) == []
    assert found.problem
    assert asked(found, 20.0)[1:] == (5, 0, 0)


def test_snapshot_below_the_committed_records_stops_the_broker() -> None:
    found = observer(start=LogEnd(200, 4))
    asked(found)
    with pytest.raises(CorruptMetadata, match="offers the snapshot"):
        found.fetched(answer(snapshot=SNAPSHOT), 0.0)


def test_answer_of_an_older_epoch_changes_nothing() -> None:
    found = observer(epochs=[(6, 0)], end_offset=3)
    asked(found)
    assert found.fetched(answer(epoch=5, diverging=(2, 1)), 0.0) == []
    assert (found.log_end, found.epoch, found.leader_id) == (LogEnd(3, 6), 6, -1)


def test_second_leader_of_an_epoch_is_rejected() -> None:
    found = observer()
    asked(found)
    found.fetched(answer(leader=1), 0.0)
    assert found.fetched(answer(leader=2, records=batch(0, 5)), 0.0) == []
    assert "has the leaders 1 and 2" in found.problem


def test_new_epoch_without_a_leader_asks_the_bootstrap_servers() -> None:
    found = observer()
    asked(found)
    found.fetched(answer(leader=2), 0.0)
    found.fetched(answer(leader=-1, epoch=6, error=ErrorCode.NOT_LEADER_OR_FOLLOWER), 0.0)
    assert (found.leader_id, found.epoch) == (-1, 6)
    assert asked(found, 20.0)[0] == SECOND


def test_cluster_of_another_id_is_reported() -> None:
    found = observer()
    asked(found)
    assert found.fetched(fetch.FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID), 0.0) == []
    assert found.problem == "a controller answers a Fetch with INCONSISTENT_CLUSTER_ID"
