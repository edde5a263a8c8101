"""What the coordinator decides, request by request, with the errors of Apache Kafka."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from odradek.transactions.coordinator import DEADLINES_AT_ONCE, TransactionCoordinator, states_of
from odradek.transactions.events import AddPartitions, EndTransaction, InitProducerId, NoProducerIds, ProducerResult
from odradek.transactions.records import LAST_CLIENT_EPOCH, MAX_EPOCH, TransactionRecord
from odradek.transactions.settings import TransactionSettings
from odradek.transactions.states import State
from odradek.wire.errors import ErrorCode

TV1 = 0
TV2 = 2


def producer_of(result: ProducerResult) -> tuple[int, int]:
    assert result.error is ErrorCode.NONE
    return result.producer_id, result.producer_epoch


def with_epoch(shard: Any, epoch: int) -> tuple[int, int]:
    """Let the id's producer be at an epoch."""
    shard.init()
    found = shard.coordinator.transactions["tx"]
    shard.coordinator.replay(TransactionRecord("tx", found._replace(producer_epoch=epoch)))
    return found.producer_id, epoch


# --- InitProducerId ---


def test_a_new_id_gets_a_producer(shard: Any) -> None:
    assert shard.init() == ProducerResult(ErrorCode.NONE, 1000, 0)
    assert shard.state() is State.EMPTY


def test_the_same_id_again_fences_by_the_next_epoch(shard: Any) -> None:
    shard.init()
    assert shard.init() == ProducerResult(ErrorCode.NONE, 1000, 1)
    assert shard.add((1000, 0), 0) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_init_is_rejected_when_the_timeout_is_out_of_range(shard: Any, timeout_ms: int) -> None:
    assert shard.init(timeout_ms=timeout_ms).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert shard.log == []


def test_init_is_rejected_when_the_transactional_id_is_empty(shard: Any) -> None:
    assert shard.init("").error is ErrorCode.INVALID_REQUEST


def test_a_recovering_producer_keeps_its_id(shard: Any) -> None:
    producer = producer_of(shard.init())
    assert shard.init(producer=producer) == ProducerResult(ErrorCode.NONE, 1000, 1)
    # The answer was lost: the same request gets the same answer.
    assert shard.init(producer=producer) == ProducerResult(ErrorCode.NONE, 1000, 1)


def test_a_fenced_producer_cannot_recover(shard: Any) -> None:
    producer = producer_of(shard.init())
    shard.init()
    assert shard.init(producer=producer).error is ErrorCode.PRODUCER_FENCED
    assert shard.init(producer=(4711, 0)).error is ErrorCode.PRODUCER_FENCED


def test_recovery_of_a_forgotten_id_gets_a_new_producer(shard: Any) -> None:
    assert shard.init(producer=(7, 5)) == ProducerResult(ErrorCode.NONE, 1000, 0)


def test_an_exhausted_epoch_gets_a_new_producer_id(shard: Any) -> None:
    producer = with_epoch(shard, LAST_CLIENT_EPOCH)
    assert shard.init() == ProducerResult(ErrorCode.NONE, 1001, 0)
    # This was another client: the old producer is fenced, not served its successor's id.
    assert shard.init(producer=producer).error is ErrorCode.PRODUCER_FENCED


# --- after a log that may have lost its end ---


def reloaded(shard: Any, *ids: str) -> None:
    """The state as another process finds it that does not know whether the log is whole."""
    before = shard.coordinator.transactions
    shard.coordinator.transactions = {}
    for transactional_id in ids:
        shard.coordinator.replay(TransactionRecord(transactional_id, before[transactional_id]))
    shard.coordinator.loaded(shard.now_ms, uncertain=True)


def test_no_epoch_is_handed_out_again_when_the_log_may_have_lost_its_end(shard: Any) -> None:
    producer = producer_of(shard.init())
    reloaded(shard, "tx")
    assert shard.add(producer, 0) is ErrorCode.NONE, "a producer that continues with the known epoch is served"
    assert shard.end(producer).error is ErrorCode.NONE
    shard.write_markers()
    assert shard.init() == ProducerResult(ErrorCode.NONE, 1001, 0), "another producer id, not epoch 1"
    assert shard.init() == ProducerResult(ErrorCode.NONE, 1001, 1), "once"
    assert shard.add(producer, 0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_new_transactional_id_is_served_while_others_are_uncertain(shard: Any) -> None:
    producer_of(shard.init())
    reloaded(shard, "tx")
    assert shard.init("another") == ProducerResult(ErrorCode.NONE, 1001, 0)
    assert shard.init("another") == ProducerResult(ErrorCode.NONE, 1001, 1), "a new one is certain"
    assert shard.init() == ProducerResult(ErrorCode.NONE, 1002, 0), "and the old one is not yet"


def test_a_producer_whose_epoch_was_lost_recovers(shard: Any) -> None:
    producer_of(shard.init())
    reloaded(shard, "tx")
    lost = (1000, 3)
    assert shard.init(producer=lost) == ProducerResult(ErrorCode.NONE, 1001, 0)
    assert shard.init(producer=lost) == ProducerResult(ErrorCode.NONE, 1001, 0), "the answer was lost"
    assert shard.init(producer=(1000, 0)).error is ErrorCode.PRODUCER_FENCED


def test_a_fenced_producer_does_not_recover_there_either(shard: Any) -> None:
    old = producer_of(shard.init())
    shard.init()
    reloaded(shard, "tx")
    assert shard.init(producer=old).error is ErrorCode.PRODUCER_FENCED


def test_a_recovery_with_the_exhausted_epoch_can_be_repeated(shard: Any) -> None:
    producer = with_epoch(shard, LAST_CLIENT_EPOCH)
    assert shard.init(producer=producer) == ProducerResult(ErrorCode.NONE, 1001, 0)
    assert shard.init(producer=producer) == ProducerResult(ErrorCode.NONE, 1001, 0)
    assert shard.coordinator.transactions["tx"].previous_producer_id == 1000


def test_an_ongoing_transaction_is_aborted_first(shard: Any) -> None:
    producer = producer_of(shard.init())
    shard.add(producer, 0)
    assert shard.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert shard.state() is State.PREPARE_ABORT
    assert shard.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    (markers,) = shard.write_markers()
    assert (markers.commit, markers.producer_epoch) == (False, 1)
    assert shard.init() == ProducerResult(ErrorCode.NONE, 1000, 2)


def test_delayed_recovery_does_not_abort_the_next_transaction(shard: Any) -> None:
    producer = producer_of(shard.init())
    successor = producer_of(shard.init(producer=producer))
    shard.add(successor, 0)
    assert shard.init(producer=producer).error is ErrorCode.PRODUCER_FENCED
    assert shard.state() is State.ONGOING


def test_fencing_at_the_last_epoch_leads_to_a_new_producer_id(shard: Any) -> None:
    producer = with_epoch(shard, LAST_CLIENT_EPOCH)
    shard.add(producer, 0)
    assert shard.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert shard.coordinator.transactions["tx"].producer_epoch == MAX_EPOCH
    shard.write_markers()
    assert shard.init() == ProducerResult(ErrorCode.NONE, 1001, 0)


def test_without_producer_ids_nothing_happens(shard: Any) -> None:
    class Empty:
        def take(self) -> int:
            raise NoProducerIds

    coordinator = TransactionCoordinator(TransactionSettings(), Empty())
    with pytest.raises(NoProducerIds):
        coordinator.init_producer_id(InitProducerId("tx", 1000), 0)
    assert coordinator.transactions == {}


# --- AddPartitionsToTxn ---


def test_adding_begins_the_transaction(shard: Any) -> None:
    producer = producer_of(shard.init())
    assert shard.add(producer, 0) is ErrorCode.NONE
    shard.now_ms += 10
    assert shard.add(producer, 1) is ErrorCode.NONE
    ongoing = shard.coordinator.transactions["tx"]
    assert ongoing.state is State.ONGOING
    assert ongoing.partitions == {("topic", 0), ("topic", 1)}
    assert (ongoing.start_ms, ongoing.update_ms) == (shard.now_ms - 10, shard.now_ms)


def test_adding_known_partitions_writes_no_record(shard: Any) -> None:
    producer = producer_of(shard.init())
    shard.add(producer, 0, 1)
    written = len(shard.log)
    assert shard.add(producer, 1) is ErrorCode.NONE
    assert len(shard.log) == written


@pytest.mark.parametrize(
    ("transactional_id", "producer", "error"),
    [
        ("", (1000, 0), ErrorCode.INVALID_REQUEST),
        ("other", (1000, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("tx", (999, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("tx", (1000, 1), ErrorCode.PRODUCER_FENCED),
    ],
)
def test_add_partitions_is_rejected_for_another_producer(
    shard: Any, transactional_id: str, producer: tuple[int, int], error: ErrorCode
) -> None:
    shard.init()
    assert shard.add(producer, 0, transactional_id=transactional_id) is error
    wanted = AddPartitions(transactional_id, *producer, frozenset({("topic", 0)}))
    assert shard.coordinator.verify_partitions(wanted) == {("topic", 0): error}


def test_adding_waits_for_the_markers(shard: Any) -> None:
    producer = producer_of(shard.init())
    shard.add(producer, 0)
    shard.end(producer)
    assert shard.add(producer, 1) is ErrorCode.CONCURRENT_TRANSACTIONS
    shard.write_markers()
    assert shard.add(producer, 1) is ErrorCode.NONE
    assert shard.coordinator.transactions["tx"].partitions == {("topic", 1)}


def test_verification_returns_an_error_for_partitions_outside(shard: Any) -> None:
    producer = producer_of(shard.init())
    shard.add(producer, 0)
    wanted = AddPartitions("tx", *producer, frozenset({("topic", 0), ("topic", 1)}))
    assert shard.coordinator.verify_partitions(wanted) == {
        ("topic", 0): ErrorCode.NONE,
        ("topic", 1): ErrorCode.TRANSACTION_ABORTABLE,
    }
    shard.end(producer)
    assert set(shard.coordinator.verify_partitions(wanted).values()) == {ErrorCode.CONCURRENT_TRANSACTIONS}


# --- EndTxn, as it was before KIP-890 ---


@pytest.mark.parametrize("commit", [True, False])
def test_end_and_its_repetition(shard: Any, commit: bool) -> None:
    producer = producer_of(shard.init())
    shard.add(producer, 0, 1)
    assert shard.end(producer, commit=commit) == ProducerResult(ErrorCode.NONE)
    assert shard.end(producer, commit=commit).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert shard.end(producer, commit=not commit).error is ErrorCode.INVALID_TXN_STATE
    (markers,) = shard.write_markers()
    assert markers.commit is commit
    assert markers.partitions == {("topic", 0), ("topic", 1)}
    assert (markers.producer_id, markers.producer_epoch) == producer
    assert shard.state() is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    assert shard.end(producer, commit=commit).error is ErrorCode.NONE
    assert shard.end(producer, commit=not commit).error is ErrorCode.INVALID_TXN_STATE
    assert not shard.markers


def test_repeated_end_is_written_before_it_is_answered(shard: Any) -> None:
    """Found by the simulator: a coordinator that was replaced confirmed a commit that its successor never received."""
    producer = producer_of(shard.init())
    shard.add(producer, 0)
    shard.end(producer)
    shard.write_markers()
    outcome = shard.coordinator.end(EndTransaction("tx", *producer, True, 0), shard.now_ms)
    assert [(record.transactional_id, record.value.state) for record in outcome.records] == [
        ("tx", State.COMPLETE_COMMIT)
    ]


def test_end_is_rejected_without_a_transaction(shard: Any) -> None:
    producer = producer_of(shard.init())
    assert shard.end(producer).error is ErrorCode.INVALID_TXN_STATE
    assert shard.end(producer, commit=False).error is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [TV1, TV2])
def test_end_is_rejected_for_another_producer(shard: Any, version: int) -> None:
    producer = producer_of(shard.init())
    shard.add(producer, 0)
    assert shard.end((999, 0), version=version).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert shard.end((1000, 1), version=version).error is ErrorCode.PRODUCER_FENCED
    assert shard.end(producer, version=version, transactional_id="other").error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert shard.end(producer, version=version, transactional_id="").error is ErrorCode.INVALID_REQUEST
    assert shard.state() is State.ONGOING


# --- EndTxn under transaction.version 2 ---


@pytest.mark.parametrize("commit", [True, False])
def test_every_end_bumps_the_epoch(shard: Any, commit: bool) -> None:
    producer = producer_of(shard.init())
    shard.add(producer, 0, version=TV2)
    after = ProducerResult(ErrorCode.NONE, 1000, 1)
    assert shard.end(producer, commit=commit, version=TV2) == after
    assert shard.end(producer, commit=commit, version=TV2).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert shard.end(producer, commit=not commit, version=TV2).error is ErrorCode.INVALID_TXN_STATE
    assert shard.end((1000, 1), commit=commit, version=TV2).error is ErrorCode.PRODUCER_FENCED
    (markers,) = shard.write_markers()
    assert (markers.producer_epoch, markers.transaction_version) == (1, TV2)
    assert shard.end(producer, commit=commit, version=TV2) == after
    assert shard.end(producer, commit=not commit, version=TV2).error is ErrorCode.INVALID_TXN_STATE
    assert shard.end((1000, 1), commit=True, version=TV2).error is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("first", [None, True, False])
def test_aborting_nothing_bumps_the_epoch_too(shard: Any, first: bool | None) -> None:
    epoch = 0
    shard.init()
    if first is not None:
        shard.add((1000, 0), 0, version=TV2)
        epoch = producer_of(shard.end((1000, 0), commit=first, version=TV2))[1]
        shard.write_markers()
    assert shard.end((1000, epoch), commit=False, version=TV2) == ProducerResult(ErrorCode.NONE, 1000, epoch + 1)
    (markers,) = shard.write_markers()
    assert markers.partitions == frozenset()
    assert shard.state() is State.COMPLETE_ABORT
    assert shard.coordinator.transactions["tx"].start_ms == shard.now_ms


def test_commit_of_an_empty_transaction_is_rejected(shard: Any) -> None:
    producer = producer_of(shard.init())
    assert shard.end(producer, version=TV2).error is ErrorCode.INVALID_TXN_STATE


def test_the_last_epoch_ends_with_a_new_producer_id(shard: Any) -> None:
    producer = with_epoch(shard, LAST_CLIENT_EPOCH)
    shard.add(producer, 0, version=TV2)
    after = ProducerResult(ErrorCode.NONE, 1001, 0)
    assert shard.end(producer, version=TV2) == after
    assert shard.end(producer, version=TV2).error is ErrorCode.CONCURRENT_TRANSACTIONS
    (markers,) = shard.write_markers()
    assert (markers.producer_id, markers.producer_epoch) == (1000, MAX_EPOCH)
    assert shard.end(producer, version=TV2) == after
    shard.restart()
    assert shard.end(producer, version=TV2) == after
    assert shard.add((1001, 0), 0, version=TV2) is ErrorCode.NONE
    assert shard.end(producer, version=TV2).error is not ErrorCode.NONE


def test_markers_of_an_older_end_complete_nothing(shard: Any) -> None:
    producer = producer_of(shard.init())
    shard.add(producer, 0)
    shard.end(producer)
    (markers,) = shard.write_markers()
    shard.add(producer, 0)
    shard.obey(shard.coordinator.markers_written(markers, shard.now_ms))
    assert shard.state() is State.ONGOING


# --- time ---


def test_a_transaction_that_takes_too_long_is_aborted(shard: Any) -> None:
    producer = producer_of(shard.init(timeout_ms=5000))
    shard.add(producer, 0)
    assert shard.coordinator.next_deadline_ms() == shard.now_ms + 5001
    shard.now_ms += 5000
    shard.expire()
    assert shard.state() is State.ONGOING
    shard.now_ms += 1
    shard.expire()
    assert shard.state() is State.PREPARE_ABORT
    (markers,) = shard.write_markers()
    assert (markers.commit, markers.producer_epoch) == (False, 1)
    assert shard.end(producer).error is ErrorCode.PRODUCER_FENCED
    assert shard.end(producer, commit=False).error is ErrorCode.PRODUCER_FENCED
    # The producer finds its way back by KIP-360, also if the broker restarts in between.
    shard.restart()
    assert shard.init(producer=producer) == ProducerResult(ErrorCode.NONE, 1000, 1)


def test_more_partitions_do_not_put_the_deadline_off(shard: Any) -> None:
    producer = producer_of(shard.init(timeout_ms=5000))
    shard.add(producer, 0)
    shard.now_ms += 4000
    shard.add(producer, 1)
    assert shard.coordinator.next_deadline_ms() == shard.now_ms + 1001


def test_each_transaction_has_its_own_deadline(shard: Any) -> None:
    producer = producer_of(shard.init(timeout_ms=5000))
    for _ in range(500):
        shard.add(producer, 0)
        shard.end(producer)
        shard.write_markers()
        shard.now_ms += 100
    shard.add(producer, 0)
    shard.expire()
    assert shard.state() is State.ONGOING
    assert shard.coordinator.next_deadline_ms() == shard.now_ms + 5001


def test_rejected_abort_is_decided_again(shard: Any) -> None:
    shard.add(producer_of(shard.init(timeout_ms=5000)), 0)
    shard.now_ms += 5001
    assert len(shard.coordinator.expire(shard.now_ms)) == 1
    assert shard.coordinator.expire(shard.now_ms) == []
    assert shard.coordinator.next_deadline_ms() == shard.now_ms + 10_000
    shard.now_ms += 10_000
    shard.expire()
    assert shard.state() is State.PREPARE_ABORT


def test_idle_ids_are_forgotten(shard: Any) -> None:
    shard.init("idle")
    shard.add(producer_of(shard.init("busy", timeout_ms=900_000)), 0, transactional_id="busy")
    shard.now_ms += 604_800_000 + 3_600_000
    shard.expire()
    assert "idle" not in shard.coordinator.transactions
    assert shard.log[-1][1] is None
    assert shard.state("busy") is State.PREPARE_ABORT


def test_ids_expire_together(shard: Any) -> None:
    shard.init("a")
    shard.now_ms += 1000
    shard.init("b")
    deadline = shard.coordinator.next_deadline_ms()
    assert deadline % 3_600_000 == 0
    outcomes = shard.coordinator.expire(deadline)
    assert [len(outcome.records) for outcome in outcomes] == [2]


def test_expired_ids_are_divided_into_batches_of_bounded_size(shard: Any) -> None:
    for number in range(DEADLINES_AT_ONCE):
        shard.init(f"{number:03}" + "x" * 5000)
    shard.now_ms = shard.coordinator.next_deadline_ms()
    outcomes = shard.coordinator.expire(shard.now_ms)
    sizes = [sum(len(record.transactional_id) for record in outcome.records) for outcome in outcomes]
    assert sum(len(outcome.records) for outcome in outcomes) == DEADLINES_AT_ONCE
    assert len(sizes) > 1
    assert max(sizes) < 200_000


def test_deadlines_that_are_due_at_the_same_time_take_several_steps(shard: Any) -> None:
    count = DEADLINES_AT_ONCE * 2 + 1
    for number in range(count):
        name = f"id-{number}"
        shard.add(producer_of(shard.init(name)), 0, transactional_id=name)
    shard.now_ms = shard.coordinator.next_deadline_ms()
    steps = []
    while shard.coordinator.next_deadline_ms() is not None:
        shard.expire()
        steps.append(sum(shard.state(f"id-{number}") is State.PREPARE_ABORT for number in range(count)))
    assert steps == [DEADLINES_AT_ONCE, DEADLINES_AT_ONCE * 2, count]


def test_using_an_id_puts_its_expiry_off(shard: Any) -> None:
    shard.init()
    shard.now_ms += 500_000_000
    shard.init()
    shard.now_ms += 500_000_000
    shard.expire()
    assert shard.state() is State.EMPTY


def test_update_time_does_not_go_back_with_the_wall_clock(shard: Any) -> None:
    producer = producer_of(shard.init())
    before = shard.now_ms
    shard.now_ms -= 5000
    shard.add(producer, 0)
    assert shard.coordinator.transactions["tx"].update_ms == before


def test_transaction_of_the_future_times_out_from_the_load_on(shard: Any) -> None:
    producer = producer_of(shard.init(timeout_ms=5000))
    shard.add(producer, 0)
    shard.now_ms -= 500_000
    shard.restart()
    assert shard.coordinator.next_deadline_ms() == shard.now_ms + 5001
    shard.now_ms += 4000
    shard.restart()
    assert shard.coordinator.next_deadline_ms() == shard.now_ms + 5001, "the log has it from the future still"
    shard.add(producer, 1)
    shard.now_ms += 4000
    shard.restart()
    assert shard.coordinator.next_deadline_ms() == shard.now_ms + 1001, "as it was written meanwhile"
    shard.now_ms += 1001
    shard.expire()
    assert shard.state() is State.PREPARE_ABORT


# --- older clusters ---


def test_fencing_below_transaction_version_2_keeps_the_old_records(shard: Any) -> None:
    old = type(shard)(dataclasses.replace(TransactionSettings(), transaction_version=lambda: 0))
    producer = producer_of(old.init())
    old.add(producer, 0)
    old.init()
    aborted = old.coordinator.transactions["tx"]
    assert (aborted.producer_epoch, aborted.last_producer_epoch, aborted.client_version) == (1, -1, 0)
    assert {value[:2] for _, value in old.log if value} == {b"\0\0"}


# --- restart ---


def test_restart_in_every_state(shard: Any) -> None:
    producer = producer_of(shard.init())
    shard.restart()
    assert shard.state() is State.EMPTY
    shard.add(producer, 0, 1)
    shard.restart()
    assert shard.state() is State.ONGOING
    assert shard.coordinator.next_deadline_ms() == shard.now_ms + 60_001
    for commit in (True, False):
        shard.add(producer, 0, 1)
        shard.end(producer, commit=commit)
        shard.restart()
        assert shard.state() is (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)
        (markers,) = shard.write_markers()
        assert (markers.commit, markers.partitions) == (commit, {("topic", 0), ("topic", 1)})
        shard.restart()
        assert shard.state() is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
        assert not shard.markers
        assert shard.end(producer, commit=commit).error is ErrorCode.NONE


def test_restart_after_the_tombstone(shard: Any) -> None:
    shard.init()
    shard.now_ms += 700_000_000
    shard.expire()
    shard.restart()
    assert shard.coordinator.transactions == {}
    assert shard.coordinator.next_deadline_ms() is None


# --- looking ---


def test_describe_returns_state_producer_and_partitions(shard: Any) -> None:
    producer = producer_of(shard.init())
    shard.add(producer, 3)
    found = shard.coordinator.describe("tx")
    assert found == (ErrorCode.NONE, "tx", "Ongoing", 60_000, shard.now_ms, 1000, 0, {("topic", 3)})
    assert shard.coordinator.describe("other").error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_list_by_every_filter(shard: Any) -> None:
    shard.init("empty")
    shard.add(producer_of(shard.init("young")), 0, transactional_id="young")
    shard.now_ms -= 500
    shard.add(producer_of(shard.init("old")), 0, transactional_id="old")
    shard.now_ms += 500

    def names(**changes: Any) -> list[str]:
        filters = {"states": None, "producer_ids": None, "duration_ms": -1, "matches": None, **changes}
        return sorted(found.transactional_id for found in shard.coordinator.listings(shard.now_ms, **filters))

    assert names() == ["empty", "old", "young"]
    assert names(states=frozenset({State.ONGOING})) == ["old", "young"]
    assert names(states=frozenset()) == []
    assert names(producer_ids=frozenset({1000})) == ["empty"]
    assert names(duration_ms=0, states=frozenset({State.ONGOING})) == ["old"]
    assert names(duration_ms=499, states=frozenset({State.ONGOING})) == ["old"]
    assert names(duration_ms=500, states=frozenset({State.ONGOING})) == []
    assert names(matches=lambda name: name.startswith("y")) == ["young"]
    assert states_of(["Ongoing", "Nonsense"]) == ({State.ONGOING}, ["Nonsense"])


def test_end_takes_no_id_for_a_request_that_fails(shard: Any) -> None:
    producer = with_epoch(shard, LAST_CLIENT_EPOCH)
    before = shard.ids.next
    shard.obey(shard.coordinator.end(EndTransaction("tx", *producer, commit=True, client_version=TV2), shard.now_ms))
    assert shard.ids.next == before
