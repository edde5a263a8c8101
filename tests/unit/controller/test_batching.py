"""One decision in several transactions: where it is cut, and how large a transaction may be."""

from __future__ import annotations

import pytest

from odradek.controller.batching import MAX_OPERATIONS, batches, size_of
from odradek.ports.store import Check, Create, Delete, Operation, Put

FIVE: list[Operation] = [Put(f"/{index}", b"x" * 34) for index in range(5)]
"""Operations of 100 bytes each."""


def test_size_counts_path_and_data_and_some_more() -> None:
    assert [size_of(each) for each in (Create("/a", b"123"), Put("/a", b"123"), Delete("/a"), Check("/a", 1))] == [
        69,
        69,
        66,
        66,
    ]
    assert [size_of(each) for each in FIVE] == [100] * 5


@pytest.mark.parametrize(
    ("cuts", "max_bytes", "sizes"),
    [
        ((), 100, [5]),
        ((1, 2, 3, 4), 0, [5]),
        ((1, 2, 3, 4), 500, [5]),
        ((1, 2, 3, 4), 499, [4, 1]),
        ((1, 2, 3, 4), 200, [2, 2, 1]),
        ((1, 2, 3, 4), 199, [1, 1, 1, 1, 1]),
        ((1, 2, 3, 4), 1, [1, 1, 1, 1, 1]),
        ((3,), 300, [3, 2]),
        ((2, 3), 300, [3, 2]),
        ((3,), 1, [3, 2]),
        ((2, 4), 250, [2, 2, 1]),
    ],
)
def test_transactions_end_only_where_the_decision_may_be_cut(
    cuts: tuple[int, ...], max_bytes: int, sizes: list[int]
) -> None:
    found = list(batches(FIVE, cuts, max_bytes))
    assert [len(batch) for batch in found] == sizes
    assert [each for batch in found for each in batch] == FIVE


def test_transaction_has_at_most_two_thousand_operations() -> None:
    assert MAX_OPERATIONS == 2000
    many: list[Operation] = [Delete("/")] * 4001
    assert [len(batch) for batch in batches(many, range(1, 4001), 0)] == [2000, 2000, 1]


def test_no_operations_need_no_transaction() -> None:
    assert list(batches([], (), 100)) == []
