"""The sessions of followers' fetches: which of them end when another begins."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.log.config import LogConfig
from odradek.log.partition_log import PartitionLog
from odradek.metadata.image import PartitionState
from odradek.ports.disk import SystemDisk
from odradek.ports.randomness import SeededRandom
from odradek.records.builder import encode_batch
from odradek.replication.in_sync import FollowerProgress
from odradek.replication.partition import Partition, PartitionEnvironment
from odradek.replication.readers import MANY_BYTES, PartitionReaders
from odradek.replication.replica_sessions import (
    MOST_SESSIONS_OF_A_BROKER,
    Follower,
    ReplicaSession,
    ReplicaSessions,
)
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.log.support import NOW, log_environment

FOLLOWER = Follower(2, 10)
RESTARTED = Follower(2, 11)
OTHER = Follower(3, 10)
BEGIN, NONE = 0, 0


class Leader:
    def __init__(self) -> None:
        self.sessions = ReplicaSessions(SeededRandom("sessions"), now_ms=lambda: 0)

    def begin(self, follower: Follower = FOLLOWER, fetched_ms: int = 0) -> ReplicaSession:
        session = self.sessions.continued(NONE, BEGIN, follower)
        session.epoch = 1
        session.fetched_ms = fetched_ms
        return session

    def lasts(self, session: ReplicaSession) -> bool:
        try:
            self.sessions.continued(session.identifier, session.epoch, session.follower)
        except KafkaError as error:
            if error.code is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                raise
            return False
        return True


def test_sessions_of_one_registration_last_side_by_side() -> None:
    leader = Leader()
    found = [leader.begin(), leader.begin(), leader.begin(OTHER)]
    assert [leader.lasts(each) for each in found] == [True, True, True]


def test_sessions_end_when_their_broker_registers_again() -> None:
    leader = Leader()
    before, other, after = leader.begin(), leader.begin(OTHER), leader.begin(RESTARTED)
    assert [leader.lasts(each) for each in (before, other, after)] == [False, True, True]


def test_longest_unused_session_ends_when_a_broker_has_too_many() -> None:
    leader = Leader()
    found = [leader.begin(fetched_ms=1000 - index) for index in range(MOST_SESSIONS_OF_A_BROKER)]
    assert len(leader.sessions) == MOST_SESSIONS_OF_A_BROKER
    newest = leader.begin(fetched_ms=2000)
    assert [leader.lasts(each) for each in (*found[:-1], newest)] == [True] * MOST_SESSIONS_OF_A_BROKER
    assert not leader.lasts(found[-1])


def test_session_belongs_to_the_registration_that_began_it() -> None:
    leader = Leader()
    session = leader.begin()
    for stranger in (RESTARTED, OTHER):
        with pytest.raises(KafkaError) as rejected:
            leader.sessions.continued(session.identifier, 1, stranger)
        assert rejected.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_fetch_out_of_turn_is_rejected() -> None:
    leader = Leader()
    session = leader.begin()
    assert leader.lasts(session)
    with pytest.raises(KafkaError) as rejected:
        leader.sessions.continued(session.identifier, 1, FOLLOWER)
    assert rejected.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_idle_sessions_end() -> None:
    leader = Leader()
    idle, used = leader.begin(fetched_ms=9), leader.begin(fetched_ms=10)
    leader.sessions.end_idle(10)
    assert [leader.lasts(each) for each in (idle, used)] == [False, True]


def test_fetch_is_noted_in_steps_until_the_session_ends() -> None:
    asked: list[int] = []

    def lookup(_topic: object, index: int) -> Partition:
        asked.append(index)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)

    def wanted(count: int) -> list[Any]:
        return [((b"t" * 16, index), (index, 0, 0, 0, 0, 1)) for index in range(count)]

    leader = Leader()
    session = leader.begin()
    steps = session.noting(wanted(200), (), lookup, 5)
    next(steps)
    assert (len(asked), session.fetched_ms) == (63, 5)
    assert [len(asked) for _ in steps] == [127, 191]
    assert asked == list(range(200))
    asked.clear()
    steps = session.noting(wanted(200), (), lookup, 6)
    next(steps)
    leader.sessions.end(session.identifier)
    assert list(steps) == []
    assert (len(asked), session.members) == (63, {})


@pytest.mark.parametrize(("size", "caught_up_ms"), [(1, 50), (MANY_BYTES - 1, 50), (MANY_BYTES, 10)])
def test_follower_without_a_missing_record_is_caught_up_until_an_append(size: int, caught_up_ms: int) -> None:
    """A new leader epoch is no append: it says nothing about what the follower has."""
    partition: Any = SimpleNamespace(
        readers=PartitionReaders(),
        log=SimpleNamespace(end_offset=0, log_start_offset=0),
        followers=SimpleNamespace(progress={2: FollowerProgress(2, 10)}, fetched=lambda *_: None),
        check_fetched_leader=lambda _: None,
        diverging_epoch=lambda *_: None,
    )
    session = Leader().begin()
    session.fetched([((b"t" * 16, 0), (0, 0, 0, 0, 0, 1))], (), lambda *_: partition, 40)
    session.fetched((), (), lambda *_: partition, 50)
    partition.readers.appended(size)
    assert partition.followers.progress[2].caught_up_ms == caught_up_ms


def test_fetch_that_crosses_an_answer_does_not_count_as_caught_up(tmp_path: Path) -> None:
    """A follower outside the ISR sends the second fetch, for another partition, before it has the records."""
    now = 1_000_000
    log = PartitionLog.open("t", 0, str(tmp_path), LogConfig(), log_environment(SystemDisk()))
    partition = Partition("t", b"t" * 16, 0, 1, log, PartitionEnvironment(now_ms=lambda: now))
    partition.apply_state(PartitionState(1, 5, (1, 2, 3), (1, 2), 1))
    for _ in range(3):
        partition.append(memoryview(encode_batch([(NOW, None, b"value", ())])), now_ms=NOW)
    partition.followers.fetched(2, 10, 3, 0, now)
    session = Leader().begin(OTHER)
    for wanted in ([((b"t" * 16, 0), (0, 5, 0, -1, 0, 1 << 20))], []):
        now += 10
        session.fetched(wanted, (), lambda *_: partition, now)
        found, size, _ = session.collect(1 << 20, None)
        assert size == log.size_bytes
        session.answered(found)
    partition.append(memoryview(encode_batch([(NOW, None, b"value", ())])), now_ms=NOW)
    partition.followers.fetched(2, 10, 4, 0, now)
    assert partition.high_watermark == 4
