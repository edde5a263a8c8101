"""G1c: circles of transactions that have read from each other."""

from __future__ import annotations

import pytest

from odradek.sim.checkers.clients import Promises, check
from odradek.sim.checkers.cycles import check_cycles
from odradek.sim.checkers.history import ABORTED, COMMITTED, UNKNOWN, History, Seen, Send, Transaction, Violation

KEY = ("t", 0)


def history(reads: dict[str, str], states: dict[str, str] | None = None) -> History:
    """Each transaction writes a record of its name and has read those of others: `{"a": "bc", "b": "", "c": "a"}`."""
    made = History()
    for number, name in enumerate(reads):
        state = (states or {}).get(name, COMMITTED)
        transaction = Transaction(name, number, 0.0, state, commit_asked_at=1.0, ended_at=2.0)
        made.transactions.append(transaction)
        made.send(Send(f"{name}:1:".encode(), name, KEY, 1, 0.5, transaction, "ok", number, 0.9))
    for transaction in made.transactions:
        for name in reads[transaction.producer]:
            value = f"{name}:1:".encode()
            transaction.read.append(Seen(KEY, made.sends[value].offset, value))
    return made


def circle(made: History) -> str:
    with pytest.raises(Violation) as violation:
        check_cycles(made, None)
    assert violation.value.invariant == "circular information flow"
    return violation.value.story


def test_transactions_that_read_forward_are_no_circle() -> None:
    check_cycles(history({}), None)
    check_cycles(history({"a": "", "b": "a", "c": "ab", "d": "abc"}), None)


def test_what_a_transaction_reads_of_its_own_is_no_circle() -> None:
    check_cycles(history({"a": "a", "b": "ba"}), None)


def test_two_that_read_each_other() -> None:
    story = circle(history({"a": "b", "b": "a"}))
    assert "transaction a#0 (committed) read b:1: at t-0 1 of transaction b#1 (committed)" in story
    assert "transaction b#1 (committed) read a:1: at t-0 0 of transaction a#0 (committed)" in story


def test_shortest_circle_is_reported_without_what_leads_into_it() -> None:
    story = circle(history({"a": "b", "b": "c", "c": "d", "d": "b", "e": "f", "f": "ea", "g": ""}))
    assert {word for word in story.split() if "#" in word} == {"e#4", "f#5"}
    story = circle(history({"a": "b", "b": "c", "c": "d", "d": "b"}))
    assert {word for word in story.split() if "#" in word} == {"b#1", "c#2", "d#3"}


@pytest.mark.parametrize("state", [ABORTED, UNKNOWN])
def test_only_committed_transactions_count(state: str) -> None:
    check_cycles(history({"a": "b", "b": "a"}, {"b": state}), None)


def test_records_without_a_transaction_or_owner_do_not_count() -> None:
    made = history({"a": "", "b": "a"})
    made.send(Send(b"plain:1:", "plain", KEY, 1, 0.5, None, "ok", 2, 0.9))
    made.transactions[0].read += [Seen(KEY, 2, b"plain:1:"), Seen(KEY, 9, b"unknown")]
    check_cycles(made, None)


def test_it_is_among_the_checkers() -> None:
    with pytest.raises(Violation, match="circular information flow"):
        check(history({"a": "b", "b": "a"}), Promises(frozenset(), False))
