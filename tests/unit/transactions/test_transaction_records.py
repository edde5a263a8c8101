"""The records of `__transaction_state`: both value versions, and what a damaged one does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.transactions.records import (
    LAST_CLIENT_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
    TransactionRecord,
    decode_record,
    encode_record,
)
from odradek.transactions.states import VALID_PREVIOUS, State, may_follow
from odradek.wire.messages.transaction_state import TransactionLogValue
from odradek.wire.primitives import DecodeError, EncodeError

_LOGGED = [state for state in State if state not in (State.DEAD, State.PREPARE_EPOCH_FENCE)]


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    state = draw(st.sampled_from(_LOGGED))
    partitions = st.frozensets(st.tuples(st.sampled_from(["a", "b", "é"]), st.integers(0, 9)), max_size=5)
    number = st.integers(0, 1 << 40)
    return Transaction(
        draw(number),
        draw(st.integers(0, 32767)),
        draw(st.integers(1, 900_000)),
        state,
        draw(number),
        draw(st.integers(-1, 1 << 40)),
        frozenset() if state is State.EMPTY else draw(partitions),
        draw(st.integers(-1, 1 << 40)),
        draw(st.integers(-1, 1 << 40)),
        client_version=draw(st.sampled_from([0, 2])),
    )


@given(transactions())
def test_value_version_1_keeps_everything_but_the_last_epoch(transaction: Transaction) -> None:
    key, value = encode_record(TransactionRecord("id", transaction))
    decoded = decode_record(key, value)
    assert decoded is not None
    assert decoded.transactional_id == "id"
    assert decoded.value is not None
    assert decoded.value._replace(last_producer_epoch=NO_EPOCH) == transaction


@given(transactions())
def test_value_version_1_is_that_of_the_generated_codec(transaction: Transaction) -> None:
    _, value = encode_record(TransactionRecord("id", transaction))
    assert value is not None
    message, end = TransactionLogValue.decode(memoryview(value), 2, 1)
    again = bytearray(b"\0\1")
    message.encode(again, 1)
    assert (bytes(again), end) == (value, len(value))
    partitions = {(t.topic, index) for t in message.transaction_partitions or () for index in t.partition_ids}
    assert partitions == transaction.partitions
    assert (message.transaction_partitions is None) == (transaction.state is State.EMPTY)


def test_encoding_fails_when_a_number_is_out_of_range() -> None:
    transaction = Transaction(1 << 63, 0, 1, State.EMPTY, 0)
    with pytest.raises(EncodeError):
        encode_record(TransactionRecord("id", transaction))
    with pytest.raises(EncodeError):
        encode_record(TransactionRecord("x" * 40_000, transaction._replace(producer_id=1)))
    partitions = frozenset([("\udc80", 0)])
    with pytest.raises(EncodeError):
        encode_record(TransactionRecord("id", Transaction(1, 0, 1, State.ONGOING, 0, partitions=partitions)))


@given(transactions())
def test_value_version_0_has_no_tagged_fields(transaction: Transaction) -> None:
    transaction = transaction._replace(client_version=0, next_producer_id=NO_PRODUCER_ID)
    key, value = encode_record(TransactionRecord("id", transaction), transaction_version=0)
    assert value is not None
    assert value[:2] == b"\0\0"
    decoded = decode_record(key, value)
    assert decoded == TransactionRecord(
        "id",
        transaction._replace(previous_producer_id=NO_PRODUCER_ID),
    )


def test_bytes_are_those_of_apache_kafka() -> None:
    transaction = Transaction(
        7, 3, 60_000, State.ONGOING, 0x0203, 0x0102, frozenset({("t", 1), ("t", 0)}), 7, client_version=2
    )
    key, value = encode_record(TransactionRecord("tx", transaction))
    assert key == bytes.fromhex("0000 0002 7478")
    assert value == bytes.fromhex(
        "0001"  # version
        "0000000000000007 0003 0000ea60 01"
        "02 02 74 03 00000000 00000001 00"  # one topic, two partitions
        "0000000000000203 0000000000000102"
        "02  00 08 0000000000000007  02 02 0002"  # tags: previous producer id, client's transaction.version
    )


def test_an_empty_id_has_no_partition_list() -> None:
    value = encode_record(TransactionRecord("tx", Transaction(7, 0, 1, State.EMPTY, 5)), 0)[1]
    assert value == bytes.fromhex("0000 0000000000000007 0000 00000001 00 ffffffff 0000000000000005 ffffffffffffffff")


def test_tombstone_is_a_key_without_value() -> None:
    key, value = encode_record(TransactionRecord("tx", None))
    assert value is None
    assert decode_record(key, None) == TransactionRecord("tx", None)


def test_unknown_key_version_is_passed_over() -> None:
    assert decode_record(b"\0\1\0\2tx", b"") is None


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\1", b"\0\7" + bytes(40), b"\0\0" + bytes(12)])
def test_damaged_value_is_a_decode_error(value: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_record(b"\0\0\0\2tx", value)


def test_unknown_status_is_a_decode_error() -> None:
    key, value = encode_record(TransactionRecord("tx", Transaction(7, 0, 1, State.EMPTY, 5)), 0)
    assert value is not None
    damaged = bytearray(value)
    damaged[16] = 99
    with pytest.raises(DecodeError, match="status 99"):
        decode_record(key, bytes(damaged))


@pytest.mark.parametrize(
    ("transaction", "last"),
    [
        (Transaction(7, 4, 1, State.PREPARE_ABORT, 5, client_version=2), 3),
        (Transaction(7, 4, 1, State.COMPLETE_COMMIT, 5, previous_producer_id=7, client_version=2), 3),
        (Transaction(8, 0, 1, State.COMPLETE_COMMIT, 5, previous_producer_id=7, client_version=2), LAST_CLIENT_EPOCH),
        (Transaction(7, 4, 1, State.COMPLETE_COMMIT, 5, previous_producer_id=7, client_version=0), NO_EPOCH),
        (Transaction(7, 4, 1, State.EMPTY, 5, previous_producer_id=7, client_version=2), NO_EPOCH),
    ],
)
def test_last_epoch_follows_from_the_record_where_it_can(transaction: Transaction, last: int) -> None:
    decoded = decode_record(*encode_record(TransactionRecord("tx", transaction)))
    assert decoded is not None
    assert decoded.value is not None
    assert decoded.value.last_producer_epoch == last


def test_every_state_but_the_fence_can_be_reached_and_left() -> None:
    assert set(VALID_PREVIOUS) == set(State)
    assert not may_follow(State.PREPARE_COMMIT, State.PREPARE_ABORT)
    assert not may_follow(State.PREPARE_ABORT, State.PREPARE_COMMIT)
    assert not may_follow(State.PREPARE_ABORT, State.COMPLETE_COMMIT)
    assert State.PREPARE_EPOCH_FENCE.title == "PrepareEpochFence"


def test_value_version_1_is_used_when_version_0_lacks_a_field() -> None:
    transaction = Transaction(7, 0, 1, State.ONGOING, 5, client_version=2)
    decoded = decode_record(*encode_record(TransactionRecord("tx", transaction), transaction_version=0))
    assert decoded == TransactionRecord("tx", transaction)


def test_key_of_an_unknown_version_alone_is_passed_over() -> None:
    assert decode_record(b"\0\1", None) is None


@pytest.mark.parametrize("key", [b"", b"\0"])
def test_key_without_a_version_is_a_decode_error(key: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_record(key, None)
