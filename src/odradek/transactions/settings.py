"""The limits and delays of the transaction coordinator, under the names of Kafka's configs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from odradek.transactions.records import TV_2


def _newest_version() -> int:
    return TV_2


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Times in ms; defaults are Kafka's."""

    max_timeout_ms: int = 900_000
    """transaction.max.timeout.ms"""
    id_expiration_ms: int = 604_800_000
    """transactional.id.expiration.ms"""
    remove_expired_interval_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms: ids expire together, at multiples of it."""
    abort_timed_out_interval_ms: int = 10_000
    """transaction.abort.timed.out.transaction.cleanup.interval.ms

    Kafka looks for timed-out transactions at this interval. Here they are aborted on time; an abort that the log
    rejects is retried after it.
    """
    append_timeout_ms: int = 30_000
    """request.timeout.ms: how long an answer waits for the in-sync replicas."""
    transaction_version: Callable[[], int] = _newest_version
    """The level of the feature transaction.version that is in force now."""
