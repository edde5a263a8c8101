"""Aborted transactions of a segment, in Kafka's `.txnindex` format (AbortedTxn, TransactionIndex).

version int16 | producer id int64 | first offset int64 | last offset int64 | last stable offset int64
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

_ENTRY: Final = Struct(">hqqqq")
ENTRY_SIZE: Final = _ENTRY.size
VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """An aborted transaction; `last_offset` is its marker's, `last_stable_offset` what was stable after the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode(transaction: AbortedTransaction) -> bytes:
    """Encode one entry of the index."""
    return _ENTRY.pack(VERSION, *transaction)


def decode(data: bytes, base_offset: int) -> list[AbortedTransaction]:
    """All entries but an incomplete last one. ValueError for an unknown version, or an entry below the segment."""
    found = []
    for position, version, transaction in _entries(data):
        if version > VERSION:
            raise ValueError(f"aborted transaction at byte {position} has version {version}")
        if transaction.last_offset < base_offset:
            raise ValueError(f"aborted transaction at byte {position} ends at offset {transaction.last_offset}")
        found.append(transaction)
    return found


def sound(data: bytes, base_offset: int) -> list[AbortedTransaction]:
    """The entries up to the first that cannot be one.

    What was not synced a power loss may leave as a hole of zeros, with later entries behind it.
    """
    found: list[AbortedTransaction] = []
    least = base_offset
    for _, version, transaction in _entries(data):
        # A marker comes after what it aborts, and markers are noted in the order of the log.
        if version > VERSION or not transaction.first_offset < transaction.last_offset >= least:
            break
        found.append(transaction)
        least = transaction.last_offset + 1
    return found


def _entries(data: bytes) -> Iterator[tuple[int, int, AbortedTransaction]]:
    """(position, version, transaction) of each whole entry, whatever it says."""
    for position in range(0, len(data) - ENTRY_SIZE + 1, ENTRY_SIZE):
        version, *fields = _ENTRY.unpack_from(data, position)
        yield position, version, AbortedTransaction(*fields)


def collect(
    transactions: Iterable[AbortedTransaction], fetch_offset: int, upper_offset: int, into: list[AbortedTransaction]
) -> bool:
    """Add those that overlap [fetch_offset, upper_offset); True when no later one can (collectAbortedTxns)."""
    for transaction in transactions:
        if transaction.last_offset >= fetch_offset and transaction.first_offset < upper_offset:
            into.append(transaction)
        if transaction.last_stable_offset >= upper_offset:
            return True
    return False
