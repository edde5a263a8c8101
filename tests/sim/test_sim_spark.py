"""Spark's exactly-once protocol in simulated worlds, and proof that mistakes in it would be found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.client.producer.transactions import TransactionalProducer
from odradek.sim.run import run_seed
from odradek.sim.workloads.spark_sink import MARKER_TOPIC
from odradek.spark import markers, protocol
from odradek.spark.leases import Batch, Following


def test_fixed_seeds() -> None:
    marks: Counter[str] = Counter()
    for seed in range(1, 8):
        outcome = run_seed(seed, "spark")
        assert not outcome.violation, f"{outcome.seed}: {outcome.violation}: {outcome.story}"
        assert outcome.faults
        assert outcome.marks["query checked"] == 1
        marks += outcome.marks
    for mark in (
        "micro-batch committed", "micro-batch failed", "micro-batch skipped", "marker expired", "task started twice",
        "two drivers of one query", "transaction.version 1", "micro-batch that asks no broker to begin",
        "micro-batch committed, but not noted",
    ):  # fmt: skip
        assert marks[mark] > 0, mark


def _never_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "is_done", lambda begun, batch_id, query_id: False)


def _only_the_offset_that_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    original = markers.Markers.__init__

    def made(self: Any, options: Any, topic: Any, wait_ms: int) -> None:
        original(self, options, None if topic == MARKER_TOPIC else topic, wait_ms)

    monkeypatch.setattr(markers.Markers, "__init__", made)


def _both_attempts_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task may be run again at any time, without a comparison."""

    def join(self: Any, holder: object, task: int) -> None:
        self._tasks[task] = holder

    monkeypatch.setattr(Batch, "join", join)
    monkeypatch.setattr(protocol, "compare", lambda counts, let_through: None)


def _a_transaction_for_the_marker_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that dies between the two has written unrecorded rows."""

    async def finish(
        producer: TransactionalProducer,
        begun: Any,
        counts: protocol.Counts,
        let_through: Awaitable[Any],
        kept: Any,
        recorded: Any,
        source: Any,
        topic: Any,
    ) -> None:
        protocol.compare(counts, await let_through)
        records = sum(counts.values())
        producer.adopt(begun.identity)
        if records:
            await producer.commit()
            await producer.initialize()
            producer.begin()
        await kept.add(producer, recorded, topic, records)
        await producer.commit()

    monkeypatch.setattr(protocol, "finish", finish)


def _commit_leaves_the_number_of_the_batch_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose commit Spark has not noted begins with that, and is written again."""
    original = protocol.finish

    async def finish(*arguments: Any) -> Following | None:
        left = await original(*arguments)
        return None if left is None else left._replace(batch_id=left.batch_id - 1)

    monkeypatch.setattr(protocol, "finish", finish)


@pytest.mark.parametrize(
    "mistake",
    [
        _never_done,
        _only_the_offset_that_expires,
        _both_attempts_write,
        _a_transaction_for_the_marker_alone,
        _commit_leaves_the_number_of_the_batch_before,
    ],
)
def test_mistakes_are_found(mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    for seed in range(1, 60):
        violation = run_seed(seed, "spark").violation
        if violation:
            assert violation in ("a micro-batch is written once", "micro-batches are in order"), violation
            return
    raise AssertionError("no seed finds it")
