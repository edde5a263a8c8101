"""Numbers in the requests of followers and consumers.

A number of the protocol or of a stored format is not ours to choose: it is compared with Apache Kafka's here.
"""

from __future__ import annotations

from odradek.replication.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, MAX_EPOCH, NO_SESSION
from odradek.replication.in_sync import DEFAULT_MAX_LAG_MS, NEVER_MS, UNKNOWN_EPOCH, UNKNOWN_OFFSET
from odradek.replication.partition import NO_EPOCH, NO_OFFSET, READ_COMMITTED, READ_UNCOMMITTED
from odradek.replication.record_deletion import TO_HIGH_WATERMARK


def test_epochs_of_fetch_sessions_are_those_of_the_requests() -> None:
    assert (NO_SESSION, INITIAL_EPOCH, FINAL_EPOCH, MAX_EPOCH) == (0, 0, -1, 2_147_483_647)


def test_isolation_levels_have_their_numbers() -> None:
    assert (READ_UNCOMMITTED, READ_COMMITTED) == (0, 1)


def test_values_that_stand_for_none_are_minus_one() -> None:
    assert (NO_EPOCH, NO_OFFSET, UNKNOWN_EPOCH, UNKNOWN_OFFSET, TO_HIGH_WATERMARK) == (-1, -1, -1, -1, -1)


def test_follower_may_lag_as_long_as_kafka_lets_it() -> None:
    assert DEFAULT_MAX_LAG_MS == 30_000, "replica.lag.time.max.ms"
    assert NEVER_MS < -(1 << 60), "before any time of a clock"
