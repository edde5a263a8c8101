"""What a version of Produce may carry."""

from __future__ import annotations

import pytest

from odradek.api.data.produced_records import check_carried, is_transactional
from odradek.records.batch import HEADER_SIZE
from odradek.wire.errors import ErrorCode, KafkaError

_ATTRIBUTES = 22


def with_attributes(bits: int) -> memoryview:
    data = bytearray(HEADER_SIZE)
    data[_ATTRIBUTES] = bits
    return memoryview(data)


def test_records_of_an_allowed_compression_pass() -> None:
    for codec in range(4):
        assert check_carried(with_attributes(codec), 6) == with_attributes(codec)
    assert check_carried(with_attributes(4), 7) == with_attributes(4)


@pytest.mark.parametrize(
    ("records", "version", "code"),
    [(None, 9, ErrorCode.INVALID_RECORD), (with_attributes(4), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)],
)
def test_records_that_the_version_does_not_allow_are_rejected(
    records: memoryview | None, version: int, code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as rejected:
        check_carried(records, version)
    assert rejected.value.code is code


def test_only_a_whole_header_says_that_a_batch_is_transactional() -> None:
    assert is_transactional(with_attributes(0x10))
    assert not is_transactional(with_attributes(0x2F))
    assert not is_transactional(with_attributes(0x10)[:-1])
