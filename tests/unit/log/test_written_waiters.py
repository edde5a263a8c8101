"""Who waits for writes is called once, in the order of offsets, also when a call makes the log fail."""

from __future__ import annotations

from odradek.log.writing.written_waiters import WrittenWaiters


def test_in_the_order_of_offsets_and_of_arrival() -> None:
    waiters = WrittenWaiters()
    called: list[str] = []
    for offset, name in ((5, "c"), (1, "a"), (5, "d"), (2, "b"), (9, "e")):
        waiters.add(offset, lambda name=name: called.append(name))  # type: ignore[misc]
    waiters.release(5)
    assert called == ["a", "b"], "5 is not written when the log ends there"
    waiters.release(6)
    assert called == ["a", "b", "c", "d"]
    waiters.release_all()
    assert called == ["a", "b", "c", "d", "e"]
    waiters.release_all()
    assert len(called) == 5


def test_all_waiters_learn_of_a_failure_in_order() -> None:
    waiters = WrittenWaiters()
    called: list[int] = []
    for offset in (9, 8, 3, 5, 4, 7, 6, 1, 2):
        waiters.add(offset, lambda offset=offset: called.append(offset))  # type: ignore[misc]
    waiters.release_all()
    assert called == sorted(called)


def test_no_waiter_is_called_twice_when_another_makes_the_log_fail() -> None:
    waiters = WrittenWaiters()
    called: list[str] = []

    def fail() -> None:
        called.append("first")
        waiters.release_all()

    waiters.add(1, fail)
    waiters.add(2, lambda: called.append("second"))
    waiters.add(3, lambda: called.append("third"))
    waiters.release(10)
    assert called == ["first", "second", "third"]
