"""Sequences, epochs, open transactions, snapshots."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.producers.state import CorruptSnapshot, ProducerStates, decode_snapshot
from odradek.records.batch import MAX_SEQUENCE, BatchHeader, parse_header
from odradek.records.control import ControlRecord, ControlType
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.log.support import NOW, batch, marker, produced

COMMIT = ControlRecord(ControlType.COMMIT, 0)
ABORT = ControlRecord(ControlType.ABORT, 0)


def header(sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False, pid: int = 1) -> BatchHeader:
    return parse_header(produced(pid, sequence, count, epoch=epoch, transactional=transactional))


def end(epoch: int = 0, pid: int = 1) -> BatchHeader:
    return parse_header(marker(pid, commit=True, epoch=epoch))


def code(states: ProducerStates, candidate: BatchHeader, *, from_client: bool = True) -> ErrorCode | None:
    try:
        states.check(candidate, from_client=from_client)
    except KafkaError as error:
        return error.code
    return None


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert code(ProducerStates(), header(17)) is None


def test_sequences_wrap() -> None:
    states = ProducerStates()
    states.apply(header(MAX_SEQUENCE - 1, 2), 0)
    assert code(states, header(1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code(states, header(0)) is None
    across = ProducerStates()
    across.apply(header(MAX_SEQUENCE, 3), 0)
    assert across.producers[1].last_sequence == 1
    assert code(across, header(2)) is None
    assert across.check(header(MAX_SEQUENCE, 3), from_client=True) is not None


def test_a_new_epoch_begins_at_zero_and_forgets_the_old_batches() -> None:
    states = ProducerStates()
    states.apply(header(0, epoch=2), 0)
    assert code(states, header(1, epoch=1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert code(states, header(1, epoch=3)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code(states, header(0, epoch=3)) is None
    states.apply(header(0, epoch=3), 1)
    assert len(states.producers[1].batches) == 1


def test_after_a_marker_with_a_new_epoch_sequences_begin_at_zero() -> None:
    states = ProducerStates()
    states.apply(header(0, transactional=True), 0)
    states.apply_marker(end(epoch=1), 1, COMMIT)
    assert code(states, header(0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert code(states, header(1, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code(states, header(0, epoch=1)) is None


def test_coordinators_have_no_sequences() -> None:
    states = ProducerStates()
    states.apply(header(5), 0)
    assert code(states, header(99), from_client=False) is None
    states.apply(header(0, epoch=1), 1)
    assert code(states, header(0), from_client=False) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_stable_offset_of_aborted_transactions() -> None:
    states = ProducerStates()
    states.apply(header(0, transactional=True, pid=1), 10)
    states.apply(header(0, transactional=True, pid=2), 11)
    assert states.has_open_transaction(1, 0)
    first = states.apply_marker(end(pid=1), 12, ABORT)
    assert first is not None
    assert states.complete(first) == (1, 10, 12, 11)
    second = states.apply_marker(end(pid=2), 13, ABORT)
    assert second is not None
    assert states.complete(second) == (2, 11, 13, 14)
    assert states.first_open_offset is None
    assert states.first_unstable_offset == 10
    states.on_high_watermark(13)
    assert states.first_unstable_offset == 11
    states.on_high_watermark(14)
    assert states.first_unstable_offset is None
    assert states.apply_marker(end(pid=1), 15, ABORT) is None


def test_expiry_spares_open_transactions() -> None:
    states = ProducerStates()
    states.apply(header(0, pid=1), 0)
    states.apply(header(0, pid=2, transactional=True), 1)
    assert states.remove_expired(NOW + 99, 100) == []
    assert states.remove_expired(NOW + 100, 100) == []
    assert states.remove_expired(NOW + 100, 100) == [1]
    assert list(states.producers) == [2]


def test_producer_of_old_records_stays_known_while_it_writes() -> None:
    """The age of a record says nothing about when it was produced, as where a client copies another topic."""
    states = ProducerStates()
    for sequence in range(3):
        states.apply(header(sequence), sequence)
        assert states.remove_expired(NOW + 100, 100) == []
        assert states.check(header(sequence), from_client=True) is not None, "it is not written twice"
    assert states.remove_expired(NOW + 100, 100) == [1]


def test_snapshot_of_kafka() -> None:
    """Bytes as ProducerStateManager.writeSnapshot lays them out: version, CRC, count, then 46 bytes an entry."""
    states = ProducerStates()
    states.apply(header(3, 4, epoch=2, transactional=True, pid=0x0102030405060708), 100)
    data = states.snapshot()
    assert len(data) == 2 + 4 + 4 + 46
    assert data[:2] == b"\x00\x01"
    assert data[6:10] == b"\x00\x00\x00\x01"
    assert data[10:] == b"".join(
        number.to_bytes(size, "big", signed=True)
        for number, size in (
            (0x0102030405060708, 8),
            (2, 2),
            (6, 4),
            (103, 8),
            (3, 4),
            (NOW, 8),
            (-1, 4),
            (100, 8),
        )
    )


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1 << 40),
            st.integers(0, 32767),
            st.integers(0, MAX_SEQUENCE),
            st.integers(1, 4),
            st.booleans(),
        ),
        unique_by=lambda row: row[0],
        max_size=8,
    )
)
def test_snapshots_round_trip(rows: list[tuple[int, int, int, int, bool]]) -> None:
    states = ProducerStates()
    for offset, (pid, epoch, sequence, count, transactional) in enumerate(rows):
        states.apply(header(sequence, count, epoch=epoch, transactional=transactional, pid=pid), offset * 10)
    again = ProducerStates()
    again.load(states.snapshot())
    assert again.snapshot() == states.snapshot()
    assert again.first_open_offset == states.first_open_offset


@given(st.integers(0, 101), st.integers(0, 7))
def test_damaged_snapshots_are_noticed(position: int, bit: int) -> None:
    states = ProducerStates()
    states.apply(header(0, pid=1), 0)
    states.apply(header(0, pid=2), 1)
    data = bytearray(states.snapshot())
    assert len(data) == 102
    data[min(position, 101)] ^= 1 << bit
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(bytes(data))
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(bytes(data[:position]))


def test_a_guard_is_lost_with_the_producers_marker() -> None:
    states = ProducerStates()
    states.apply(header(0, transactional=True), 0)
    guard, other = states.guard(1), states.guard(2)
    assert states.guard(1) is guard
    assert states.guard_holds(1, guard)
    states.apply_marker(end(), 1, COMMIT)
    assert not states.guard_holds(1, guard)
    assert states.guard_holds(2, other)


def test_guards_of_producers_that_never_wrote_do_not_stay() -> None:
    states = ProducerStates()
    refused = states.guard(1)
    states.remove_expired(NOW, 100)
    fresh = states.guard(2)
    states.remove_expired(NOW, 100)
    assert not states.guard_holds(1, refused)
    assert states.guard_holds(2, fresh), "its coordinator may still be asked"


def written(states: ProducerStates, value: bytes, offset: int = 0, *, transactional: bool = True) -> BatchHeader:
    """Apply a batch of producer 1 with sequence 0 at the offset."""
    found = parse_header(
        batch(value=value, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=transactional)
    )
    states.apply(found, offset)
    return found


@pytest.mark.parametrize("transactional", [False, True])
def test_repeated_batch_is_a_duplicate_when_it_has_the_same_crc(transactional: bool) -> None:
    states = ProducerStates()
    same = written(states, b"one", 7, transactional=transactional)
    original = states.check(same, from_client=True)
    assert original is not None
    assert original.first_offset == 7


@pytest.mark.parametrize("transactional", [False, True])
def test_batch_is_out_of_order_when_another_has_its_sequence(transactional: bool) -> None:
    states = ProducerStates()
    written(states, b"one", transactional=transactional)
    other = written(ProducerStates(), b"two", transactional=transactional)
    assert code(states, other) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("next_began", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_batch_of_an_ended_transaction_is_out_of_order(next_began: bool, restarted: bool) -> None:
    """An application that stamps records itself may repeat an aborted one to the byte in its next transaction."""
    states = ProducerStates()
    same = written(states, b"one")
    states.apply_marker(end(), 1, ABORT)
    if next_began:
        states.apply(header(1, transactional=True), 2)
    if restarted:
        again = ProducerStates()
        again.load(states.snapshot())
        states = again
    assert code(states, same) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequence_continues_when_a_marker_keeps_the_epoch() -> None:
    states = ProducerStates()
    written(states, b"one")
    states.apply_marker(end(), 1, COMMIT)
    assert code(states, header(1, transactional=True)) is None


def test_repeated_batch_needs_no_crc_when_only_a_snapshot_knows_it() -> None:
    states = ProducerStates()
    written(states, b"one")
    again = ProducerStates()
    again.load(states.snapshot())
    assert again.check(written(ProducerStates(), b"two"), from_client=True) is not None


def test_batch_is_out_of_order_when_the_restored_log_has_another() -> None:
    states = ProducerStates()
    first = written(states, b"one")
    again = ProducerStates()
    again.load(states.snapshot())
    again.complete_windows([first])
    assert code(again, written(ProducerStates(), b"two")) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_producer_with_one_batch_takes_little_memory() -> None:
    """A broker keeps a million of them: 400 bytes each, 1,150 while a deque held the batches."""
    states, header = ProducerStates(), parse_header(produced(1, 0))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for producer_id in range(1000, 3000):
            states.apply(header._replace(producer_id=producer_id), producer_id)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / 2000 < 600


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["data", "transaction", "marker", "expire", "clear", "encode"]), st.integers(1, 6)),
    max_size=20,
)


@given(st.sets(st.integers(1, 5)), ACTIONS)
def test_frozen_producers_stay_as_they_were(pids: set[int], actions: list[tuple[str, int]]) -> None:
    """Whatever happens to the producers while they are encoded piece by piece."""
    states = ProducerStates()
    for pid in sorted(pids):
        states.apply(header(0, pid=pid), pid)
    before, frozen = states.snapshot(), states.freeze()
    for offset, (action, pid) in enumerate(actions, start=10):
        if action == "marker":
            states.apply_marker(end(epoch=1, pid=pid), offset, COMMIT)
        elif action == "expire":
            states.remove_expired(NOW + 100, 100)
        elif action == "clear":
            states.clear()
        elif action == "encode":
            frozen.encode(1)
        else:
            states.apply(header(1, pid=pid, transactional=action == "transaction"), offset)

    def by_id(data: bytes) -> dict[int, tuple[int, int, int]]:
        return {e.producer_id: (e.epoch, e.last_sequence, e.transaction_first_offset) for e in decode_snapshot(data)}

    assert by_id(frozen.snapshot()) == by_id(before)


def test_thawed_producers_are_encoded_no_longer() -> None:
    states = ProducerStates()
    states.apply(header(0, pid=1), 0)
    frozen = states.freeze()
    states.thaw()
    states.apply(header(1, pid=1), 1)
    (entry,) = decode_snapshot(frozen.snapshot())
    assert entry.last_sequence == 1
