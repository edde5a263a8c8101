"""A coordinator with everything around it that the shell would do, at a time of the test's own."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from odradek.transactions.coordinator import TransactionCoordinator
from odradek.transactions.events import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    Markers,
    ProducerResult,
    TransactionDecision,
)
from odradek.transactions.records import TransactionRecord, decode_record, encode_record
from odradek.transactions.settings import TransactionSettings
from odradek.transactions.states import State
from odradek.wire.errors import ErrorCode


class Ids:
    """Producer ids 1000, 1001, ..."""

    def __init__(self) -> None:
        self.next = 1000

    def take(self) -> int:
        self.next += 1
        return self.next - 1


class Shard:
    """Appends what is decided to a list, in its bytes; markers wait until `write_markers`."""

    def __init__(self, settings: TransactionSettings | None = None) -> None:
        self.settings = settings or TransactionSettings()
        self.ids = Ids()
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.markers: deque[Markers] = deque()
        self.coordinator = TransactionCoordinator(self.settings, self.ids)

    def obey(self, outcome: TransactionDecision) -> Any:
        for record in outcome.records:
            self.log.append(encode_record(record, self.settings.transaction_version()))
            self.coordinator.replay(record)
        self.markers.extend(outcome.markers)
        return outcome.reply

    def init(
        self, transactional_id: str = "tx", timeout_ms: int = 60_000, producer: tuple[int, int] = (-1, -1)
    ) -> ProducerResult:
        request = InitProducerId(transactional_id, timeout_ms, *producer)
        result: ProducerResult = self.obey(self.coordinator.init_producer_id(request, self.now_ms))
        return result

    def add(
        self, producer: tuple[int, int], *partitions: int, version: int = 0, transactional_id: str = "tx"
    ) -> ErrorCode:
        wanted = frozenset(("topic", partition) for partition in partitions)
        request = AddPartitions(transactional_id, *producer, wanted, version)
        result: ErrorCode = self.obey(self.coordinator.add_partitions(request, self.now_ms))
        return result

    def end(
        self, producer: tuple[int, int], *, commit: bool = True, version: int = 0, transactional_id: str = "tx"
    ) -> ProducerResult:
        request = EndTransaction(transactional_id, *producer, commit, version)
        result: ProducerResult = self.obey(self.coordinator.end(request, self.now_ms))
        return result

    def write_markers(self) -> list[Markers]:
        written = list(self.markers)
        self.markers.clear()
        for markers in written:
            self.obey(self.coordinator.markers_written(markers, self.now_ms))
        return written

    def expire(self) -> None:
        for outcome in self.coordinator.expire(self.now_ms):
            self.obey(outcome)

    def restart(self) -> None:
        """Forget all but the log; what follows from it is begun again."""
        self.markers.clear()
        self.coordinator = TransactionCoordinator(self.settings, self.ids)
        for key, value in self.log:
            record = decode_record(key, value)
            assert isinstance(record, TransactionRecord)
            self.coordinator.replay(record)
        self.markers.extend(self.coordinator.loaded(self.now_ms))

    def state(self, transactional_id: str = "tx") -> State:
        return self.coordinator.transactions[transactional_id].state


@pytest.fixture
def shard() -> Shard:
    return Shard()
