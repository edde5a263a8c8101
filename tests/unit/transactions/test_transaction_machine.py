"""Many producers, restarts and lost answers in any order: what must hold whatever happens."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.transactions.coordinator import TransactionCoordinator
from odradek.transactions.deadlines import Deadlines
from odradek.transactions.events import Markers, TransactionDecision
from odradek.transactions.records import NO_EPOCH, TV_2, Transaction, TransactionRecord, decode_record
from odradek.transactions.settings import TransactionSettings
from odradek.transactions.states import PREPARED, State, may_follow
from odradek.wire.errors import ErrorCode
from tests.unit.transactions.conftest import Shard

IDS = st.sampled_from(["a", "b"])
PARTITIONS = st.frozensets(st.integers(0, 3), min_size=1, max_size=3)
VERSIONS = st.sampled_from([0, TV_2])


def as_logged(transaction: Transaction) -> Transaction:
    """Without what only a restart may forget: the last epoch while it does not follow from the record."""
    if transaction.client_version < TV_2 or transaction.state in (State.EMPTY, State.ONGOING):
        return transaction._replace(last_producer_epoch=NO_EPOCH)
    return transaction


class WatchedShard(Shard):
    """Checks each transition as it is appended."""

    def __init__(self, settings: TransactionSettings) -> None:
        super().__init__(settings)
        self.highest: dict[int, int] = {}
        self.decided: dict[tuple[int, int], bool] = {}

    def obey(self, outcome: TransactionDecision) -> Any:
        for transactional_id, value in outcome.records:
            before = self.coordinator.transactions.get(transactional_id)
            if value is None:
                assert before is not None
                assert may_follow(before.state, State.DEAD)
            else:
                self._check(before, value)
        return super().obey(outcome)

    def _check(self, before: Transaction | None, value: Transaction) -> None:
        assert value.state not in (State.DEAD, State.PREPARE_EPOCH_FENCE)
        assert value.producer_epoch >= self.highest.get(value.producer_id, 0)
        self.highest[value.producer_id] = value.producer_epoch
        if before is not None:
            # A repeated EndTxn is written again as it was.
            assert value == before or may_follow(before.state, value.state)
            assert value.update_ms >= before.update_ms
            if value.producer_id != before.producer_id:
                assert value.producer_epoch == 0
            if before.state in PREPARED:
                assert (value.state is State.COMPLETE_COMMIT) == (before.state is State.PREPARE_COMMIT)
        if value.state is State.ONGOING or value.state in PREPARED:
            assert value.start_ms >= 0
        if value.state is State.EMPTY:
            assert not value.partitions

    def sent(self, markers: Markers) -> None:
        """No producer epoch's marker of one transaction says commit and later abort."""
        found = self.coordinator.transactions[markers.transactional_id]
        if found.state in PREPARED and found.producer_epoch == markers.producer_epoch:
            assert markers.commit is (found.state is State.PREPARE_COMMIT)
            assert markers.partitions == found.partitions


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shard = WatchedShard(TransactionSettings(id_expiration_ms=500_000, remove_expired_interval_ms=100_000))
        self.producers: dict[str, list[tuple[int, int]]] = {"a": [(-1, -1)], "b": [(-1, -1)]}

    def producer(self, transactional_id: str, age: int) -> tuple[int, int]:
        known = self.producers[transactional_id]
        return known[max(-1 - age, -len(known))]

    @rule(name=IDS, recover=st.none() | st.integers(0, 2), timeout_ms=st.sampled_from([1000, 60_000]))
    def init(self, name: str, recover: int | None, timeout_ms: int) -> None:
        producer = (-1, -1) if recover is None else self.producer(name, recover)
        result = self.shard.init(name, timeout_ms, producer)
        if result.error is ErrorCode.NONE:
            self.producers[name].append((result.producer_id, result.producer_epoch))
        else:
            assert result.producer_id == -1

    @rule(name=IDS, age=st.integers(0, 2), partitions=PARTITIONS, version=VERSIONS)
    def add(self, name: str, age: int, partitions: frozenset[int], version: int) -> None:
        producer = self.producer(name, age)
        if self.shard.add(producer, *partitions, version=version, transactional_id=name) is ErrorCode.NONE:
            found = self.shard.coordinator.transactions[name]
            assert (found.producer_id, found.producer_epoch, found.state) == (*producer, State.ONGOING)
            assert {("topic", partition) for partition in partitions} <= found.partitions

    @rule(name=IDS, age=st.integers(0, 2), commit=st.booleans(), version=VERSIONS)
    def end(self, name: str, age: int, commit: bool, version: int) -> None:
        producer = self.producer(name, age)
        before = self.shard.coordinator.transactions.get(name)
        result = self.shard.end(producer, commit=commit, version=version, transactional_id=name)
        if result.error is not ErrorCode.NONE:
            assert self.shard.coordinator.transactions.get(name) == before
            return
        wanted = (
            (State.PREPARE_COMMIT, State.COMPLETE_COMMIT) if commit else (State.PREPARE_ABORT, State.COMPLETE_ABORT)
        )
        assert self.shard.state(name) in wanted
        if version >= TV_2:
            assert (result.producer_id, result.producer_epoch) > producer
            self.producers[name].append((result.producer_id, result.producer_epoch))

    @rule(times=st.integers(1, 2))
    @precondition(lambda self: bool(self.shard.markers))
    def write_markers(self, times: int) -> None:
        markers = self.shard.markers.popleft()
        for _ in range(times):
            if markers.transactional_id in self.shard.coordinator.transactions:
                self.shard.sent(markers)
            self.shard.obey(self.shard.coordinator.markers_written(markers, self.shard.now_ms))

    @rule(later_ms=st.sampled_from([1, 1001, 60_001, 700_000]))
    def wait(self, later_ms: int) -> None:
        self.shard.now_ms += later_ms

    @rule()
    def expire(self) -> None:
        deadline = self.shard.coordinator.next_deadline_ms()
        outcomes = self.shard.coordinator.expire(self.shard.now_ms)
        assert bool(outcomes) == (deadline is not None and deadline <= self.shard.now_ms)
        for outcome in outcomes:
            self.shard.obey(outcome)

    @rule(name=IDS)
    def exhaust(self, name: str) -> None:
        """Let 32,700 epochs pass."""
        found = self.shard.coordinator.transactions.get(name)
        if found is not None and found.state is State.EMPTY and found.producer_epoch < 32_764:
            step = found._replace(producer_epoch=32_764, last_producer_epoch=NO_EPOCH)
            self.shard.obey(TransactionDecision((TransactionRecord(name, step),)))
            self.producers[name].append((found.producer_id, 32_764))

    @rule()
    def restart(self) -> None:
        self.shard.restart()

    @invariant()
    def log_says_all(self) -> None:
        replica = TransactionCoordinator(self.shard.settings, self.shard.ids)
        for key, value in self.shard.log:
            record = decode_record(key, value)
            assert record is not None
            replica.replay(record)
        live = self.shard.coordinator.transactions
        assert {name: as_logged(value) for name, value in live.items()} == replica.transactions
        # Whatever is prepared and not complete still has markers under way.
        waiting = {(markers.transactional_id, markers.producer_epoch) for markers in self.shard.markers}
        for name, transaction in live.items():
            if transaction.state in PREPARED:
                assert (name, transaction.producer_epoch) in waiting

    @invariant()
    def every_open_transaction_has_a_deadline(self) -> None:
        live = self.shard.coordinator.transactions.values()
        starts = [found.start_ms + found.timeout_ms + 1 for found in live if found.state is State.ONGOING]
        deadline = self.shard.coordinator.next_deadline_ms()
        if starts:
            assert deadline is not None
            assert deadline <= max(min(starts), self.shard.now_ms + 10_000)


TestTransactionMachine = TransactionMachine.TestCase
TestTransactionMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_deadlines_do_not_pile_up() -> None:
    due = {"a": 5}
    deadlines = Deadlines(due.get)
    for turn in range(10_000):
        due["a"] = 1_000_000_000 + turn if turn % 2 else 10 + turn
        deadlines.update("a")
        deadlines.next_ms()
    assert len(deadlines._heap) < 200
    assert deadlines.next_ms() == due["a"]
    assert deadlines.pop_due(due["a"] - 1) is None
    assert deadlines.pop_due(due["a"]) == "a"
    assert deadlines.next_ms() is None
