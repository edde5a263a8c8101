"""The records of a batch as columns, without an object per record."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from odradek.records.fields import Field


class RecordColumns(NamedTuple):
    """The records of a batch as columns of one length: absolute offsets, timestamps in ms, and contents."""

    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[Field]
    values: Sequence[Field]
    headers: Sequence[Sequence[tuple[str, Field]]]


class EncodedColumns(NamedTuple):
    """As `RecordColumns`, but with headers as they are encoded, their count included; empty for none."""

    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[Field]
    values: Sequence[Field]
    headers: Sequence[bytes | memoryview]

    def since(self, offset: int) -> EncodedColumns:
        """Without the records before an offset."""
        skipped = bisect_left(self.offsets, offset)
        if not skipped:
            return self
        offsets, timestamps, keys, values, headers = self
        return EncodedColumns(
            offsets[skipped:], timestamps[skipped:], keys[skipped:], values[skipped:], headers[skipped:]
        )
