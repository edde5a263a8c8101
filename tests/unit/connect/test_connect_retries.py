"""Pauses between attempts at a system that is away."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from odradek.client.errors import CallTimedOut, ClientError, OffsetOutOfRange, ProducerFenced
from odradek.connect import retries
from odradek.connect.client_failures import failure_of
from odradek.connect.connector_settings import ErrorPolicy
from odradek.connect.errors import TargetAway
from odradek.connect.retries import Retries
from odradek.wire.errors import ErrorCode, KafkaError

POLICY = ErrorPolicy(False, 60.0, 10.0, logs_records=False, dead_letters="", describes_failures=False)


def test_time_for_attempts_begins_with_the_first_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task may have had no work for hours before it."""
    now_s = 1_000.0
    monkeypatch.setattr(retries, "time", SimpleNamespace(monotonic=lambda: now_s))
    attempts = Retries(POLICY)
    now_s += 3_600
    assert attempts.pause_s(TargetAway("no registry")) < 1
    now_s += 60
    with pytest.raises(TargetAway, match="no registry"):
        attempts.pause_s(TargetAway("no registry"))


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER), True),
        (KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING), True),
        (KafkaError(ErrorCode.TRANSACTION_ABORTABLE), True),
        (KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), True),
        (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), False),
        (CallTimedOut("no answer"), True),
        (ProducerFenced("fenced"), False),
        (OffsetOutOfRange("auto_offset_reset is 'none'"), False),
    ],
)
def test_failure_of_a_client_says_whether_to_try_again(error: KafkaError | ClientError, passes: bool) -> None:
    assert isinstance(failure_of(error, "the brokers"), TargetAway) is passes
