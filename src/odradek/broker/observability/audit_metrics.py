"""Metrics of the audit topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from odradek.metrics.definition import Family, counter, gauge, single

if TYPE_CHECKING:
    from odradek.broker.delivery.record_queue import RecordQueue

WRITTEN: Final = counter("odradek_audit_events_written", "Events of this broker that the audit topic has")
LOST: Final = counter("odradek_audit_events_lost", "Events of this broker that the audit topic will never have")
WAITING: Final = gauge("odradek_audit_queue_bytes", "Events that wait to be written to the audit topic, in bytes")


class AuditMetrics:
    """Reads the queue of audit events."""

    __slots__ = ("_queue",)

    metrics = (WRITTEN, LOST, WAITING)
    """See `Collector`."""

    def __init__(self, queue: RecordQueue) -> None:
        self._queue = queue

    def collect(self) -> Iterator[Family | None]:
        """See `Collector`."""
        yield single(WRITTEN, self._queue.written)
        yield single(LOST, self._queue.lost)
        yield single(WAITING, self._queue.size)
