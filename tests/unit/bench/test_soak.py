"""Samples of a soak, and what counts as growth."""

from __future__ import annotations

import pytest

import bench.soak.__main__ as soak_main
from bench.soak.samples import Sample, line_of, mark_of, merged, verdicts


def sample(minute: float, *, memory_mb: float = 50.0, p99_ms: float = 3.0, most_ms: float = 9.0) -> Sample:
    return Sample(minute, memory_mb, 100, 20.0, 0, 1000, 1.0, p99_ms, most_ms, 0.1)


def test_steady_broker_does_not_grow() -> None:
    found = verdicts([sample(minute, memory_mb=50 + minute % 2) for minute in range(30)])
    assert all(verdict.is_met for verdict in found)
    assert line_of(found[0]).endswith("; no growth")


def test_growth_after_the_warm_up_is_seen() -> None:
    found = {each.figure: each for each in verdicts([sample(minute, memory_mb=50 + minute) for minute in range(30)])}
    memory = found["memory, MB"]
    assert (memory.before, memory.after, memory.allowed) == (64.5, 74.5, 67.5)
    assert not memory.is_met
    assert line_of(memory) == "memory, MB: 64.5 in the second third, 74.5 in the last; GROWS: at most 67.5 is allowed"
    assert found["descriptors"].is_met


def test_warm_up_is_no_growth() -> None:
    samples = [sample(minute, memory_mb=min(90.0, 40.0 + 10 * minute)) for minute in range(18)]
    assert all(verdict.is_met for verdict in verdicts(samples))


def test_rising_latency_is_growth() -> None:
    samples = [sample(minute, p99_ms=4.0 if minute < 20 else 40.0) for minute in range(30)]
    assert [each.figure for each in verdicts(samples) if not each.is_met] == ["end to end p99, ms"]


def test_few_samples_say_nothing() -> None:
    with pytest.raises(ValueError, match="5 samples, at least 6 are needed"):
        verdicts([sample(minute) for minute in range(5)])


def test_merged_samples_keep_sums_and_maxima() -> None:
    samples = [sample(minute, most_ms=float(minute)) for minute in range(50)]
    found = merged(samples, rows=20)
    assert len(found) == 17
    assert sum(each.records for each in found) == 50_000
    assert max(each.most_ms for each in found) == 49.0
    assert found[-1].minute == 49.0
    assert merged(samples[:6]) == samples[:6]


def test_windows_beside_a_busy_machine_are_counted() -> None:
    samples = [sample(1.0), sample(2.0)._replace(others=0.5), sample(3.0)._replace(others=0.3)]
    assert mark_of(samples, 0.3) == "! in 1 of 3 windows other programs used more than 0.3 cores"
    assert mark_of(samples, 0.5) is None


def test_holds_are_read_from_the_metrics() -> None:
    metrics = "# TYPE odradek_event_loop_holds_total counter\nodradek_event_loop_holds_total 7\nother 9\n"
    assert soak_main.holds_of(metrics) == 7


@pytest.mark.parametrize("arguments", [["--minutes", "0.5"], ["--rate", "0"], ["--window", "0"]])
def test_soak_without_enough_windows_is_rejected(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        soak_main.main(arguments)
    assert raised.value.code == 2
    assert "at least 6 windows of --window seconds have to fit into --minutes" in capsys.readouterr().err


def test_soak_does_not_begin_on_a_busy_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(soak_main, "others_now", lambda: 0.9)
    assert soak_main.main(["--minutes", "2"]) == 1
    assert capsys.readouterr().err.startswith("./dev bench soak: other programs use 0.90 of")
