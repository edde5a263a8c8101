"""The record of searches: what it adds up, and what it refuses."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.sim.pool import Job
from odradek.sim.run import SeedResult
from tests.search import __main__ as search
from tests.search.record import Searched, merged, next_seed, parse_record, release_lines, total

SOURCES = "a" * 40


def searched(first: int, count: int, profile: str = "txn", *failed: int, sources: str = SOURCES) -> Searched:
    return Searched(sources, "c" * 40, "2026-11-24", profile, first, count, failed, 2.0 * count)


def test_line_is_read_as_it_was_written() -> None:
    lines = [searched(1, 10), searched(11, 5, "all", 12, 13)]
    assert parse_record("# a comment\n\n" + "".join(f"{each.line()}\n" for each in lines)) == lines


@pytest.mark.parametrize("line", ["one two", searched(1, 10).line() + " more", searched(1, 10).line()[:-3] + " x y"])
def test_malformed_line_is_rejected_with_its_number(line: str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        parse_record(f"# head\n{line}\n")


def test_seeds_of_several_lines_count_once() -> None:
    found = total([searched(1, 10), searched(6, 10), searched(20, 5), searched(3, 2)], SOURCES)
    assert found.seeds == {"txn": 20}


def test_total_is_of_the_same_sources_only() -> None:
    found = total([searched(1, 10), searched(11, 10, sources="b" * 40), searched(1, 3, "all", 2)], SOURCES)
    assert (found.all_seeds, found.seeds, found.failed) == (13, {"all": 3, "txn": 10}, ("all-2",))


def test_total_has_the_lines_with_another_simulator_too() -> None:
    record = [searched(1, 10), searched(11, 10, sources="b" * 40), searched(21, 10, sources="d" * 40)]
    assert total(record, SOURCES, {"b" * 40}).all_seeds == 20


def test_failure_in_two_lines_is_named_once() -> None:
    assert total([searched(1, 10, "txn", 4), searched(1, 5, "txn", 4)], SOURCES).failed == ("txn-4",)


def test_consecutive_lines_become_one() -> None:
    lines = [searched(11, 5, "txn", 12), searched(1, 10, "txn", 3), searched(20, 1), searched(1, 1, "all")]
    assert merged(lines) == [searched(1, 1, "all"), searched(1, 15, "txn", 3, 12), searched(20, 1)]


def test_lines_of_other_sources_stay_apart() -> None:
    lines = [searched(1, 10), searched(11, 5, sources="b" * 40)]
    assert merged(lines) == lines


def test_search_continues_after_the_last_seed_of_its_block() -> None:
    record = [searched(100, 20), searched(150, 1), searched(900, 9), searched(170, 5, "all")]
    assert next_seed(record, range(100, 200), "txn") == 151
    assert next_seed(record, range(300, 400), "txn") == 300


def test_release_note_says_what_is_missing() -> None:
    found = total([searched(1, 10), searched(1, 8, "all", 2)], SOURCES)
    said, missing = release_lines(found, 20)
    assert "18 different seeds" in said
    assert "8 to 10 seeds each" in said
    assert "1 failed: all-2." in said
    assert missing == "2 of 20 are missing."
    assert len(release_lines(found, 18)) == 1


def test_sources_without_a_search_are_named() -> None:
    assert release_lines(total([], SOURCES), 20) == [f"No seed was searched on sources {SOURCES[:12]}."]


# --- the command ---


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "clone"
    (root / "src").mkdir(parents=True)
    (root / "src" / "product.py").write_text("1\n")
    git(root, "init", "--quiet")
    commit(root)
    monkeypatch.setattr(search, "ROOT", root)
    return root


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True)


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "--message", "change")


def passing(jobs: Iterator[Job], processes: int) -> Iterator[SeedResult]:
    for seed, profile in jobs:
        yield SeedResult(f"{profile}-{seed}", profile, real_seconds=1.0)


def run(record: Path, *options: str) -> int:
    return search.main(["--record", str(record), "run", "--profile", "txn", "--profile", "all", *options])


def test_search_continues_where_the_last_one_ended(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(search, "outcomes", passing)
    record = clone / "searches.txt"
    assert run(record, "--seeds", "5", "--turn", "2") == 0
    assert run(record, "--seeds", "3") == 0
    lines = search.read_record(record)
    assert [(each.profile, each.seeds) for each in lines] == [("all", 4), ("txn", 4)]
    assert lines[0].first == lines[1].first
    assert "8 different seeds" in capsys.readouterr().out


def test_failed_seed_is_recorded_and_named(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(jobs: Iterator[Job], processes: int) -> Iterator[SeedResult]:
        for outcome in passing(jobs, processes):
            outcome.violation = "lost" if outcome.profile == "txn" else ""
            yield outcome

    monkeypatch.setattr(search, "outcomes", failing)
    assert run(clone / "searches.txt", "--seeds", "2") == 1
    failed = {each.profile: each.failed for each in search.read_record(clone / "searches.txt")}
    assert failed["all"] == ()
    assert len(failed["txn"]) == 1
    assert f"FAILED txn-{failed['txn'][0]}: lost" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("src/odradek/sim/checker.py", "4 different seeds"),
        ("src/product.py", "No seed was searched"),
        ("src/odradek/simple.py", "No seed was searched"),
    ],
)
def test_seeds_from_before_a_change_count_if_only_the_simulator_changed(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    monkeypatch.setattr(search, "outcomes", passing)
    record = clone / "searches.txt"
    assert run(record, "--seeds", "4") == 0
    (clone / name).parent.mkdir(parents=True, exist_ok=True)
    (clone / name).write_text("2\n")
    commit(clone)
    capsys.readouterr()
    assert search.main(["--record", str(record), "--wanted", "5", "total"]) == 0
    assert capsys.readouterr().out.startswith(said)


@pytest.mark.parametrize("name", ["src/product.py", "src/new.py"])
def test_search_of_uncommitted_sources_is_rejected(clone: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (clone / name).write_text("2\n")
    assert run(clone / "searches.txt") == 2
    assert name in capsys.readouterr().err
    assert not (clone / "searches.txt").exists()


def test_turn_in_which_the_sources_changed_is_not_recorded(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def changing(jobs: Iterator[Job], processes: int) -> Iterator[SeedResult]:
        yield from passing(jobs, processes)
        (clone / "src" / "product.py").write_text("2\n")
        commit(clone)

    monkeypatch.setattr(search, "outcomes", changing)
    assert run(clone / "searches.txt", "--seeds", "2") == 2
    assert not (clone / "searches.txt").exists()


def test_second_search_of_a_clone_is_rejected(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with search.own_block(clone / ".git" / "odradek-search-block"):
        assert run(clone / "searches.txt") == 2
    assert "another search" in capsys.readouterr().err


def test_other_sources_can_be_added_up(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search.add_to(clone / "searches.txt", [searched(1, 10)])
    assert search.main(["--record", str(clone / "searches.txt"), "--wanted", "5", "total", "--sources", SOURCES]) == 0
    assert "10 different seeds" in capsys.readouterr().out
