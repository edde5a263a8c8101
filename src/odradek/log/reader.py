"""Reading a log: which bytes of which files hold the batches of a range, and questions about their content."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from odradek.log.log_state import LogState
from odradek.log.segments import queries
from odradek.log.segments.local_log import LocalLog
from odradek.log.segments.queries import FoundTimestamp
from odradek.log.segments.reading import LogRead
from odradek.log.segments.segment import Segment
from odradek.ports.disk import FileRange
from odradek.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")
_EMPTY: Final[list[FileRange]] = []


class LogReader:
    """Reads one log. All methods raise KafkaError KAFKA_STORAGE_ERROR if the disk fails, or the log is offline."""

    __slots__ = ("_local", "_state")

    def __init__(self, state: LogState, local: LocalLog) -> None:
        self._state = state
        self._local = local

    def read(self, offset: int, max_bytes: int, *, upper_offset: int, min_one_batch: bool = True) -> LogRead:
        """Plan the read of complete batches from the one that contains the offset on, all below `upper_offset`.

        At most max_bytes, but always the complete first batch if `min_one_batch`. KafkaError OFFSET_OUT_OF_RANGE below
        the log start offset or above the end.
        """
        state = self._state
        if state.failure is not None:
            state.check_online()
        end_offset = state.end_offset
        if not state.log_start_offset <= offset <= end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{state.name} has offsets {state.log_start_offset} to {end_offset}, not {offset}",
            )
        if upper_offset > end_offset:  # a call of min() would be a twentieth of a read
            upper_offset = end_offset
        if offset >= upper_offset:
            return LogRead(_EMPTY, 0, offset)
        try:
            return self._local.read(offset, max_bytes, upper_offset, min_one_batch, end_offset)
        except OSError as error:
            raise state.storage_error(error) from error

    def read_batches(self, offset: int, upper_offset: int) -> Iterator[memoryview]:
        """Yield the bytes of each batch from the one that contains the offset to the upper offset; checks CRCs."""
        state = self._state
        state.check_online()
        try:
            yield from queries.batches(
                self._local.segments[self._local.slot(offset) :], offset, min(upper_offset, state.end_offset)
            )
        except OSError as error:
            raise state.storage_error(error) from error

    def query(self, question: Callable[[Sequence[Segment]], T], offset: int = 0) -> T:
        """Return the answer of the segments from the one that contains the offset on."""
        self._state.check_online()
        try:
            return question(self._local.segments[self._local.slot(offset) :])
        except OSError as error:
            raise self._state.storage_error(error) from error

    def batch_start(self, offset: int) -> int:
        """Return the base offset of the batch that contains the offset; the offset itself where no batch does."""
        found = self.query(lambda segments: queries.locate(segments, offset), offset)
        return offset if found is None else min(offset, found.header.base_offset)

    def find_timestamp(self, timestamp_ms: int, upper_offset: int) -> FoundTimestamp | None:
        """Return the first record with this timestamp or a later one, if it is below the upper offset."""
        start = self._state.log_start_offset
        found = self.query(lambda segments: queries.find_timestamp(segments, timestamp_ms, start), start)
        return found if found is not None and found.offset < upper_offset else None

    def max_timestamp(self, upper_offset: int) -> FoundTimestamp | None:
        """Return the first record that has the largest timestamp below the upper offset."""
        start, end = self._state.log_start_offset, self._state.end_offset
        upper = min(upper_offset, end)
        return self.query(lambda segments: queries.max_timestamp(segments, start, upper, end), start)

    def aborted_transactions(self, start_offset: int, upper_offset: int) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of the aborted transactions that have records in [start, upper)."""
        return self.query(lambda segments: queries.aborted(segments, start_offset, upper_offset), start_offset)
