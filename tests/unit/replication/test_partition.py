"""The replica of a partition: leadership, the high watermark, who waits for it, what readers may see."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.log.config import LogConfig
from odradek.log.environment import LogEnvironment
from odradek.log.partition_log import PartitionLog
from odradek.metadata.image import PartitionState
from odradek.metrics.invariants import Invariant, InvariantCounters
from odradek.ports.clock import SystemClock
from odradek.ports.disk import SystemDisk
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.control import encode_end_transaction
from odradek.replication.leadership import Leadership
from odradek.replication.partition import (
    READ_COMMITTED,
    Partition,
    PartitionEnvironment,
    check_offsets,
    release_clients,
)
from odradek.replication.readers import MANY_BYTES, PartitionReaders
from odradek.wire.errors import ErrorCode, KafkaError

NOW_MS = time.time_ns() // 1_000_000
Make = Callable[..., Partition]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make(*, isr: tuple[int, ...] = (1,), replicas: tuple[int, ...] = (1,), **settings: int) -> Partition:
        directory = tmp_path / "t-0"
        directory.mkdir()
        environment = LogEnvironment(SystemDisk(), SystemClock())
        log = PartitionLog.open("t", 0, str(directory), LogConfig(**settings), environment, clean=True)  # type: ignore[arg-type]
        replication = PartitionEnvironment(is_eligible=lambda _id, _epoch: False, invariants=InvariantCounters())
        partition = Partition("t", bytes(16), 0, 1, log, replication)
        partition.apply_state(PartitionState(1, 0, replicas, isr))
        return partition

    return make


def violations(partition: Partition) -> dict[Invariant, int]:
    """What the partition's broker has counted."""
    counts = partition._environment.invariants.counts
    return {invariant: count for invariant, count in counts.items() if count}


def batch(*values: bytes, fields: BatchFields | None = None) -> memoryview:
    return memoryview(encode_batch([(NOW_MS, b"k", value, ()) for value in values], fields or BatchFields()))


def refused(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        call()
    return raised.value.code


def test_a_lone_replica_commits_what_it_appends(make: Make) -> None:
    partition = make()
    result = partition.append(batch(b"a", b"b"), now_ms=NOW_MS)
    assert (result.first_offset, result.last_offset, partition.high_watermark) == (0, 1, 2)
    called: list[int] = []
    partition.when_committed(1, lambda: called.append(1))
    assert called == [1], "at once"


def test_moved_log_reports_later_writes(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = make(flush_messages=1)
    partition.append(batch(b"a"), now_ms=NOW_MS)
    (tmp_path / "moved").mkdir()
    environment = LogEnvironment(SystemDisk(), SystemClock())
    moved = PartitionLog.open("t", 0, str(tmp_path / "moved"), LogConfig(flush_messages=1), environment, clean=True)
    moved.append(batch(b"a"), leader_epoch=0, now_ms=NOW_MS)
    partition.replace_log(moved)
    partition.append(batch(b"b"), now_ms=NOW_MS)
    assert partition.high_watermark == 2
    reported: list[int] = []
    monkeypatch.setattr(Partition, "appended", lambda _self, size: reported.append(size))
    moved.durability._write_listener(7)
    assert reported == [7]


def test_writes_wait_for_the_high_watermark_in_the_order_of_their_offsets(make: Make) -> None:
    partition = make(isr=(1, 2), replicas=(1, 2))
    called: list[int] = []
    for _ in range(3):
        partition.append(batch(b"x"), now_ms=NOW_MS)
    for offset in (2, 0, 1):
        partition.when_committed(offset, lambda offset=offset: called.append(offset))  # type: ignore[misc]
    assert called == []
    assert not partition.is_committed(0)
    partition.followers.fetched(2, 7, 2, 0, 1)
    assert called == [0, 1]
    partition.apply_state(PartitionState(1, 0, (1, 2), (1,), partition_epoch=1))
    assert called == [0, 1, 2], "the other replica has left the in-sync ones"
    assert partition.high_watermark == 3


@pytest.mark.parametrize("how", ["other leader", "gone"])
def test_who_waits_is_released_uncommitted_when_the_leadership_goes(make: Make, how: str) -> None:
    partition = make(isr=(1, 2), replicas=(1, 2))
    partition.append(batch(b"x"), now_ms=NOW_MS)
    seen: list[bool] = []
    woken: list[int] = []
    deleted: list[bool] = []
    partition.when_committed(0, lambda: seen.append(partition.is_committed(0)))
    partition.readers.wait(lambda _, size: woken.append(size))
    partition.deletion.when_deleted(0, lambda: deleted.append(partition.is_leader))
    assert deleted == [], "the follower has not fetched"
    if how == "gone":
        partition.retire()
    else:
        partition.apply_state(PartitionState(2, 1, (1, 2), (1, 2)))
    assert seen == [False]
    assert len(woken) == 1
    assert deleted == [False]
    assert refused(lambda: partition.append(batch(b"y"), now_ms=NOW_MS)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused(partition.check_leader) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_epochs_of_requests_are_checked(make: Make) -> None:
    partition = make()
    partition.apply_state(PartitionState(1, 5, (1,), (1,)))
    partition.check_leader(5)
    partition.check_leader(-1)
    assert refused(lambda: partition.check_leader(4)) is ErrorCode.FENCED_LEADER_EPOCH
    assert refused(lambda: partition.check_leader(6)) is ErrorCode.UNKNOWN_LEADER_EPOCH
    partition.apply_state(PartitionState(2, 4, (1, 2), (1,)))
    assert partition.leader_epoch == 5, "what is older than what is known is not taken"


def test_too_few_in_sync_replicas_reject_writes_that_want_all(make: Make) -> None:
    partition = make(isr=(1,), replicas=(1, 2, 3), min_insync_replicas=2)
    wanted = lambda: partition.append(batch(b"x"), now_ms=NOW_MS, all_in_sync=True)  # noqa: E731
    assert refused(wanted) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log.end_offset == 0
    assert partition.append(batch(b"x"), now_ms=NOW_MS).first_offset == 0, "acks=1 does not ask for them"


def test_min_insync_replicas_is_no_more_than_there_are(make: Make) -> None:
    partition = make(min_insync_replicas=3)
    assert partition.append(batch(b"x"), now_ms=NOW_MS, all_in_sync=True).first_offset == 0


def test_readers_see_what_is_committed_and_no_further(make: Make) -> None:
    partition = make(isr=(1, 2), replicas=(1, 2))
    for _ in range(3):
        partition.append(batch(b"x"), now_ms=NOW_MS)
    partition.high_watermark = 2
    found = partition.read(0, 1 << 20)
    assert (found.high_watermark, found.size) == (2, 2 * len(batch(b"x")))
    assert partition.read(2, 1 << 20).size == 0
    assert refused(lambda: partition.read(4, 100)) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_open_transaction_hides_what_follows_it_from_read_committed(make: Make) -> None:
    partition = make()
    partition.append(batch(b"plain"), now_ms=NOW_MS)
    fields = BatchFields(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    partition.append(batch(b"open", fields=fields), now_ms=NOW_MS)
    partition.append(batch(b"after"), now_ms=NOW_MS)
    assert partition.last_stable_offset == 1
    seen = partition.read(0, 1 << 20, isolation=READ_COMMITTED)
    assert (seen.size, seen.last_stable_offset, seen.aborted) == (len(batch(b"plain")), 1, [])
    assert partition.read(0, 1 << 20).size > seen.size


def test_a_watcher_is_called_once_with_the_bytes_and_not_after_it_left(make: Make) -> None:
    partition = make()
    sizes: list[int] = []

    def watcher(_: PartitionReaders, size: int, /) -> None:
        sizes.append(size)

    partition.readers.wait(watcher)
    partition.append(batch(b"one"), now_ms=NOW_MS)
    partition.append(batch(b"two"), now_ms=NOW_MS)
    assert sizes == [len(batch(b"one"))]
    partition.readers.wait(watcher)
    partition.readers.stop_waiting(watcher)
    partition.append(batch(b"three"), now_ms=NOW_MS)
    assert len(sizes) == 1


def test_reader_whose_history_diverged_learns_where(make: Make) -> None:
    partition = make()
    partition.append(batch(b"a"), now_ms=NOW_MS)
    partition.apply_state(PartitionState(1, 3, (1,), (1,)))
    partition.append(batch(b"b"), now_ms=NOW_MS)
    assert partition.diverging_epoch(1, 0) is None
    assert partition.diverging_epoch(2, 3) is None
    assert partition.diverging_epoch(2, -1) is None, "a reader that sends no epoch is not checked"
    assert partition.diverging_epoch(2, 0) == (0, 1), "epoch 0 ended at 1"
    assert partition.diverging_epoch(2, 2) == (0, 1), "epoch 2 never was"


def test_reassignment_applies_after_an_answer_brought_its_epoch_earlier(make: Make) -> None:
    """A proposal that is asked for again after a move began is answered with the state of now, replicas left out."""
    partition = make(isr=(1, 2), replicas=(1, 2))
    known = PartitionState(1, 0, (1, 2), (1, 2))
    partition.followers._propose((1,))
    assert partition.followers.proposal is not None
    partition.followers.proposal_answered(
        partition.followers.proposal, ErrorCode.NONE, known._replace(isr=(1,), partition_epoch=2)
    )
    assert (partition.isr, partition.partition_epoch) == ((1,), 2)
    partition.apply_state(PartitionState(1, 0, (3, 1, 2), (1,), 2, adding_replicas=(3,)))
    assert partition.replicas == (3, 1, 2)
    assert sorted(partition.followers.progress) == [2, 3]


def test_follower_removed_from_the_isr_does_not_delay_commits(tmp_path: Path) -> None:
    """A follower whose directory failed was caught up a moment ago, its broker lives, and it never fetches again."""
    (tmp_path / "t-0").mkdir()
    environment = LogEnvironment(SystemDisk(), SystemClock())
    log = PartitionLog.open("t", 0, str(tmp_path / "t-0"), LogConfig(min_insync_replicas=2), environment, clean=True)
    replication = PartitionEnvironment(now_ms=lambda: 1000)
    partition = Partition("t", bytes(16), 0, 1, log, replication)
    state = PartitionState(1, 0, (1, 2, 3), (1, 2, 3))
    partition.apply_state(state)
    partition.append(batch(b"a"), now_ms=NOW_MS)
    for follower in (2, 3):
        partition.followers.fetched(follower, 7, 1, 0, 1000)
    assert partition.high_watermark == 1
    partition.apply_state(state._replace(isr=(1, 2), partition_epoch=1))
    # A fetch that was under way: it looks fit for the ISR, and the controller knows better.
    partition.followers.fetched(3, 7, 1, 0, 1000)
    assert partition.followers.proposal is not None
    partition.append(batch(b"b"), now_ms=NOW_MS)
    partition.followers.fetched(2, 7, 2, 0, 1000)
    assert partition.high_watermark == 1, "while the controller decides the third counts"
    partition.followers.proposal_answered(partition.followers.proposal, ErrorCode.INELIGIBLE_REPLICA, None)
    assert partition.high_watermark == 2
    partition.append(batch(b"c"), now_ms=NOW_MS)
    partition.followers.fetched(2, 7, 3, 0, 1000)
    assert partition.high_watermark == 3


def test_follower_removed_by_the_controller_does_not_delay_commits(tmp_path: Path) -> None:
    """It was caught up a moment ago, its broker still lives, and it fetches no more."""
    (tmp_path / "t-0").mkdir()
    environment = LogEnvironment(SystemDisk(), SystemClock())
    log = PartitionLog.open("t", 0, str(tmp_path / "t-0"), LogConfig(), environment, clean=True)
    partition = Partition("t", bytes(16), 0, 1, log, PartitionEnvironment(now_ms=lambda: 1000))
    state = PartitionState(1, 0, (1, 2, 3), (1, 2, 3))
    partition.apply_state(state)
    partition.append(batch(b"a"), now_ms=NOW_MS)
    for follower in (2, 3):
        partition.followers.fetched(follower, 7, 1, 0, 1000)
    partition.apply_state(state._replace(isr=(1, 2), partition_epoch=1))
    partition.append(batch(b"b"), now_ms=NOW_MS)
    partition.followers.fetched(2, 7, 2, 0, 1000)
    assert partition.high_watermark == 2


@pytest.mark.parametrize("news", ["restart of the follower", "state of the partition", "other brokers"])
def test_rejected_follower_is_proposed_again_after_news(tmp_path: Path, news: str) -> None:
    (tmp_path / "t-0").mkdir()
    environment = LogEnvironment(SystemDisk(), SystemClock())
    log = PartitionLog.open("t", 0, str(tmp_path / "t-0"), LogConfig(), environment, clean=True)
    partition = Partition("t", bytes(16), 0, 1, log)
    state = PartitionState(1, 0, (1, 2, 3), (1, 3))
    partition.apply_state(state)
    partition.followers.fetched(2, 7, 0, 0, 1000)
    assert partition.followers.proposal is not None
    partition.followers.proposal_answered(partition.followers.proposal, ErrorCode.INELIGIBLE_REPLICA, None)
    partition.followers.fetched(2, 7, 0, 0, 1001)
    assert partition.followers.proposal is None, "the follower still shuts down"
    if news == "restart of the follower":
        partition.followers.fetched(2, 8, 0, 0, 1002)
    elif news == "state of the partition":
        partition.apply_state(state._replace(isr=(1,), partition_epoch=1))
        partition.followers.fetched(2, 7, 0, 0, 1002)
    else:
        partition.followers.reconsider()
    assert partition.followers.proposal is not None
    assert 2 in partition.followers.proposal.isr


def test_replica_in_a_failed_directory_does_not_delay_the_high_watermark(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    environment = LogEnvironment(SystemDisk(), SystemClock())
    log = PartitionLog.open("t", 0, str(tmp_path / "t-0"), LogConfig(min_insync_replicas=2), environment, clean=True)
    replication = PartitionEnvironment(now_ms=lambda: 1000)
    partition = Partition("t", bytes(16), 0, 1, log, replication)
    state = PartitionState(1, 0, (1, 2, 3), (1, 2), 1)
    partition.apply_state(state)
    partition.append(batch(b"a"), now_ms=NOW_MS)
    partition.followers.fetched(2, 7, 1, 0, 1000)
    partition.followers.fetched(3, 7, 0, 0, 1000)
    partition.append(batch(b"b"), now_ms=NOW_MS)
    partition.followers.fetched(2, 7, 2, 0, 1001)
    # It has all that there was at its fetch before: that is what keeping up is.
    partition.followers.fetched(3, 7, 1, 0, 1001)
    partition.append(batch(b"c"), now_ms=NOW_MS)
    partition.followers.fetched(2, 7, 3, 0, 1001)
    assert (partition.high_watermark, partition.followers.proposal) == (2, None)
    partition.apply_state(state._replace(offline_replicas=(3,)))
    assert partition.high_watermark == 3
    partition.followers.fetched(3, 7, 3, 0, 1002)
    assert partition.followers.proposal is None
    partition.apply_state(state)
    assert partition.followers.proposal is not None, "it is sound again"


def test_clients_are_released_while_the_leader_may_not_act(make: Make) -> None:
    partition = make(isr=(1, 2), replicas=(1, 2))
    leadership = Leadership(1, lambda: 0.0)
    leadership.extend(0.0, 1.0)
    partition._leadership = leadership
    partition.append(batch(b"a"), now_ms=NOW_MS)
    called: list[str] = []
    partition.when_committed(0, lambda: called.append("client"), is_client=True)
    partition.when_committed(0, lambda: called.append("coordinator"))
    release_clients([partition])
    assert not called, "the lease lasts"
    leadership.surrender()
    release_clients([partition])
    assert called == ["client"]
    partition.apply_state(PartitionState(2, 1, (1, 2), (2,)))
    assert called == ["client", "coordinator"]


def test_coordinators_are_answered_in_order_after_clients_were_released(make: Make) -> None:
    partition = make(isr=(1, 2), replicas=(1, 2))
    partition._leadership = leadership = Leadership(1, lambda: 0.0)
    leadership.extend(0.0, 1.0)
    for _ in range(4):
        partition.append(batch(b"a"), now_ms=NOW_MS)
    called: list[int] = []
    for offset, is_client in ((0, True), (3, False), (1, False), (2, False)):
        partition.when_committed(offset, lambda offset=offset: called.append(offset), is_client=is_client)  # type: ignore[misc]
    leadership.surrender()
    release_clients([partition])
    assert called == [0]
    leadership.extend(0.0, 1.0)
    partition.followers.fetched(2, 7, 3, 0, 1)
    assert called == [0, 1, 2]


def test_healthy_partition_violates_no_invariant(make: Make) -> None:
    partition = make()
    partition.append(batch(b"a", b"b"), now_ms=NOW_MS)
    partition.apply_state(PartitionState(2, 1, (1, 2), (1, 2)))
    partition.replicated.truncate_to(2)
    partition.apply_state(PartitionState(1, 2, (1, 2), (1, 2)))
    check_offsets(partition, partition._environment.invariants)
    assert violations(partition) == {}


def test_high_watermark_that_goes_back_is_counted(make: Make) -> None:
    partition = make()
    partition.append(batch(b"a", b"b"), now_ms=NOW_MS)
    partition.high_watermark = 5
    partition.append(batch(b"c"), now_ms=NOW_MS)
    assert violations(partition) == {Invariant.HIGH_WATERMARK_MONOTONIC: 1}


def test_high_watermark_beyond_the_log_is_counted(make: Make) -> None:
    partition = make()
    partition.high_watermark = 5
    check_offsets(partition, partition._environment.invariants)
    assert violations(partition) == {Invariant.HIGH_WATERMARK_WITHIN_LOG: 1}


def test_second_leader_of_an_epoch_is_counted(make: Make) -> None:
    partition = make()
    partition.apply_state(PartitionState(2, 0, (1, 2), (2,)))
    assert violations(partition) == {Invariant.ONE_LEADER_PER_EPOCH: 1}


def test_isr_outside_the_replicas_is_counted(make: Make) -> None:
    assert violations(make(isr=(1, 3), replicas=(1, 2))) == {Invariant.ISR_WITHIN_REPLICAS: 1}


def test_follower_forgets_ended_transactions_below_the_high_watermark(make: Make) -> None:
    partition = make()
    partition.apply_state(PartitionState(2, 1, (1, 2), (1, 2)))
    fields = BatchFields(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    marker = encode_end_transaction(
        commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
    )
    for batches in (batch(b"x", fields=fields), memoryview(marker)):
        batches[:8] = partition.log.end_offset.to_bytes(8, "big")
        assert partition.replicated.append(batches, 1, NOW_MS)
    producers = partition.log.history.producers
    partition.replicated.advance(1, 0)
    assert producers.first_unstable_offset == 0, "the marker is not committed"
    partition.replicated.advance(2, 0)
    assert producers.first_unstable_offset is None


def test_truncation_of_committed_records_is_counted(make: Make) -> None:
    partition = make()
    partition.append(batch(b"a", b"b"), now_ms=NOW_MS)
    partition.apply_state(PartitionState(2, 1, (1, 2), (1, 2)))
    partition.replicated.truncate_to(1)
    assert violations(partition) == {Invariant.COMMITTED_RECORDS_KEPT: 1}


class NotingSession:
    """A follower's fetch session that notes what it is notified of."""

    def __init__(self) -> None:
        self.notes: list[int | str] = []

    def appended(self, size: int) -> None:
        self.notes.append(size)

    def committed(self) -> None:
        self.notes.append("committed")

    def started_later(self) -> None:
        self.notes.append("started later")

    def refresh(self) -> None:
        self.notes.append("refresh")


@pytest.mark.parametrize(
    "end",
    [Partition.retire, lambda led: led.apply_state(PartitionState(2, 1, (1, 2), (2,)))],
    ids=["replica removed", "another leader"],
)
def test_sessions_look_at_a_partition_again_when_leadership_ends(make: Make, end: Callable[[Partition], None]) -> None:
    partition = make(isr=(1, 2), replicas=(1, 2))
    session = NotingSession()
    partition.readers.join(session)
    end(partition)
    assert MANY_BYTES in session.notes


@pytest.mark.parametrize("epoch", [0, 1])
def test_sessions_look_at_a_partition_again_in_a_new_epoch(make: Make, epoch: int) -> None:
    partition = make(isr=(1, 2), replicas=(1, 2))
    session = NotingSession()
    partition.readers.join(session)
    partition.apply_state(PartitionState(1, epoch, (1, 2), (1,), partition_epoch=1))
    assert (MANY_BYTES in session.notes) is (epoch > 0)


def test_consumers_of_a_follower_are_woken_by_its_high_watermark(make: Make) -> None:
    partition = make(isr=(1, 2), replicas=(1, 2))
    partition.apply_state(PartitionState(2, 1, (1, 2), (1, 2)))
    partition.replicated.append(batch(b"a"), 1, NOW_MS)
    woken: list[int] = []
    partition.readers.wait(lambda _, size: woken.append(size))
    partition.replicated.advance(1, 0)
    assert (partition.high_watermark, woken) == (1, [MANY_BYTES])


@pytest.mark.parametrize(("isr", "changes"), [((1,), (1, 0)), ((1, 2), (0, 0)), ((1, 2, 3), (0, 1))])
def test_changes_of_the_isr_are_counted(make: Make, isr: tuple[int, ...], changes: tuple[int, int]) -> None:
    partition = make(isr=(1, 2), replicas=(1, 2, 3))
    partition.apply_state(PartitionState(1, 0, (1, 2, 3), isr, partition_epoch=1))
    assert (partition.traffic.isr_shrinks, partition.traffic.isr_expands) == changes


def test_session_is_notified_no_longer_after_it_left() -> None:
    readers, session = PartitionReaders(), NotingSession()
    readers.join(session)
    readers.appended(5)
    readers.leave(session)
    readers.leave(session)
    readers.appended(6)
    assert session.notes == [5]


def test_partition_and_its_log_are_freed_with_the_last_user(tmp_path: Path) -> None:
    """A search for garbage cycles holds the event loop, so that topics that come and go must leave none."""
    gc.collect()
    gc.disable()
    logs = sum(isinstance(each, PartitionLog) for each in gc.get_objects())
    try:
        log = PartitionLog.open("t", 0, str(tmp_path), LogConfig(), LogEnvironment(SystemDisk(), SystemClock()))
        partition = Partition("t", b"i" * 16, 0, 1, log)
        partition.apply_state(PartitionState(1, 0, (1, 2), (1,)))
        partition.replace_log(log)
        partition.retire()
        found = weakref.ref(partition)
        del partition, log
        assert found() is None
        assert sum(isinstance(each, PartitionLog) for each in gc.get_objects()) == logs
    finally:
        gc.enable()
