"""The line of time of a gap: its parts, and what it takes from logs and from the machine."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from tests.faults import timeline
from tests.faults.judge import Gap
from tests.faults.timeline import Load, Moment, Parts, logged, parts, shares, story, summary, worst_by_kind

DEAD = "broker 1 is dead: its connection closed and nothing listens at its address"
ELECTED = "broker 2 replaces broker 1 as leader of 2 partitions: steady-0, steady-1"
BEGAN = "began to lead 2 partitions: steady-0, steady-1"


def gap(seconds: float = 2.0, kind: str = "kill a leader", since: float = 10.0) -> Gap:
    return Gap(seconds, kind, "steady", ("steady", 0), since)


def moments(*found: tuple[float, str]) -> list[Moment]:
    return [Moment(at, "broker 2", what) for at, what in found]


def rounded(found: Parts) -> tuple[float | None, ...]:
    return tuple(None if part is None else round(part, 3) for part in found)


def test_each_part_ends_where_the_next_begins() -> None:
    found = parts(gap(), moments((10.2, DEAD), (10.5, ELECTED), (11.1, BEGAN)))
    assert rounded(found) == (0.2, 0.3, 0.6, 0.9)


def test_part_that_no_log_has_belongs_to_the_next() -> None:
    found = parts(gap(), moments((10.5, ELECTED), (11.1, BEGAN)))
    assert rounded(found) == (None, 0.5, 0.6, 0.9)


def test_what_happened_before_or_after_the_gap_does_not_count() -> None:
    found = parts(gap(), moments((9.9, DEAD), (9.95, ELECTED), (12.5, BEGAN)))
    assert rounded(found) == (None, None, None, 2.0)


def test_leader_of_an_election_before_the_fault_was_noticed_does_not_count() -> None:
    found = parts(gap(), moments((10.1, BEGAN), (10.5, DEAD), (10.6, ELECTED), (10.7, BEGAN)))
    assert rounded(found) == (0.5, 0.1, 0.1, 1.3)


def test_lines_of_leaders_are_read_from_a_log(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    epoch = time.mktime((2026, 11, 24, 6, 0, 0, 0, 0, -1))
    log.write_text(
        "2026-11-24 06:00:01,250 INFO odradek.broker.cluster.lease_holder: began to lead 1 partitions: steady-0\n"
        "2026-11-24 06:00:02,000 INFO odradek.transactions: aborting the transaction of bank-2\n"
        "    a line of a traceback\n"
    )
    assert logged(log, "broker 1", epoch) == [Moment(1.25, "broker 1", "began to lead 1 partitions: steady-0")]
    assert logged(tmp_path / "none.log", "broker 1", epoch) == []


def load(at: float, busy: float, idle: float, stolen: float = 0.0, **waited: float) -> Load:
    return Load(at, busy, stolen, idle, waited)


def test_shares_are_of_the_time_of_the_gap() -> None:
    samples = [load(0, 0, 0), load(10, 10, 10), load(11, 11.5, 10.5, 0.5, b=1.0), load(12, 13, 11, 1.0, b=1.5)]
    found = shares(samples, 10.0, 12.0)
    assert (found.busy, found.stolen) == (0.75, 0.25)
    assert found.waited == {"b": 0.5}
    assert str(found) == "processors 75% busy (25% stolen); waited for one: b 0.50 s"


def test_wait_of_a_process_that_started_again_counts_from_nothing() -> None:
    samples = [load(0, 0, 0, b=5.0), load(1, 1, 1, b=0.1), load(2, 2, 2, b=0.4)]
    assert round(shares(samples, 0.0, 2.0).waited["b"], 3) == 0.3


def test_worst_gap_of_each_kind_comes_first() -> None:
    gaps = [gap(1.0), gap(3.0), gap(2.0, "reassignment"), gap(0.0, "clock jump")]
    assert worst_by_kind(gaps) == [gap(3.0), gap(2.0, "reassignment"), gap(0.0, "clock jump")]


def test_summary_has_a_line_for_each_kind() -> None:
    samples = [load(10, 10, 10), load(12, 13, 11)]
    head, line = summary([gap()], moments((10.2, DEAD), (10.5, ELECTED), (11.1, BEGAN)), samples)
    assert "noticed elected   began  client" in head
    assert line.split() == ["kill", "a", "leader", "2.00", "0.20", "0.30", "0.60", "0.90", "75%,", "0%"]


def test_story_is_in_the_order_of_time() -> None:
    lines = story(gap(), moments((10.2, DEAD), (9.8, "kill -9"), (11.1, BEGAN)), shares([], 0, 1))
    assert [line.split(": ", 1)[1] for line in lines[2:]] == ["kill -9", "last record", DEAD, BEGAN, "next record"]


def test_processes_that_wait_for_a_processor_are_seen() -> None:
    """More threads than processors: some of them wait."""
    ended = threading.Event()
    children = []
    for _ in range(2 * (os.cpu_count() or 1)):
        child = os.fork()
        if not child:
            while os.getppid() != 1:
                pass
            os._exit(0)
        children.append(child)
    try:
        deadline = time.monotonic() + 30
        while not any(timeline.waited_seconds(str(child)) for child in children):
            assert time.monotonic() < deadline
            ended.wait(0.01)
    finally:
        for child in children:
            os.kill(child, 9)
            os.waitpid(child, 0)
    assert timeline.waited_seconds("0") == 0.0
