"""Patterns over transactional ids."""

from __future__ import annotations

import pytest

from odradek.transactions.id_patterns import id_matcher
from odradek.wire.errors import ErrorCode, KafkaError


def test_pattern_has_to_match_the_complete_id() -> None:
    matches = id_matcher("pay-[0-9]+")
    assert matches("pay-17")
    assert not matches("pay-")
    assert not matches("repay-17")
    assert not matches("pay-17x")


@pytest.mark.parametrize("pattern", ["(", "a**b(", r"(a)\1", "(?=a)a"])
def test_pattern_is_rejected_when_re2_cannot_compile_it(pattern: str) -> None:
    with pytest.raises(KafkaError) as refused:
        id_matcher(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_no_pattern_takes_exponential_time() -> None:
    assert not id_matcher("(a|a|aa)+b")("a" * 5000)
