"""The driver's steps of a write in one transaction, without brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import pytest

from odradek.spark import clients, transactions
from odradek.spark.lease_connections import Connections
from odradek.spark.leases import Address
from odradek.spark.options import SinkOptions
from odradek.spark.protocol import Begun, TaskReport, TransactionError
from odradek.spark.transactions import commit

OPTIONS = SinkOptions.parse(
    {
        "kafka.bootstrap.servers": "localhost:9",
        "topic": "t",
        "deliveryguarantee": "exactly-once",
        "transactionalid": "x",
    },
    streaming=True,
)
BEGUN = Begun(1, 0, None, Address("localhost", 9, "token"))


class FakeProducer:
    """A producer with which nothing may be committed."""

    def adopt(self, identity: object) -> None:
        assert identity == BEGUN.identity

    async def commit(self) -> None:
        raise AssertionError("the transaction was committed")


class FakeMarkers:
    """Markers that never arrive."""

    cancelled = 0

    async def add(self, *_: object) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            FakeMarkers.cancelled += 1
            raise


def reports(tasks: int, partitions: int, tasks_of_a_partition: int) -> list[TaskReport | None]:
    """Of tasks with one row for each of their partitions."""
    counts: list[dict[tuple[str, int], int]] = [{} for _ in range(tasks)]
    for partition in range(partitions):
        for number in range(tasks_of_a_partition):
            counts[(partition + number) % tasks]["t", partition] = 1
    return [TaskReport(BEGUN, 7, "query", each) for each in counts]


@pytest.mark.parametrize(
    ("tasks", "partitions", "tasks_of_a_partition", "warned"),
    [(160, 64, 160, True), (160, 64, 79, False), (40, 6_000, 1, False), (40, 6_000, 2, True)],
)
def test_leases_that_repartitioning_would_save_are_one_warning(
    tasks: int,
    partitions: int,
    tasks_of_a_partition: int,
    warned: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def complete(*_: object) -> Mapping[str, int]:
        await asyncio.sleep(0)  # the number of the batch is on its way
        return {}

    monkeypatch.setattr(Connections, "complete", complete)
    # No broker is there, and none is needed: the comparison fails before anything is committed.
    monkeypatch.setattr(clients, "transactional", lambda _: FakeProducer())
    monkeypatch.setattr(transactions, "_markers_of", lambda _: FakeMarkers())
    dropped: list[object] = []
    monkeypatch.setattr(clients, "drop_transactional", dropped.append)
    caplog.set_level(logging.WARNING, "odradek.spark.transactions")
    before = FakeMarkers.cancelled
    with pytest.raises(TransactionError, match="0 records were written"):
        commit(OPTIONS, reports(tasks, partitions, tasks_of_a_partition), 7)
    assert FakeMarkers.cancelled == before + 1
    # The answer to the number of the batch, if it was sent, must not meet a later transaction.
    assert dropped == [transactions.client_options(OPTIONS)]
    assert len(caplog.messages) == warned
    if warned:
        taken = partitions * tasks_of_a_partition
        (line,) = caplog.messages
        assert f"batch 7: {tasks} tasks wrote to {partitions} partitions and took at least {taken} leases" in line
        assert line.endswith(f'frame.repartition(N, "partition") before the write needs {partitions}')
