"""Invariants of replication that a broker checks while it serves, and how often each was violated.

The simulator checks the same ones, and more of them, on all brokers at once. A count above 0 is a defect of the
software, of the disk or of the memory, or the consequence of an unclean election; see `Invariant`.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import Final

logger = logging.getLogger(__name__)

_MOST_LINES: Final = 10
"""Violations of one invariant that the log has; all are counted."""


class Invariant(Enum):
    """What must hold at every moment; the values are those of the label `invariant`."""

    COMMITTED_RECORDS_KEPT = "committed_records_kept"
    """A replica does not truncate records below its high watermark. Unclean elections violate it."""
    CONTROLLER_EPOCH_MONOTONIC = "controller_epoch_monotonic"
    """A broker that has obeyed a controller obeys no earlier one."""
    HIGH_WATERMARK_MONOTONIC = "high_watermark_monotonic"
    """The high watermark of a leader does not go back."""
    HIGH_WATERMARK_WITHIN_LOG = "high_watermark_within_log"
    """The high watermark of a leader is between the start and the end of its log."""
    ISR_WITHIN_REPLICAS = "isr_within_replicas"
    """The members of an ISR are replicas of the partition."""
    ONE_LEADER_PER_EPOCH = "one_leader_per_epoch"
    """A partition has one leader in a leader epoch."""


class InvariantCounters:
    """The violations of one broker since its start."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts = dict.fromkeys(Invariant, 0)
        """How often each invariant was violated."""

    def violated(self, invariant: Invariant, place: str, found: str) -> None:
        """Count a violation at a place, such as a partition, and log what was found."""
        self.counts[invariant] += 1
        count = self.counts[invariant]
        if count <= _MOST_LINES:
            logger.error(
                "the invariant %s is violated: %s: %s; records may be lost, keep this log and the data%s",
                invariant.value, place, found, "" if count < _MOST_LINES else " (further ones are counted only)",
            )  # fmt: skip
