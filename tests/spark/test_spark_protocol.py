"""The steps of the exactly-once protocol on real brokers, without Spark: what each leaves behind, and who is fenced."""

import os
import time
import uuid
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from odradek.client.errors import ProducerFenced
from odradek.client.reports.spark_queries import marker_group
from odradek.spark import clients
from odradek.spark.leases import LeaseError
from odradek.spark.markers import Recorded
from odradek.spark.options import SinkOptions
from odradek.spark.transactions import (
    Begun,
    TaskReport,
    TransactionError,
    abort,
    begin,
    client_options,
    commit,
    give_up,
    is_done,
    with_identity,
    write_rows,
)
from tests.spark.support import Topics
from tests.spark.targets import NAMES

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.parametrize(
        "bootstrap",
        [pytest.param(name, marks=[pytest.mark.long] if name.startswith("kafka") else []) for name in NAMES],
        indirect=True,
    ),
]


class Writes:
    """One query's writes into a topic of its own."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self.topic = topics.create(2)
        self.name = f"query-{uuid.uuid4().hex[:8]}"
        given = {"kafka.bootstrap.servers": topics.bootstrap, "topic": self.topic, "transactionalid": self.name}
        self.options = SinkOptions.parse(given, streaming=False)

    def begin(self) -> Begun:
        return begin(self.options, os.getpid())

    def task(self, begun: Begun, batch: int, task: int, numbers: Iterable[int]) -> TaskReport:
        values = [b"%d" % n for n in numbers]
        rows = pa.RecordBatch.from_arrays([pa.array(values, pa.binary())] * 2, ["key", "value"])
        return TaskReport(begun, batch, "q", write_rows(self.options, begun, task, iter([rows])))

    def write(self, batch: int, numbers: range) -> Begun:
        begun = self.begin()
        reports = [self.task(begun, batch, task, numbers[task::2]) for task in range(2)]
        commit(self.options, reports, batch)
        return begun

    def visible(self) -> list[int]:
        # A coordinator answers once a transaction's outcome is certain; its markers may come later.
        deadline = time.monotonic() + 30
        while self.topics.ends(self.topic, 2, committed=True) != self.topics.ends(self.topic, 2):
            assert time.monotonic() < deadline, "a transaction is still open"
            time.sleep(0.01)
        return sorted(int(r.value) for r in self.topics.read(self.topic, 2, committed=True))


@pytest.fixture
def writes(topics: Topics) -> Writes:
    return Writes(topics)


def test_a_batch_and_its_number_are_committed_together(writes: Writes) -> None:
    assert writes.begin().recorded is None
    writes.write(0, range(100))
    assert writes.visible() == list(range(100))
    writes.write(1, range(100, 150))
    begun = writes.begin()
    assert begun.recorded == Recorded(1, "q")
    assert is_done(begun, 1, "q")
    assert not is_done(begun, 2, "q")
    with pytest.raises(TransactionError, match="another query"):
        is_done(begun, 0, "other")
    assert writes.visible() == list(range(150))


def test_the_number_outlives_its_offset(writes: Writes) -> None:
    for batch in range(3):
        writes.write(batch, range(10 * batch, 10 * batch + 10))
    writes.topics.delete_group(marker_group(writes.name))
    writes.begin()  # the first one asks no broker
    assert writes.begin().recorded == Recorded(2, "q")


def test_transaction_after_a_commit_begins_with_what_that_left(writes: Writes) -> None:
    """With TV2 under the epoch of the commit; to ask for another would take one more. With TV1 that is the only one."""
    first = writes.write(0, range(10))
    second = writes.begin()
    assert second.identity == first.identity._replace(epoch=first.epoch + 1)
    assert second.recorded == Recorded(0, "q")
    commit(writes.options, [writes.task(second, 1, 0, range(10, 20))], 1)
    third = writes.write(2, range(20, 30))
    assert third.epoch == first.epoch + 2
    assert writes.visible() == list(range(30))


def test_epoch_that_a_commit_left_is_fenced_by_who_begins_meanwhile(writes: Writes) -> None:
    writes.write(0, range(10))
    other = clients.run(clients.transactional(client_options(writes.options)).initialize())
    begun = writes.begin()
    if begun.epoch < other.epoch:  # with TV1 nothing was left, so that this begins after the other
        with pytest.raises(ProducerFenced):
            writes.task(begun, 1, 0, range(10, 20))
    writes.write(1, range(10, 20))
    assert writes.visible() == list(range(20))


def test_what_is_aborted_is_not_there(writes: Writes) -> None:
    begun = writes.begin()
    writes.task(begun, 0, 0, range(50))
    abort(writes.options, begun)
    assert writes.begin().recorded is None
    abort(writes.options, writes.write(0, range(50)))
    writes.write(1, range(50, 60))
    assert writes.visible() == list(range(60))


def test_a_zombie_can_neither_write_nor_commit(writes: Writes) -> None:
    old = writes.begin()
    report = writes.task(old, 0, 0, range(50))
    new = writes.begin()
    with pytest.raises((ProducerFenced, LeaseError)):
        writes.task(old, 0, 1, range(50))
    with pytest.raises((ProducerFenced, LeaseError)):
        commit(writes.options, [report], 0)
    reports = [writes.task(new, 0, task, range(task, 50, 2)) for task in range(2)]
    commit(writes.options, reports, 0)
    assert writes.visible() == list(range(50))


def test_a_task_that_ran_twice_is_not_committed(writes: Writes) -> None:
    begun = writes.begin()
    first = writes.task(begun, 0, 0, range(50))
    with pytest.raises(LeaseError, match="started again"):
        writes.task(begun, 0, 0, range(50))
    with pytest.raises(LeaseError, match="started again"):
        commit(writes.options, [first], 0)
    begun = writes.begin()
    first = writes.task(begun, 0, 0, range(50))
    writes.task(begun, 0, 1, range(50, 60))
    with pytest.raises(TransactionError, match="a task ran twice"):
        commit(writes.options, [first], 0)
    abort(writes.options, begun)
    assert writes.visible() == []


def test_a_single_write_is_whole_or_given_up(writes: Writes) -> None:
    for end in (give_up, None):
        options = with_identity(writes.options._replace(transactional_id=None))
        begun = begin(options, os.getpid(), batches=False)
        rows = pa.RecordBatch.from_arrays([pa.array([b"1", b"2"], pa.binary())], ["value"])
        counts = write_rows(options, begun, 0, iter([rows]))
        if end is not None:
            end(options, begun)
            assert writes.visible() == []
        else:
            commit(options, [TaskReport(begun, -1, "", counts)])
    assert writes.visible() == [1, 2]


def test_few_rows_of_several_partitions_are_sent_together(writes: Writes, monkeypatch: pytest.MonkeyPatch) -> None:
    """One turn of the event loop for all of them, where rows are few; large parts go out while others are encoded."""
    started: list[Any] = []
    start = clients.start

    def counted(work: Any) -> Any:
        started.append(work)
        return start(work)

    monkeypatch.setattr(clients, "start", counted)
    begun = writes.begin()
    reports = [writes.task(begun, 0, 0, range(100))]
    assert len(reports[0].counts or {}) == 2
    assert len(started) == 1
    reports.append(writes.task(begun, 0, 1, range(100, 30_000)))
    assert len(started) == 3
    commit(writes.options, reports, 0)
    assert writes.visible() == list(range(30_000))


def test_a_write_of_nothing_commits_nothing(writes: Writes) -> None:
    options = with_identity(writes.options._replace(transactional_id=None))
    begun = begin(options, os.getpid(), batches=False)
    commit(options, [TaskReport(begun, -1, "", write_rows(options, begun, 0, iter(())))])
    assert writes.topics.ends(writes.topic, 2) == [0, 0]


def test_producers_of_single_writes_do_not_pile_up(writes: Writes) -> None:
    for _ in range(3):
        options = with_identity(writes.options._replace(transactional_id=None))
        begun = begin(options, os.getpid(), batches=False)
        rows = pa.RecordBatch.from_arrays([pa.array([b"1"], pa.binary())], ["value"])
        commit(options, [TaskReport(begun, -1, "", write_rows(options, begun, 0, iter([rows])))])
    kept = [str(dict(each)["transactional_id"]) for each in clients._process().transactional]
    assert sum(each.startswith(clients.SINGLE_WRITE) for each in kept) == 1
    assert writes.visible() == [1, 1, 1]
