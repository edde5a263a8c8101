"""Where a follower begins when its leader's log begins in the middle of a batch, and where it ends when it changes."""

from __future__ import annotations

from pathlib import Path

from odradek.log.config import LogConfig
from odradek.log.partition_log import PartitionLog
from odradek.metadata.image import PartitionState
from odradek.ports.disk import SystemDisk
from odradek.records.builder import BatchFields, encode_batch
from odradek.replication.follower import FollowedLog, Next
from odradek.replication.partition import Partition, PartitionEnvironment
from tests.unit.log.support import NOW, log_environment

TOPIC_ID = b"replicated-topic"
STATE = PartitionState(1, 0, (1, 2), (1,), leader_broker_epoch=1)


def _replica(broker_id: int, path: Path) -> Partition:
    path.mkdir()
    environment = log_environment(SystemDisk())
    partition = Partition("t", TOPIC_ID, 0, broker_id, PartitionLog.open("t", 0, str(path), LogConfig(), environment))
    partition.apply_state(STATE)
    return partition


def test_follower_starts_at_the_batch_that_holds_the_log_start(tmp_path: Path) -> None:
    leader = _replica(1, tmp_path / "leader")
    batch = encode_batch([(NOW, None, b"value", ())] * 5)
    leader.append(memoryview(bytearray(batch)), now_ms=NOW)
    leader.log.advance_log_start(3)
    follower = _replica(2, tmp_path / "follower")
    followed = FollowedLog(follower)
    assert followed.offsets_known(3, 5) is Next.FETCH
    assert (follower.log.log_start_offset, follower.log.end_offset) == (3, 3)
    records = memoryview(b"".join(bytes(each) for each in leader.log.reader.read_batches(3, 5)))
    answer = (TOPIC_ID, 0, 0, 5, 3, records, None, None)
    assert followed.received(answer, NOW) is Next.FETCH  # type: ignore[arg-type]
    assert (follower.log.log_start_offset, follower.log.end_offset, follower.high_watermark) == (3, 5, 5)
    assert followed.received(answer, NOW) is Next.FETCH  # type: ignore[arg-type] # a late repetition
    assert (follower.log.log_start_offset, follower.log.end_offset) == (3, 5)


def test_deposed_leader_does_not_claim_records_of_its_successor(tmp_path: Path) -> None:
    """It was sending when it was deposed: the place in its file holds other records by the time it is read."""
    leader, follower = _replica(1, tmp_path / "leader"), _replica(2, tmp_path / "follower")

    def batches(value: bytes, epoch: int, *offsets: int) -> memoryview:
        fields = [BatchFields(base_offset=offset, partition_leader_epoch=epoch) for offset in offsets]
        return memoryview(bytearray().join(encode_batch([(NOW, None, value, ())], each) for each in fields))

    for _ in range(3):
        leader.append(memoryview(encode_batch([(NOW, None, b"old", ())])), now_ms=NOW)
    followed = FollowedLog(follower)
    first = batches(b"old", 0, 0, 1)
    assert followed.received((TOPIC_ID, 0, 0, 0, 0, first, None, None), NOW) is Next.FETCH  # type: ignore[arg-type]
    (on_its_way,) = leader.read_uncommitted(2, 1 << 20, min_one_batch=True).ranges
    leader.apply_state(STATE._replace(leader=3, leader_epoch=1, isr=(3,), replicas=(1, 2, 3), partition_epoch=1))
    leader.replicated.truncate_to(1)
    assert leader.replicated.append(batches(b"new", 1, 1, 2), 1, NOW)
    records = memoryview(bytearray(on_its_way.file.read(on_its_way.position, on_its_way.size)))
    assert followed.received((TOPIC_ID, 0, 0, 0, 0, records, None, None), NOW) is Next.FETCH  # type: ignore[arg-type]
    assert (follower.log.end_offset, follower.log.history.leader_epochs.entries()) == (2, [(0, 0)])


def test_start_that_a_truncation_took_back_is_not_reported_later(tmp_path: Path) -> None:
    """The next start above the log's was reported before it was on the disk."""
    written: list[int] = []
    environment = PartitionEnvironment(persist_start=lambda _, offset: written.append(offset))
    (tmp_path / "follower").mkdir()
    log = PartitionLog.open("t", 0, str(tmp_path / "follower"), LogConfig(), log_environment(SystemDisk()))
    follower = Partition("t", TOPIC_ID, 0, 2, log, environment)
    follower.apply_state(STATE)

    def append(first: int, count: int) -> None:
        for offset in range(first, first + count):
            fields = BatchFields(base_offset=offset, partition_leader_epoch=0)
            assert follower.replicated.append(memoryview(encode_batch([(NOW, None, b"v", ())], fields)), 0, NOW)

    append(0, 8)
    follower.replicated.advance(8, 6)
    follower.replicated.truncate_to(3)
    assert log.log_start_offset == 3
    follower.replicated.start_persisted(6)
    append(3, 4)
    follower.replicated.advance(7, 5)
    assert (written, follower.replicated.reported_start) == ([6, 5], 3)
    follower.replicated.start_persisted(5)
    assert follower.replicated.reported_start == 5
