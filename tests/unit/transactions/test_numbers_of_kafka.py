"""Numbers in the records and answers of transactions.

A number of the protocol or of a stored format is not ours to choose: it is compared with Apache Kafka's here.
"""

from __future__ import annotations

from odradek.transactions.records import LAST_CLIENT_EPOCH, MAX_EPOCH, NO_EPOCH, NO_PRODUCER_ID, NO_TIME
from odradek.transactions.states import State


def test_states_have_the_numbers_of_the_transaction_log() -> None:
    states = ("EMPTY", "ONGOING", "PREPARE_COMMIT", "PREPARE_ABORT", "COMPLETE_COMMIT", "COMPLETE_ABORT")
    names = [*states, "DEAD", "PREPARE_EPOCH_FENCE"]
    assert [each.name for each in sorted(State)] == names
    assert [int(each) for each in sorted(State)] == list(range(8))


def test_values_that_stand_for_none_are_those_of_record_batches() -> None:
    assert (NO_PRODUCER_ID, NO_EPOCH, NO_TIME) == (-1, -1, -1)


def test_last_epoch_is_left_to_the_fence() -> None:
    assert (LAST_CLIENT_EPOCH, MAX_EPOCH) == (32_766, 32_767)
