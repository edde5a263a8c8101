"""Aborted transactions of a segment, in Kafka's `.txnindex` format (AbortedTxn, TransactionIndex).

version int16 | producer id int64 | first offset int64 | last offset int64 | last stable offset int64
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from odradek.log.segments.files import TRANSACTION_INDEX, FileCache, segment_path
from odradek.wire.errors import ErrorCode, KafkaError

_ENTRY: Final = Struct(">hqqqq")
ENTRY_SIZE: Final = _ENTRY.size
VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """An aborted transaction; `last_offset` is its marker's, `last_stable_offset` what was stable after the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The index of one segment; its file exists only if a transaction was aborted."""

    __slots__ = ("_base_offset", "_directory", "_ending", "_entries", "_files")

    def __init__(self, files: FileCache, directory: str, base_offset: int, ending: str) -> None:
        """`ending` goes after the name of the file, as in `.cleaned`."""
        self._files = files
        self._directory = directory
        self._base_offset = base_offset
        self._ending = ending
        self._entries: list[AbortedTransaction] | None = None

    def _path(self) -> str:
        return segment_path(self._directory, self._base_offset, TRANSACTION_INDEX + self._ending)

    def assume_empty(self) -> None:
        """Say that there is no file, which spares looking for one."""
        self._entries = []

    def entries(self) -> list[AbortedTransaction]:
        """The aborted transactions, in the order of their markers. KAFKA_STORAGE_ERROR for a broken file."""
        if self._entries is None:
            path = self._path()
            try:
                file = self._files.get(path)
            except FileNotFoundError:
                self._entries = []
            else:
                try:
                    self._entries = decode(file.read(0, file.size()), self._base_offset)
                except ValueError as error:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path}: {error}") from error
        return self._entries

    def open(self) -> None:
        """Open the file that `add` needs, and create a missing one. Raises OSError, KafkaError."""
        self.entries()
        self._files.get(self._path(), create=True)

    def add(self, transaction: AbortedTransaction) -> None:
        """Note an aborted transaction whose marker lies in this segment, unless it is noted already."""
        known = self.entries()
        if known and known[-1].last_offset >= transaction.last_offset:
            return
        self._files.get(self._path(), create=True).append((encode(transaction),))
        known.append(transaction)

    def truncate_to(self, offset: int) -> bool:
        """Forget transactions that end at the offset or later, and what is broken with all that is behind it.

        Whether there was any of that.
        """
        try:
            file = self._files.get(self._path())
        except FileNotFoundError:
            self._entries = []
            return False
        # Not what `entries` answers: of a file that is broken past the offset, what is before that may be all there is.
        known = sound(file.read(0, file.size()), self._base_offset)
        kept = [transaction for transaction in known if transaction.last_offset < offset]
        size = len(kept) * ENTRY_SIZE
        self._entries = kept
        if file.size() == size:
            return False
        # The entries that stay are not rewritten: a power loss during that could lose them.
        file.truncate(size)
        return True


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
