"""The demo waits for progress, reports what it waited for, and keeps its folder when it failed."""

import logging
import os
import signal
import tempfile
import time
import types
import urllib.request
from pathlib import Path

import pytest

from odradek.cli.arguments.errors import CommandError
from odradek.cli.commands import demo
from odradek.cli.commands.demo import BrokerProcess, Demo
from odradek.cli.demo.pace import Pace
from odradek.cli.demo.view import Progress, View
from odradek.cli.main import main


class RecordedView(View):
    def __init__(self) -> None:
        super().__init__()
        self.shown: list[Progress] = []

    def show(self, at: Progress) -> None:
        self.shown.append(at)


class Time:
    """A clock that only sleeps move, by what was asked for."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def idle_machine(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(demo, "time", clock)
    monkeypatch.setattr(demo, "_load", lambda: 0.0)
    return clock


class Query:
    """Reports one finished micro-batch after `looks` looks; the group counts its flights `ahead` looks earlier."""

    phase = "the first micro-batch"

    def __init__(self, traffic: types.SimpleNamespace, looks: int, ahead: int) -> None:
        self.processed = self.batches = self.looked = 0
        self.batch_seconds = 0.0
        self._traffic, self._looks, self._ahead = traffic, looks, ahead

    def look(self, finished) -> object:
        self.looked += 1
        if self.looked >= self._looks - self._ahead:
            self._traffic.results = self._traffic.total
        if self.looked == self._looks:
            self.processed, self.batches, self.batch_seconds = self._traffic.total, 1, 2.0
            finished(self.processed, 2.0)
        return self.batches


def traffic_of(total: int) -> types.SimpleNamespace:
    traffic = types.SimpleNamespace(
        total=total, produced=total, allowed=0, results=0, group_lag=0, days={}, failure=None
    )
    traffic.counted = lambda: traffic.results
    return traffic


ALIVE = types.SimpleNamespace(check=lambda: None)


def watch(folder: Path, looks: int, ahead: int = 0, patience: float = 60) -> tuple[RecordedView, Query]:
    run = Demo(folder, 30_000, patience, None)
    traffic = traffic_of(30_000)
    query = Query(traffic, looks, ahead)
    run._traffic, run._query = traffic, query  # type: ignore[assignment]
    view = RecordedView()
    run._watch(view, ALIVE, traffic, query, Pace())  # type: ignore[arg-type]
    return view, query


def test_last_view_agrees_with_the_checks_when_results_precede_the_report(tmp_path: Path):
    """The group sees the results of a micro-batch before Spark reports that it ended."""
    view, query = watch(tmp_path, looks=10, ahead=5)
    last = view.shown[-1]
    assert (last.phase, last.processed, last.micro_batches, last.results) == ("done", 30_000, 1, 30_000)
    assert query.looked == 10


def test_watch_gives_up_when_nothing_progresses_and_names_cause_and_logs(tmp_path: Path, idle_machine: Time):
    (tmp_path / "spark.log").touch()
    with pytest.raises(CommandError) as caught:
        watch(tmp_path, looks=1_000_000)
    message = str(caught.value)
    assert "gave up: no progress for 60 s" in message
    assert "waiting for: the first micro-batch" in message
    assert "30,000 of 30,000 flights sent, 0 in 0 finished micro-batches, 0 counted by the group" in message
    assert f"logs: {tmp_path / 'spark.log'}" in message
    assert "\n" not in message


def test_watch_waits_longer_when_the_machine_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    looks = 10 * 60 * 5  # ten times the patience of an idle machine
    monkeypatch.setattr(demo, "_load", lambda: 1_000.0)
    assert watch(tmp_path, looks)[0].shown[-1].phase == "done"


def test_seconds_limit_ends_the_demo_in_any_case(tmp_path: Path):
    run = Demo(tmp_path, 30_000, 60, seconds_limit=0.1)
    with pytest.raises(CommandError, match="--seconds-limit is over; waiting for: starting the broker"):
        run._wait(RecordedView(), "starting the broker", "progress")


def test_broker_that_does_not_start_is_reported_with_its_log(tmp_path: Path):
    (tmp_path / "data").write_text("a file where the data directory should be")
    broker = BrokerProcess(tmp_path)
    broker._process.wait(60)
    with pytest.raises(CommandError, match=r"the broker ended with status \d: .*; log: .*broker\.log"):
        broker.check()


def test_clients_log_to_a_file_and_not_to_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    with demo._log_to(tmp_path / "clients.log"):
        logging.getLogger("odradek.client").warning("metadata of topic %s: retrying", "t")
    assert "WARNING odradek.client: metadata of topic t: retrying" in (tmp_path / "clients.log").read_text()
    assert capfd.readouterr().err == ""


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "mkdtemp", lambda prefix: str(tmp_path.joinpath("run")))
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.mark.parametrize("outcome", ["raises", "differs"])
def test_folder_is_kept_when_the_demo_failed(
    folders: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], outcome: str
):
    def fail(self: Demo) -> bool:
        if outcome == "raises":
            raise CommandError("gave up")
        return False

    monkeypatch.setattr(Demo, "run", fail)
    assert main(["demo"]) == 1
    assert folders.exists()
    assert f"kept in {folders}" in capsys.readouterr().out


def test_cause_reaches_the_user_while_standard_error_is_a_file(
    folders: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    def fail(self: Demo) -> bool:
        with (folders / "spark.log").open("wb") as log:
            os.dup2(log.fileno(), 2)
        raise CommandError("gave up")

    monkeypatch.setattr(Demo, "run", fail)
    assert main(["demo"]) == 1
    assert capfd.readouterr().err == "odradek demo: gave up\n"


def test_folder_is_removed_and_not_named_when_all_agreed(
    folders: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(Demo, "run", lambda self: True)
    assert main(["demo"]) == 0
    assert not folders.exists()
    assert str(folders) not in capsys.readouterr().out


def test_demo_that_is_terminated_leaves_no_folder(folders: Path, monkeypatch: pytest.MonkeyPatch):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(Demo, "run", lambda self: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(SystemExit) as ended:
        main(["demo"])
    assert ended.value.code == 128 + signal.SIGTERM
    assert not folders.exists()
    assert signal.getsignal(signal.SIGTERM) is before


def test_broker_of_the_demo_serves_metrics_at_the_address_it_prints(tmp_path: Path):
    broker = BrokerProcess(tmp_path)
    try:
        deadline = time.monotonic() + 60
        while broker.ready is None and time.monotonic() < deadline:
            broker.check()
            time.sleep(0.02)
        with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=30) as answer:
            assert b"kafka_server_brokertopicmetrics_messagesin_total" in answer.read()
    finally:
        broker.stop(20)
