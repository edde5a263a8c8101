"""Figures of the bench over commits."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench.history import Entry, append, bar, main, medians, points, read
from bench.metrics import METRICS, summary


def entry(commit: str, produce: float | None, kafka: float | None = None, others: float = 0.1) -> Entry:
    figures = {
        server: {"produce": value} for server, value in (("odradek", produce), ("kafka", kafka)) if value is not None
    }
    return Entry(commit, "2026-11-23T18:00:00Z", {"cpus": 2}, 1.0, 3, others, 0.3, figures)


def test_recorded_history_can_be_read() -> None:
    """Each line names a commit, its load and figures that the bench still has."""
    entries = read()
    assert entries
    assert [each.when for each in entries] == sorted(each.when for each in entries)
    for each in entries:
        assert re.fullmatch(r"[0-9a-f]{10,40}(-dirty)?", each.commit), each
        assert each.figures.keys() <= {"odradek", "kafka"}
        assert each.others >= 0
        assert each.limit > 0
        assert all(value > 0 for values in each.figures.values() for value in values.values()), each.commit
        assert list(points([each], next(name for name in METRICS if name in each.figures["odradek"])))


def test_entry_that_is_appended_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    first, second = entry("a" * 10, 500.0, 200.0), entry("b" * 10, 600.0)
    append(first, path)
    append(second, path)
    assert read(path) == [first, second]
    found = list(points(read(path), "produce"))
    assert [each.ratio for each in found] == [2.5, None]
    assert list(points(read(path), "consume")) == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 2: Expecting property name"),
        ('{"commit": "a"}', "line 2: .*missing"),
        (
            json.dumps(entry("a" * 10, 1.0)._asdict() | {"figures": {"odradek": {"speed": 1}}}),
            "line 2: no figures speed",
        ),
    ],
)
def test_line_that_is_no_entry_is_named(line: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(entry("a" * 10, 1.0).line() + line + "\n")
    with pytest.raises(ValueError, match=problem):
        read(path)


def test_medians_are_those_of_the_table() -> None:
    rows = summary({"odradek": {"produce": [1.0, 3.0, 2.0]}, "kafka": {"consume": [5.0]}})
    assert medians(rows) == {"odradek": {"produce": 2.0}, "kafka": {"consume": 5.0}}


def test_bars_are_as_long_as_their_shares() -> None:
    assert len(bar(50.0, 100.0)) * 2 == len(bar(100.0, 100.0))
    assert bar(0.01, 100.0) == "█"
    assert bar(None, 100.0) == ""


def test_history_shows_a_figure_over_commits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.jsonl"
    for each in (entry("a" * 10, 250.0, 100.0), entry("b" * 10, 500.0, others=1.5), entry("c" * 10, 400.0)):
        append(each, path)
    assert main(["produce", "--file", str(path)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "2026" in line]
    assert [line.split()[1] for line in lines] == ["a" * 10, "b" * 10, "c" * 10]
    assert [line.count("█") for line in lines] == [15, 30, 24]
    assert "2.50×" in lines[0]
    assert ["!" in line for line in lines] == [False, True, False]
    assert main(["produce", "--file", str(path), "--quiet", "--last", "1"]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines() if "2026" in line] == ["c" * 10]


def test_history_lists_recorded_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.jsonl"
    append(entry("a" * 10, 250.0), path)
    assert main(["--file", str(path)]) == 0
    assert capsys.readouterr().out.split() == ["1", "produce"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [(["speed"], "no run has 'speed'"), (["produce", "--last", "0"], "--last 0: at least 1 is needed")],
)
def test_history_rejects_what_it_does_not_have(
    arguments: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.jsonl"
    append(entry("a" * 10, 250.0), path)
    with pytest.raises(SystemExit) as raised:
        main([*arguments, "--file", str(path)])
    assert raised.value.code == 2
    assert problem in capsys.readouterr().err
