"""Delivery of transaction markers, as the coordinator sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from odradek.records.topic_partition import PartitionKey
from odradek.transactions.events import Markers


class MarkerSender(Protocol):
    """Sends the markers of transactions whose end is decided."""

    def send(
        self, markers: Markers, coordinator_epoch: int, wanted: Callable[[], bool], done: Callable[[], None]
    ) -> None:
        """Write a marker to every partition, retrying while `wanted` returns True, and call `done` when all have it.

        Deleted partitions, and those with a newer epoch of the producer, count as written. `done` is not called if a
        partition has seen a newer epoch of the coordinator: another broker ends the transaction then.
        """
        ...

    def pending(self, transactional_id: str) -> frozenset[PartitionKey] | None:
        """The partitions that do not have the marker of the transaction that is being ended yet; None before `send`."""
        ...
