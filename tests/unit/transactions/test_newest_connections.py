"""A producer's requests count only on its newest connection."""

from __future__ import annotations

from odradek.transactions.connections import NewestConnections


def test_an_older_connection_is_stale_once_a_newer_one_was_used() -> None:
    newest = NewestConnections()
    newest.observe("tx", 7, 0, 3)
    assert not newest.is_stale("tx", 7, 0, 3)
    assert not newest.is_stale("tx", 7, 0, 4)
    newest.observe("tx", 7, 0, 4)
    assert newest.is_stale("tx", 7, 0, 3)
    assert not newest.is_stale("tx", 7, 0, 4)


def test_another_epoch_starts_afresh() -> None:
    newest = NewestConnections()
    newest.observe("tx", 7, 0, 9)
    assert not newest.is_stale("tx", 7, 1, 3)
    newest.observe("tx", 7, 1, 3)
    assert not newest.is_stale("tx", 7, 1, 3)
    assert newest.is_stale("tx", 7, 1, 2)


def test_names_do_not_mix_and_can_be_forgotten() -> None:
    newest = NewestConnections()
    newest.observe("tx", 7, 0, 9)
    assert not newest.is_stale("other", 7, 0, 1)
    newest.forget("tx")
    assert not newest.is_stale("tx", 7, 0, 1)


def test_with_a_limit_the_longest_unused_is_forgotten() -> None:
    newest = NewestConnections(2)
    newest.observe("a", 1, 0, 5)
    newest.observe("b", 1, 0, 5)
    newest.observe("a", 1, 0, 5)
    newest.observe("c", 1, 0, 5)
    assert newest.is_stale("a", 1, 0, 4)
    assert not newest.is_stale("b", 1, 0, 4)
    assert newest.is_stale("c", 1, 0, 4)


def test_older_epoch_does_not_change_the_newest_connection() -> None:
    newest = NewestConnections()
    newest.observe("tx", 7, 1, 8)
    newest.observe("tx", 7, 0, 9)
    assert newest.is_stale("tx", 7, 1, 5)
