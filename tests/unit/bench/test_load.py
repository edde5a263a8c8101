"""What other programs use of the machine, and when the bench does not begin."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bench.__main__ as bench_main
from bench import load
from bench.load import (
    Processors,
    RunLoad,
    busy_seconds,
    commit_id,
    is_optimised,
    load_line,
    look,
    machine,
    others_between,
    too_busy,
)


def test_busy_time_leaves_out_idle_and_guests_and_has_stolen_time() -> None:
    tick = os.sysconf("SC_CLK_TCK")
    counts = " ".join(str(seconds * tick) for seconds in (1, 2, 3, 900, 800, 4, 5, 6, 77, 88))
    assert busy_seconds(f"cpu  {counts}\ncpu0 1\n") == 1 + 2 + 3 + 4 + 5 + 6


def test_own_processor_time_is_not_that_of_others() -> None:
    before, after = Processors(10.0, 100.0, 50.0), Processors(20.0, 115.0, 61.0)
    assert others_between(before, after) == pytest.approx(0.4)
    assert others_between(before, Processors(20.0, 105.0, 56.0)) == 0.0, "ticks are coarse: never less than none"


def test_look_counts_the_work_of_this_process() -> None:
    before = look()
    while look().own - before.own < 0.05:
        sum(range(100_000))
    after = look()
    assert after.machine - before.machine >= 0.04
    assert after.at > before.at


def test_run_begins_up_to_the_limit() -> None:
    assert too_busy(0.3, 0.3) is None
    problem = too_busy(0.31, 0.3)
    assert problem is not None
    assert problem.startswith(f"other programs use 0.31 of {os.cpu_count()} cores")
    assert "--any-load" in problem
    assert re.search(r"load average \d", load_line(1.5))


def test_run_is_marked_by_its_load_before_and_during() -> None:
    loads = [RunLoad("kafka, round 1", 0.1, 0.2), RunLoad("a", 0.5, 0.2), RunLoad("b", 0.1, 0.31)]
    marks = bench_main.marks_of(loads, 0.3)
    assert [mark.partition(":")[0] for mark in marks] == ["! a", "! b"]
    assert marks[1] == "! b: other programs used 0.10 cores before and 0.31 during it; the limit is 0.3"


def test_bench_does_not_begin_on_a_busy_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_main, "others_now", lambda: 1.2)
    monkeypatch.setattr(bench_main, "run_round", lambda *_: {"start": 0.2})
    monkeypatch.setattr(sys, "argv", ["bench", "throughput", "--only", "odradek", "--rounds", "1"])
    assert bench_main.main() == 1
    assert capsys.readouterr().err.startswith("./dev bench: other programs use 1.20 of")
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--any-load"])
    assert bench_main.main() == 0
    shown = capsys.readouterr()
    assert "medians, beside a busy machine" in shown.out
    assert "! odradek, round 1: other programs used 1.20 cores before" in shown.out
    assert "  odradek  other programs use 1.20 of" in shown.err


def test_optimised_interpreter_is_recognised() -> None:
    assert is_optimised("'--prefix=/usr' '--enable-optimizations' '--with-lto'")
    assert not is_optimised("'--prefix=/usr' '--enable-shared'")
    assert isinstance(machine()["optimised"], bool)


def test_recorded_history_makes_no_other_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> None:
        author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *author, *words], check=True, capture_output=True)

    (tmp_path / "bench").mkdir()
    for name in ("bench/history.jsonl", "broker.py"):
        (tmp_path / name).write_text("1\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    monkeypatch.setattr(load, "ROOT", tmp_path)
    clean = commit_id()
    (tmp_path / "bench" / "history.jsonl").write_text("2\n")
    assert commit_id() == clean
    (tmp_path / "broker.py").write_text("2\n")
    assert commit_id() == f"{clean}-dirty"
    monkeypatch.setattr(load, "ROOT", tmp_path / "nowhere")
    assert commit_id() == "unknown"


def test_commit_of_this_checkout_is_found() -> None:
    assert re.fullmatch(r"[0-9a-f]{10,}(-dirty)?|unknown", commit_id())
