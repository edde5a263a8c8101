"""What Produce looks at in the records of a partition before the log does."""

from __future__ import annotations

from typing import Final

from odradek.records.batch import COMPRESSION_MASK, HEADER_SIZE, TRANSACTIONAL_BIT
from odradek.wire.errors import ErrorCode, KafkaError

FIRST_WITH_ZSTD: Final = 7
_ZSTD: Final = 4
_LOW_ATTRIBUTES: Final = 22
"""Where in a batch the bits are that say how it is compressed, and whether it is part of a transaction."""


def is_transactional(records: memoryview) -> bool:
    """Whether the (first) batch says so; bytes that are no batch do not."""
    return len(records) >= HEADER_SIZE and bool(records[_LOW_ATTRIBUTES] & TRANSACTIONAL_BIT)


def check_carried(records: memoryview | None, version: int) -> memoryview:
    """The records, if there are any and the version of Produce may carry them (ProduceRequest.validateRecords).

    Raises KafkaError INVALID_RECORD or UNSUPPORTED_COMPRESSION_TYPE.
    """
    if records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "there is no record batch")
    is_batch = len(records) >= HEADER_SIZE
    if version < FIRST_WITH_ZSTD and is_batch and records[_LOW_ATTRIBUTES] & COMPRESSION_MASK == _ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Produce {version} may not carry zstd")
    return records
