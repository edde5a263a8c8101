"""The short story of a violation: what belongs to it, and nothing else."""

from __future__ import annotations

from odradek.sim.checkers.history import (
    ABORTED,
    OK,
    Committed,
    FinalLog,
    History,
    Looked,
    Owned,
    Reader,
    Seen,
    Send,
    Transaction,
)
from odradek.sim.checkers.stories import LINES, story_of
from odradek.sim.planted.broker_bugs import BUGS, planted
from odradek.sim.run import run_seed

PLAIN, OTHER = ("plain", 0), ("plain", 1)
NOTES = [
    "  0.100000 b1.1 serves",
    "  1.500000 fault: stall",
    "  3.000000 fault: crash",
    "  3.000000 b1.1 is killed",
    "  3.500000 member-1: commit: KafkaError NOT_COORDINATOR",
    "  3.600000 bank-1: commit: KafkaError NOT_COORDINATOR",
    "  4.000000 b1.2 serves",
    " 20.000000 fault: stall",
    " 30.000000 b1.2 is killed",
    " 40.000000 all is healed",
]


def history() -> History:
    made = History()
    transaction = Transaction("bank-1.1/3", 4, 1.9, ABORTED, commit_asked_at=None, ended_at=2.5)
    made.transactions.append(transaction)
    for number, (key, where) in enumerate(((PLAIN, None), (PLAIN, transaction), (OTHER, transaction), (OTHER, None))):
        value = b"bank-1.1/3:%d:xx" % number
        made.send(Send(value, "bank-1.1/3", key, number, 2.0, where, OK, number, 2.1))
        made.readers.append(Reader("reader-1.1", "read_committed", [(2.2, Seen(key, number, value))] * 2))
    made.final[PLAIN] = FinalLog(0, 2, [Seen(PLAIN, 1, b"bank-1.1/3:1:xx")], [], read_at=50.0)
    return made


def story(violation: str, made: History | None = None) -> list[str]:
    return [" ".join(line.split()) for line in story_of(violation, made or history(), NOTES)]


def test_a_record_and_what_happened_to_the_brokers_until_the_end() -> None:
    assert story("bank-1.1/3:0 (plain-0@0 ok, sent 2.000, acked 2.100) is not there") == [
        "0.100 b1.1 serves",
        "1.500 fault: stall",
        "2.000 bank-1.1/3:0 is sent to plain-0",
        "2.100 bank-1.1/3:0 is acknowledged at plain-0 0",
        "2.200 reader-1.1 (read_committed) reads bank-1.1/3:0 at plain-0 0",
        "3.000 b1.1 is killed",
        "3.000 fault: crash",
        "4.000 b1.2 serves",
        "30.000 b1.2 is killed",
        "40.000 all is healed",
    ]


def test_story_of_a_transaction_shows_its_writes_up_to_the_given_time() -> None:
    lines = story("reader-1.1 at 2.200 read bank-1.1/3:1 (plain-0@1 ok in transaction bank-1.1/3#4 (aborted)) @1")
    assert lines == [
        "0.100 b1.1 serves",
        "1.500 fault: stall",
        "1.900 transaction bank-1.1/3#4 begins",
        "2.000 bank-1.1/3:1 is sent to plain-0 in transaction #4",
        "2.000 bank-1.1/3:2 is sent to plain-1 in transaction #4",
        "2.100 bank-1.1/3:1 is acknowledged at plain-0 1",
        "2.100 bank-1.1/3:2 is acknowledged at plain-1 2",
        "2.200 reader-1.1 (read_committed) reads bank-1.1/3:1 at plain-0 1",
        "2.500 transaction bank-1.1/3#4 is aborted",
        "3.000 b1.1 is killed",
        "3.000 fault: crash",
    ]


def test_offsets_that_were_returned_and_committed() -> None:
    made = history()
    for at, offset in ((1.0, 9), (2.0, 9), (2.5, 9), (3.0, 8), (3.1, 7)):
        made.looks.append(Looked(at, at, "committed:workers", PLAIN, offset))
        made.looks.append(Looked(at, at, "committed:others", PLAIN, offset))
        made.looks.append(Looked(at, at, "earliest", PLAIN, offset))
    made.commits.append(Committed(0.5, 0.6, "workers", PLAIN, 9, "m", 1, OK))
    made.commits.append(Committed(0.5, 0.6, "workers", OTHER, 9, "m", 1, OK))
    lines = story("workers received 8 for plain-0 at 3.000; 9 had been committed before 2.900", made)
    assert [line for line in lines if "b1." not in line and "fault" not in line] == [
        "0.600 workers: m commits 9 of plain-0: ok",
        "1.000 committed:workers of plain-0 is returned as 9 (asked at 1.000)",
        "2.500 committed:workers of plain-0 is returned as 9 (asked at 2.500)",
        "3.000 committed:workers of plain-0 is returned as 8 (asked at 3.000)",
    ]


def test_a_generation_of_a_group() -> None:
    made = history()
    for member, generation in (("m", 3), ("n", 3), ("m", 4)):
        made.owned.append(Owned(1.0, "workers", generation, member, frozenset({PLAIN})))
    lines = story("plain-0 in generation 3 of workers: ('m', 1.0) and ('n', 1.0)", made)
    assert [line for line in lines if "has" in line] == [
        "1.000 workers: m has [('plain', 0)] in 3",
        "1.000 workers: n has [('plain', 0)] in 3",
    ]


def test_a_client_that_does_not_come_to_its_end() -> None:
    lines = story("bank-1 is not done 90.0 s after all faults ended")
    assert "3.600 bank-1: commit: KafkaError NOT_COORDINATOR" in lines
    assert not any("member-1" in line for line in lines)


def test_no_actor_is_named() -> None:
    assert story("something is wrong") == []


def test_a_real_story_is_short_and_of_one_record() -> None:
    bug = next(bug for bug in BUGS if bug.name == "duplicate appended")
    with planted(bug):
        outcome = next(each for each in (run_seed(seed, bug.profile) for seed in range(1, 40)) if each.violation)
    assert outcome.violation == "duplicate"
    assert len(outcome.events) <= LINES + 1 < len(outcome.trace)
    record = outcome.story.split()[2]
    assert sum("is sent to" in line for line in outcome.events) == 1
    assert all(record in line for line in outcome.events if "reads" in line)
    assert any(f"{record} is {how}" in line for line in outcome.events for how in ("acknowledged", "given up"))
