"""Delivery of transaction markers, as the coordinator sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from odradek.transactions.events import Markers
from odradek.transactions.records import TopicPartition


class MarkerSender(Protocol):
    def send(
        self, markers: Markers, coordinator_epoch: int, wanted: Callable[[], bool], done: Callable[[], None]
    ) -> None:
        """Write a marker to every partition, trying again while `wanted` says so, and call `done` when all have it.

        A partition that does not exist any more has it, and one that has seen a newer epoch of the producer. `done` is
        not called when a partition has seen a newer epoch of the coordinator: then somebody else ends this transaction.
        """
        ...

    def pending(self, transactional_id: str) -> frozenset[TopicPartition] | None:
        """The partitions that do not have the marker of the transaction that is being ended yet; None before `send`."""
        ...
