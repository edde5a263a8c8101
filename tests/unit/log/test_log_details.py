"""Parts of a log one by one: epochs against a model, flush schedules, the flusher, the windows of producers."""

from __future__ import annotations

import asyncio
import errno
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.log.directories.flusher import LogFlusher
from odradek.log.directories.ownership import partition_names
from odradek.log.leader_epochs import LeaderEpochs
from odradek.log.writing.flush_plan import FlushSchedule
from odradek.ports.disk import SystemDisk
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.log.support import batch, open_log, produced, put

# --- leader epochs ---


@pytest.mark.parametrize("seed", range(20))
def test_epochs_answer_as_a_list_of_each_records_epoch_would(seed: int) -> None:
    chance = random.Random(seed)
    epochs, epoch = LeaderEpochs([]), chance.randrange(3)
    history: list[int] = []
    for _ in range(30):
        epoch += chance.choice((0, 1, 3))
        epochs.assign(epoch, len(history))
        history += [epoch] * chance.randrange(1, 4)
        if chance.random() < 0.3:
            end = chance.randrange(1, len(history) + 1)
            del history[end:]
            epochs.truncate_from_end(end)
            epoch = history[-1]
        assert epochs.latest == history[-1]
        for offset in range(len(history)):
            assert epochs.epoch_for(offset) == history[offset]
        for asked in range(-1, epoch + 2):
            known = [each for each in history if each <= asked]
            if asked < 0 or asked > epoch:
                expected = -1, -1
            elif not known:
                expected = asked, 0
            else:
                expected = known[-1], next((at for at, each in enumerate(history) if each > asked), len(history))
            assert epochs.end_offset_for(asked, len(history)) == expected, (asked, history)


def test_epoch_is_assigned_once_and_removes_contradictions() -> None:
    epochs = LeaderEpochs([])
    assert epochs.assign(0, 0)
    assert not epochs.assign(0, 5)
    assert epochs.assign(2, 5)
    assert not epochs.assign(2, 5)
    assert epochs.assign(3, 9)
    assert epochs.assign(4, 5), "epochs 2 and 3 have no records"
    assert epochs.entries() == [(0, 0), (4, 5)]
    assert epochs.assign(4, 3), "it began earlier than was known"
    assert epochs.entries() == [(0, 0), (4, 3)]
    assert epochs.assign(1, 7)
    assert (epochs.entries(), epochs.latest, len(epochs)) == ([(0, 0), (1, 7)], 1, 2)
    for epoch, offset in ((-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="cannot start"):
            epochs.assign(epoch, offset)


def test_empty_history_knows_no_epoch() -> None:
    epochs = LeaderEpochs([])
    assert (epochs.latest, epochs.epoch_for(0), len(epochs)) == (-1, -1, 0)
    assert [epochs.end_offset_for(epoch, 9) for epoch in (-1, 0, 3)] == [(-1, -1)] * 3


def test_epochs_of_a_truncated_log_stay_forgotten_after_a_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, batch(), epoch=1)
    put(log, batch(), epoch=4)
    log.truncate_fully_and_start_at(7)
    assert log.history.leader_epochs.entries() == []
    again = open_log(tmp_path)
    assert (again.history.leader_epochs.entries(), again.end_offset) == ([], 7)
    put(again, batch(), epoch=2)
    assert open_log(tmp_path).history.leader_epochs.entries() == [(2, 7)]


# --- flushes ---


def test_log_is_due_when_it_was_dirty_for_the_time() -> None:
    schedule = FlushSchedule()

    def due(now_ms: int, *, is_dirty: bool = True) -> bool:
        return schedule.is_due(("t", 0), is_dirty=is_dirty, flush_ms=100, now_ms=now_ms)

    assert [due(1000), due(1099), due(1100), due(1101)] == [False, False, True, True]
    assert not due(1150, is_dirty=False)
    assert [due(1200), due(1299), due(1300)] == [False, False, True], "it counts from the first look after a flush"
    assert not schedule.is_due(("t", 1), is_dirty=True, flush_ms=100, now_ms=5000)
    assert schedule.is_due(("u", 0), is_dirty=True, flush_ms=0, now_ms=5000)


class Flushed:
    """A log with steps that remain to be synced, and pieces of a snapshot to encode first."""

    def __init__(self, *offsets: int, pieces: int = 0) -> None:
        self.directory = "/d/t-0"
        self.is_offline = False
        self.pieces = pieces
        self.failure: BaseException | None = None
        self.sync_failure: OSError | None = None
        self._offsets = list(offsets)
        self.planned: list[tuple[int, int]] = []
        self.finished: list[int] = []

    def encode_snapshot(self) -> bool:
        self.pieces -= 1
        return self.pieces >= 0

    def plan_flush(self, offset: int, *, most_segments: int) -> Any:
        self.planned.append((offset, most_segments))
        if self.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "not now") from self.failure
        if not self._offsets:
            return None
        return SimpleNamespace(offset=self._offsets.pop(0), sync=self._sync)

    def _sync(self, _disk: object) -> None:
        if self.sync_failure is not None:
            raise self.sync_failure

    def finish_flush(self, plan: Any) -> None:
        self.finished.append(plan.offset)


class Places:
    """The directories of the flusher; notes what it reports."""

    def __init__(self) -> None:
        self.reports: list[str] = []
        self.failures: list[tuple[str, OSError]] = []
        self.seconds = 0.0
        self.disk = self
        self.environment = SimpleNamespace(clock=SimpleNamespace(monotonic=lambda: self.seconds))

    def lane(self, directory: str) -> str:
        return directory.rpartition("/")[0]

    async def run(self, _lane: str, work: Any, *args: Any) -> None:
        self.seconds += 0.5
        work(*args)

    def report(self, line: str) -> None:
        self.reports.append(line)

    def failed(self, directory: str, error: OSError) -> None:
        self.failures.append((directory, error))


def flush(log: Flushed, offset: int = 10) -> tuple[bool, Places, LogFlusher]:
    places: Any = Places()
    flusher = LogFlusher(places)
    return asyncio.run(flusher.flush(log, offset)), places, flusher  # type: ignore[arg-type]


def test_log_is_synced_in_steps_up_to_the_offset() -> None:
    log = Flushed(4, 8, 12, 16)
    done, places, flusher = flush(log)
    assert (done, log.finished, places.reports) == (True, [4, 8, 12], [])
    assert {offset for offset, _ in log.planned} == {10}
    assert flusher.sync_times.count == 3
    assert flusher.sync_times.total == pytest.approx(1.5)


@pytest.mark.parametrize("offsets", [(), (4,), (10,)])
def test_flush_ends_when_nothing_is_left(offsets: tuple[int, ...]) -> None:
    log = Flushed(*offsets)
    done, _, _ = flush(log)
    assert (done, log.finished) == (True, list(offsets))


def test_snapshot_is_encoded_in_pieces_before_the_sync() -> None:
    log = Flushed(10, pieces=3)
    assert flush(log)[0]
    assert (log.pieces, log.finished) == (-1, [10])


def test_log_that_is_offline_is_not_flushed() -> None:
    log = Flushed(10)
    log.is_offline = True
    assert flush(log)[0]
    assert log.planned == []


@pytest.mark.parametrize(("number", "done"), [(errno.EMFILE, False), (errno.EIO, True)])
def test_flush_that_lacks_descriptors_is_repeated(number: int, done: bool) -> None:
    log = Flushed(10)
    log.failure = OSError(number, "failed")
    found, places, _ = flush(log)
    assert found is done
    assert places.reports == ["could not flush /d/t-0: not now"]


@pytest.mark.parametrize("is_offline", [False, True])
def test_failed_sync_takes_the_directory_out_of_use_unless_the_log_is(is_offline: bool) -> None:
    log = Flushed(10)
    log.sync_failure = OSError(errno.EIO, "failed")
    places: Any = Places()
    flusher = LogFlusher(places)
    plan = log.plan_flush(10, most_segments=1)
    log.is_offline = is_offline
    assert asyncio.run(flusher._sync(log, plan, "lane"))  # type: ignore[arg-type]
    assert [directory for directory, _ in places.failures] == ([] if is_offline else ["/d/t-0"])
    assert (log.finished, flusher.sync_times.count) == ([], 0)


def test_clean_stop_syncs_logs_behind_one_that_cannot_be_closed() -> None:
    def closing(log: Flushed) -> Any:
        return SimpleNamespace(
            directory=log.directory,
            is_offline=log.is_offline,
            durability=log,
            prepare_close=lambda: log.plan_flush(10, most_segments=1),
        )

    offline, failing, sound = (Flushed(10) for _ in range(3))
    offline.is_offline = True
    failing.failure = OSError(errno.EMFILE, "failed")
    places: Any = Places()
    asyncio.run(LogFlusher(places).close([closing(each) for each in (offline, failing, sound)], 1))
    assert [each.finished for each in (offline, failing, sound)] == [[], [], [10]]
    assert places.reports == ["could not close /d/t-0: not now; the next start checks it"]


# --- directories of partitions ---


def test_partition_is_a_directory_with_a_log_or_the_id_of_its_topic(tmp_path: Path) -> None:
    for name, inside in (
        ("b-0", ["00000000000000000000.log"]),
        ("a-1", ["partition.metadata"]),
        ("c-2", ["something"]),
        ("d-3", []),
        ("no partition", ["partition.metadata"]),
    ):
        (tmp_path / name).mkdir()
        for file in inside:
            (tmp_path / name / file).touch()
    (tmp_path / "e-4").touch()
    assert partition_names(SystemDisk(), str(tmp_path)) == ["a-1", "b-0"]
    assert partition_names(SystemDisk(), str(tmp_path), ["b-0", "c-2"]) == ["b-0"]


def test_repeated_batches_are_known_after_a_restart(tmp_path: Path) -> None:
    """A snapshot has the last batch of a producer only; the log's tail has those before, beside other producers'."""
    log = open_log(tmp_path)
    for sequence in range(3):
        put(log, produced(7, sequence))
        put(log, batch())
        put(log, produced(8, sequence))
    before = [log.history.producers.producers[producer].batches for producer in (7, 8)]
    again = open_log(tmp_path)
    assert [list(again.history.producers.producers[producer].batches) for producer in (7, 8)] == [
        list(each) for each in before
    ]
    for producer in (7, 8):
        for sequence in range(3):
            assert put(again, produced(producer, sequence)).duplicate


@pytest.mark.parametrize(("inclusive", "snapshots"), [(False, [3, 4]), (True, [2, 3, 4])])
def test_flush_syncs_snapshots_above_the_recovery_point(tmp_path: Path, inclusive: bool, snapshots: list[int]) -> None:
    """Earlier ones are on the disk, except one of the recovery point that a truncation has made since."""
    log = open_log(tmp_path)
    for sequence in range(5):
        put(log, produced(1, sequence))
        log.roll()
    files = log._local.other_files(2, 4, inclusive=inclusive)
    names = [Path(each.path).name for each in files]
    assert [name for name in names if name.endswith(".snapshot")] == [f"{offset:020}.snapshot" for offset in snapshots]
    log.close()
