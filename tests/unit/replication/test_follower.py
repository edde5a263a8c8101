"""One followed partition: what each answer of its leader does to the log, and what follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.log.config import LogConfig
from odradek.log.partition_log import PartitionLog
from odradek.metadata.image import NO_LEADER, PartitionState
from odradek.ports.disk import SystemDisk
from odradek.records.builder import BatchFields, encode_batch
from odradek.replication.follower import FollowedLog, Next
from odradek.replication.partition import Partition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.replica_fetch import FetchedReplica
from tests.unit.log.support import NOW, log_environment

TOPIC_ID = b"replicated-topic"
STATE = PartitionState(1, 0, (1, 2), (1,), leader_broker_epoch=1)


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return open_partition(tmp_path)


def open_partition(path: Path, state: PartitionState = STATE) -> Partition:
    log = PartitionLog.open("t", 0, str(path), LogConfig(), log_environment(SystemDisk()))
    partition = Partition("t", TOPIC_ID, 0, 2, log)
    partition.apply_state(state)
    return partition


def batches(epoch: int, *offsets: int) -> memoryview:
    fields = [BatchFields(base_offset=offset, partition_leader_epoch=epoch) for offset in offsets]
    return memoryview(bytearray().join(encode_batch([(NOW, None, b"value", ())], each) for each in fields))


def answer(
    records: memoryview | bytes = b"",
    *,
    code: int = 0,
    high_watermark: int = 0,
    start: int = 0,
    diverging: tuple[int, int] | None = None,
) -> FetchedReplica:
    return FetchedReplica(TOPIC_ID, 0, code, high_watermark, start, memoryview(records), diverging, None)


def fail_with(monkeypatch: pytest.MonkeyPatch, name: str, *, is_offline: bool, partition: Partition) -> None:
    """The log rejects one kind of change, as a full or failing disk makes it."""

    def fail(*_: Any, **__: Any) -> None:
        monkeypatch.setattr(PartitionLog, "is_offline", is_offline)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")

    monkeypatch.setattr(type(partition.replicated), name, fail)


def test_steps_of_a_follower_are_distinct() -> None:
    assert [step.name for step in Next] == ["FETCH", "DELAY", "OFFSETS", "STOP"]


def test_followed_log_begins_without_failures(partition: Partition) -> None:
    followed = FollowedLog(partition)
    assert (followed.failures, followed.problem, followed.leader_end_offset) == (0, "", -1)


def test_records_without_epochs_are_cut_to_the_high_watermark(tmp_path: Path) -> None:
    """A log of a version that kept no epochs: which of its uncommitted records the leader has is unknown."""
    partition = open_partition(tmp_path)
    partition.replicated.append(batches(0, 0, 1, 2), 0, NOW)
    partition.restore_high_watermark(1)
    partition.log.history.leader_epochs.truncate_from_end(0)
    FollowedLog(partition)
    assert partition.log.end_offset == 1


def test_uncommitted_records_with_epochs_stay_until_the_leader_says(partition: Partition) -> None:
    partition.replicated.append(batches(0, 0, 1, 2), 0, NOW)
    FollowedLog(partition)
    assert partition.log.end_offset == 3


def test_committed_log_without_epochs_is_not_truncated(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    truncated: list[int] = []
    monkeypatch.setattr(type(partition.replicated), "truncate_to", lambda _self, offset: truncated.append(offset))
    FollowedLog(partition)
    assert truncated == []


@pytest.mark.parametrize(
    ("change", "is_current"),
    [
        ({}, True),
        ({"leader": 0, "leader_epoch": 0}, True),
        ({"leader": NO_LEADER}, False),
        ({"leader": 2, "leader_epoch": 0, "isr": (2,)}, False),
        ({"leader_epoch": 1}, False),
    ],
)
def test_followed_log_is_current_under_its_leader_epoch(
    partition: Partition, change: dict[str, Any], is_current: bool
) -> None:
    followed = FollowedLog(partition)
    partition.apply_state(STATE._replace(partition_epoch=1, **change))
    assert followed.is_current is is_current
    if not is_current:
        assert followed.received(answer(batches(0, 0)), NOW) is Next.STOP
        assert followed.offsets_known(5, 9) is Next.STOP
        assert partition.log.end_offset == 0


def test_lag_is_the_distance_to_the_leaders_high_watermark(partition: Partition) -> None:
    followed = FollowedLog(partition)
    assert followed.lag == 0
    followed.received(answer(batches(0, 0, 1), high_watermark=5), NOW)
    assert followed.lag == 3
    followed.received(answer(high_watermark=1), NOW)
    assert followed.lag == 0


def test_row_names_the_last_epoch_and_the_persisted_start(partition: Partition) -> None:
    followed = FollowedLog(partition)
    assert followed.row(1000) == (0, 0, 0, -1, 0, 1000)
    followed.received(answer(batches(0, 0, 1)), NOW)
    assert followed.row(1000) == (0, 0, 2, 0, 0, 1000)


def test_failures_in_a_row_are_counted_until_an_answer_is_used(partition: Partition) -> None:
    followed = FollowedLog(partition)
    broken = answer(code=ErrorCode.UNKNOWN_SERVER_ERROR)
    for expected in (1, 2, 3):
        assert followed.received(broken, NOW) is Next.DELAY
        assert followed.failures == expected
    assert followed.problem == "the leader answers UNKNOWN_SERVER_ERROR"
    assert followed.received(answer(), NOW) is Next.FETCH
    assert followed.failures == 0


@pytest.mark.parametrize(
    ("code", "following"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, Next.OFFSETS),
        (ErrorCode.FENCED_LEADER_EPOCH, Next.STOP),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Next.DELAY),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, Next.DELAY),
        (ErrorCode.KAFKA_STORAGE_ERROR, Next.DELAY),
    ],
)
def test_error_of_the_leader_decides_the_next_step(partition: Partition, code: ErrorCode, following: Next) -> None:
    followed = FollowedLog(partition)
    assert followed.received(answer(batches(0, 0), code=code, high_watermark=1), NOW) is following
    assert partition.log.end_offset == 0
    assert followed.leader_end_offset == -1


@pytest.mark.parametrize(("is_offline", "following"), [(False, Next.DELAY), (True, Next.STOP)])
def test_append_that_fails_is_repeated_unless_the_log_is_offline(
    partition: Partition, monkeypatch: pytest.MonkeyPatch, is_offline: bool, following: Next
) -> None:
    followed = FollowedLog(partition)
    fail_with(monkeypatch, "append", is_offline=is_offline, partition=partition)
    assert followed.received(answer(batches(0, 0)), NOW) is following
    assert "the disk is full" in followed.problem
    assert followed.failures == (following is Next.DELAY)


@pytest.mark.parametrize(("is_offline", "following"), [(False, Next.DELAY), (True, Next.STOP)])
def test_restart_that_fails_is_repeated_unless_the_log_is_offline(
    partition: Partition, monkeypatch: pytest.MonkeyPatch, is_offline: bool, following: Next
) -> None:
    followed = FollowedLog(partition)
    fail_with(monkeypatch, "restart_at", is_offline=is_offline, partition=partition)
    assert followed.offsets_known(5, 9) is following
    assert "the disk is full" in followed.problem


def test_answer_with_less_than_a_batch_changes_the_high_watermark_only(partition: Partition) -> None:
    followed = FollowedLog(partition)
    partition.replicated.append(batches(0, 0, 1), 0, NOW)
    assert followed.received(answer(bytes(60), high_watermark=1), NOW) is Next.FETCH
    assert (partition.log.end_offset, partition.high_watermark) == (2, 1)


def test_late_answer_changes_nothing(partition: Partition) -> None:
    followed = FollowedLog(partition)
    followed.received(answer(batches(0, 0, 1), high_watermark=2), NOW)
    assert followed.received(answer(batches(0, 0, 1), high_watermark=1), NOW) is Next.FETCH
    assert (partition.log.end_offset, partition.high_watermark, followed.leader_end_offset) == (2, 2, 2)


def test_log_that_begins_at_the_last_record_of_a_batch_receives_the_batch(partition: Partition) -> None:
    """The leader deleted all records of the batch but the last."""
    followed = FollowedLog(partition)
    assert followed.offsets_known(2, 3) is Next.FETCH
    batch = memoryview(bytearray(encode_batch([(NOW, None, b"value", ())] * 3, BatchFields(partition_leader_epoch=0))))
    assert followed.received(answer(batch, start=2), NOW) is Next.FETCH
    assert (partition.log.log_start_offset, partition.log.end_offset) == (2, 3)


def test_other_records_below_the_leaders_start_are_replaced(partition: Partition) -> None:
    """The leader deleted them inside of a batch of its own epoch, and knows no earlier one."""
    partition.replicated.append(batches(0, 0, 1), 0, NOW)
    partition.apply_state(STATE._replace(leader_epoch=1, partition_epoch=1))
    followed = FollowedLog(partition)
    batch = bytes(encode_batch([(NOW, None, b"value", ())] * 4, BatchFields(partition_leader_epoch=1)))
    assert followed.received(answer(batch, high_watermark=4, start=2), NOW) is Next.FETCH
    assert (partition.log.log_start_offset, partition.log.end_offset, partition.high_watermark) == (2, 4, 4)


def test_other_records_above_the_leaders_start_are_kept(partition: Partition) -> None:
    partition.replicated.append(batches(0, 0, 1), 0, NOW)
    partition.apply_state(STATE._replace(leader_epoch=1, partition_epoch=1))
    followed = FollowedLog(partition)
    batch = bytes(encode_batch([(NOW, None, b"value", ())] * 4, BatchFields(partition_leader_epoch=1)))
    assert followed.received(answer(batch, start=1), NOW) is Next.FETCH
    assert (partition.log.log_start_offset, partition.log.end_offset) == (0, 2)


def with_epochs(partition: Partition, *epochs: int) -> FollowedLog:
    """A follower whose log has one record of each of these epochs, the last of which its leader has."""
    for offset, epoch in enumerate(epochs):
        state = STATE._replace(leader_epoch=epoch, partition_epoch=offset + 1)
        partition.apply_state(state)
        assert partition.replicated.append(batches(epoch, offset), epoch, NOW)
    partition.apply_state(STATE._replace(leader_epoch=epochs[-1] + 10, partition_epoch=len(epochs) + 1))
    return FollowedLog(partition)


@pytest.mark.parametrize(
    ("epochs", "diverging", "end_offset"),
    [
        # The epoch is known here: both logs have it up to where it ends first.
        ((0, 0, 0), (0, 2), 2),
        ((0, 0, 1, 1), (0, 1), 1),
        ((0, 0, 1, 1), (0, 3), 2),
        ((0, 0, 1, 1), (0, 0), 0),
        # Only later epochs are known here: none of them is in the leader's log.
        ((3, 3, 3), (1, 2), 0),
        ((3, 3, 3), (1, 0), 0),
        # Earlier and later epochs are known: cut the later ones and ask again.
        ((0, 0, 4, 4), (2, 3), 2),
        ((0, 0, 4, 4), (2, 9), 2),
        # The leader knows no end of the epoch: what is not committed goes.
        ((0, 0, 1), (-1, -1), 0),
    ],
)
def test_divergence_truncates_to_the_common_end(
    partition: Partition, epochs: tuple[int, ...], diverging: tuple[int, int], end_offset: int
) -> None:
    followed = with_epochs(partition, *epochs)
    assert followed.received(answer(diverging=diverging), NOW) is Next.FETCH
    assert partition.log.end_offset == end_offset


def test_divergence_without_an_end_keeps_committed_records(partition: Partition) -> None:
    followed = with_epochs(partition, 0, 0, 1)
    partition.replicated.advance(2, 0)
    assert followed.received(answer(diverging=(-1, -1)), NOW) is Next.FETCH
    assert partition.log.end_offset == 2


def test_divergence_of_a_log_without_epochs_truncates_to_the_leaders_end(partition: Partition) -> None:
    followed = with_epochs(partition, 0, 0, 0)
    partition.log.history.leader_epochs.truncate_from_end(0)
    assert followed.received(answer(diverging=(0, 2)), NOW) is Next.FETCH
    assert partition.log.end_offset == 2


def test_divergence_with_nothing_to_cut_is_a_failure(partition: Partition) -> None:
    """Without a pause the follower would ask again and again."""
    followed = with_epochs(partition, 0, 0)
    assert followed.received(answer(diverging=(0, 2)), NOW) is Next.DELAY
    assert followed.problem == "the leader parts at 2 of epoch 0, where there is nothing to cut"
    assert partition.log.end_offset == 2


def test_divergence_that_removes_only_an_empty_epoch_is_progress(partition: Partition) -> None:
    """This broker led in epoch 1 and wrote nothing: the epoch goes, although no record does."""
    followed = with_epochs(partition, 0, 0)
    partition.log.history.leader_epochs.assign(1, 2)
    assert followed.received(answer(diverging=(0, 2)), NOW) is Next.FETCH
    assert partition.log.history.leader_epochs.latest == 0


def test_empty_epoch_that_a_divergence_removes_stays_removed(partition: Partition) -> None:
    """After a restart, the epoch must not claim the older leader's records, which were appended in its place."""
    partition.replicated.append(batches(0, 0), 0, NOW)
    partition.apply_state(STATE._replace(leader=2, leader_epoch=5, isr=(1, 2), partition_epoch=1))
    partition.apply_state(STATE._replace(leader=1, leader_epoch=6, isr=(1, 2), partition_epoch=2))
    followed = FollowedLog(partition)
    assert followed.received(answer(diverging=(0, 2)), NOW) is Next.FETCH
    assert followed.received(answer(batches(0, 1), high_watermark=2), NOW) is Next.FETCH
    log = PartitionLog.open(
        "t", 0, partition.log.directory, LogConfig(), log_environment(SystemDisk()), recovery_point=2, clean=True
    )
    assert (log.end_offset, log.history.leader_epochs.entries()) == (2, [(0, 0)])


def test_log_begins_where_it_diverges_from_its_leader_below_its_start(partition: Partition) -> None:
    """The leader was elected without the records that were deleted here, and has written others."""
    followed = with_epochs(partition, 0, 0, 0)
    partition.replicated.advance(3, 2)
    assert followed.received(answer(diverging=(0, 1)), NOW) is Next.FETCH
    assert (partition.log.log_start_offset, partition.log.end_offset) == (1, 1)
    assert followed.received(answer(batches(1, 1, 2, 3), high_watermark=4), NOW) is Next.FETCH
    assert (partition.log.log_start_offset, partition.log.end_offset) == (1, 4)


@pytest.mark.parametrize(
    ("earliest", "latest", "expected"),
    [
        (0, 3, (0, 3)),  # equal: nothing is removed
        (3, 3, (0, 3)),  # the leader deleted all that is here: it goes with the next answer
        (4, 9, (4, 4)),  # the leader begins after this log
        (0, 2, (0, 2)),  # an unclean leader has less
        (0, 9, (0, 3)),
    ],
)
def test_known_offsets_of_the_leader_place_the_follower(
    partition: Partition, earliest: int, latest: int, expected: tuple[int, int]
) -> None:
    followed = FollowedLog(partition)
    followed.received(answer(batches(0, 0, 1, 2)), NOW)
    assert followed.offsets_known(earliest, latest) is Next.FETCH
    assert (partition.log.log_start_offset, partition.log.end_offset) == expected


def test_known_offsets_equal_to_the_end_rewrite_nothing(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    followed = FollowedLog(partition)
    followed.received(answer(batches(0, 0, 1, 2)), NOW)
    changes: list[str] = []
    kind = type(partition.replicated)
    monkeypatch.setattr(kind, "truncate_to", lambda *_: changes.append("truncate"))
    monkeypatch.setattr(kind, "restart_at", lambda *_: changes.append("restart"))
    for earliest in (0, 3):
        followed.offsets_known(earliest, 3)
    assert changes == []
