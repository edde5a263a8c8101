"""Plans of reassignments and hanging transactions, as pure functions decide on them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.admin import PartitionReassignment, TransactionState
from odradek.client.admin.transactions import ProducerState, TransactionDescription
from odradek.client.reports.hanging import HangingTransaction, is_hanging, long_open
from odradek.client.reports.reassignment import (
    Move,
    MoveState,
    spread,
    state_of,
    throttled_followers,
    throttled_leaders,
)
from odradek.records.topic_partition import TopicPartition

PLACE = TopicPartition("t", 0)
PRODUCER = ProducerState(7, 3, 10, 1_000, 2, 42)


@given(st.integers(1, 30), st.integers(1, 6), st.integers(1, 4), st.integers(1, 4))
def test_spread_is_even_and_uses_all_racks(partitions: int, brokers: int, rack_count: int, factor: int) -> None:
    racks = {broker: f"rack-{broker % rack_count}" for broker in range(brokers)}
    wanted = {TopicPartition("t", each): factor for each in range(partitions)}
    if factor > brokers:
        with pytest.raises(ValueError, match="replicas"):
            spread(wanted, racks)
        return
    found = spread(wanted, racks)
    leads = [sum(each[0] == broker for each in found.values()) for broker in racks]
    assert max(leads) - min(leads) <= 1
    for replicas in found.values():
        assert len(set(replicas)) == factor
        assert len({racks[each] for each in replicas}) == min(factor, len(set(racks.values())))


def test_only_partitions_with_new_replicas_are_throttled() -> None:
    moves = [Move(PLACE, (1, 2), (2, 3)), Move(TopicPartition("t", 1), (1, 2), (2, 1))]
    assert throttled_leaders(moves) == {"t": ["0:1", "0:2"]}
    assert throttled_followers(moves) == {"t": ["0:3"]}


@pytest.mark.parametrize(
    ("replicas", "running", "state"),
    [
        (None, None, MoveState.MISSING),
        ([2, 3], None, MoveState.COMPLETED),
        ([1, 2], None, MoveState.DIFFERENT),
        ([1, 2], PartitionReassignment([2, 3, 1], [3], [1]), MoveState.IN_PROGRESS),
        ([1, 2], PartitionReassignment([1, 2, 4], [4], []), MoveState.DIFFERENT),
    ],
)
def test_state_of_a_move(replicas: list[int] | None, running: PartitionReassignment | None, state: MoveState) -> None:
    assert state_of([2, 3], replicas, running) is state


def test_only_old_open_transactions_are_candidates() -> None:
    closed = PRODUCER._replace(transaction_start_offset=None)
    young = PRODUCER._replace(last_timestamp_ms=5_500)
    found = long_open({PLACE: [closed, young, PRODUCER]}, 6_000, 1_000)
    assert found == [HangingTransaction(PLACE, PRODUCER, 5_000)]


@pytest.mark.parametrize(
    ("described", "hangs"),
    [
        (None, True),
        (TransactionDescription("x", 1, TransactionState.ONGOING, 7, 3, 60_000, 900, [PLACE]), False),
        (TransactionDescription("x", 1, TransactionState.ONGOING, 7, 4, 60_000, 900, [PLACE]), True),
        (TransactionDescription("x", 1, TransactionState.EMPTY, 7, 3, 60_000, None, []), True),
    ],
)
def test_transaction_hangs_unless_its_coordinator_has_it_open(
    described: TransactionDescription | None, hangs: bool
) -> None:
    assert is_hanging(HangingTransaction(PLACE, PRODUCER, 5_000), described) is hangs
