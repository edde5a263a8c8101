"""Deadlines: order, laziness, and that cancelled ones leave nothing behind."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.groups.placement import java_hash, partition_for_group
from odradek.groups.timers import Timers


def fired(timers: Timers, now_ms: int) -> list[tuple[str, ...]]:
    found = []
    while (due := timers.pop_due(now_ms)) is not None:
        found.append(due.key)
    return found


def test_deadlines_fire_in_order_and_once() -> None:
    timers = Timers()
    for name, at in (("b", 20), ("a", 10), ("c", 30)):
        timers.schedule((name,), at)
    assert timers.next_deadline_ms() == 10
    assert fired(timers, 20) == [("a",), ("b",)]
    assert fired(timers, 25) == []
    assert timers.next_deadline_ms() == 30


def test_deadlines_can_be_moved_and_cancelled() -> None:
    timers = Timers()
    timers.schedule(("a",), 10)
    timers.schedule(("a",), 50)
    timers.schedule(("b",), 40)
    timers.schedule(("b",), 5)
    timers.schedule(("c",), 7)
    timers.cancel(("c",))
    assert timers.next_deadline_ms() == 5
    assert fired(timers, 45) == [("b",)]
    assert fired(timers, 50) == [("a",)]
    assert timers.next_deadline_ms() is None


def test_heartbeats_and_cancellations_do_not_pile_up() -> None:
    timers = Timers()
    for i in range(5_000):
        timers.schedule(("session",), i)
        timers.schedule((str(i),), 10_000 - i)
        timers.cancel((str(i),))
    assert len(timers._heap) < 100


def test_heap_shrinks_when_most_of_many_deadlines_are_cancelled() -> None:
    timers = Timers()
    for number in range(1_000):
        timers.schedule((str(number),), number)
    for number in range(1, 1_000):
        timers.cancel((str(number),))
    assert len(timers._heap) < 100
    assert timers.next_deadline_ms() == 0


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.integers(0, 50)), max_size=40), st.integers(0, 50))
def test_as_a_dictionary_of_deadlines(steps: list[tuple[str, int | None]], now_ms: int) -> None:
    timers = Timers()
    model: dict[tuple[str, ...], int] = {}
    for name, at in steps:
        if at is None:
            timers.cancel((name,))
            model.pop((name,), None)
        else:
            timers.schedule((name,), at)
            model[(name,)] = at
    assert timers.next_deadline_ms() == min(model.values(), default=None)
    assert sorted(fired(timers, now_ms)) == sorted(key for key, at in model.items() if at <= now_ms)


def test_java_hash() -> None:
    assert java_hash("") == 0
    assert java_hash("hello") == 99162322
    assert java_hash("polygenelubricants") == -(2**31)
    assert java_hash("Ärger") == _reference("Ärger")
    assert java_hash("💥x") == _reference("💥x")


def _reference(text: str) -> int:
    value = 0
    raw = text.encode("utf-16-be")
    for i in range(0, len(raw), 2):
        value = 31 * value + int.from_bytes(raw[i : i + 2], "big")
    value %= 2**32
    return value - 2**32 if value >= 2**31 else value


def test_the_smallest_hash_has_no_absolute_value() -> None:
    assert partition_for_group("polygenelubricants", 50) == 0
    assert partition_for_group("console-consumer", 50) == abs(java_hash("console-consumer")) % 50


def test_postponed_deadline_keeps_its_payload() -> None:
    timers = Timers()
    timers.schedule(("a",), 10, "payload")
    assert timers.postpone(("a",), 20)
    assert timers.pop_due(19) is None
    assert timers.pop_due(20) == (("a",), "payload")


def test_deadline_that_is_not_scheduled_is_not_postponed() -> None:
    timers = Timers()
    assert not timers.postpone(("a",), 20)
    assert timers.next_deadline_ms() is None


def test_deadline_is_not_postponed_to_an_earlier_time() -> None:
    timers = Timers()
    timers.schedule(("a",), 10, "payload")
    assert not timers.postpone(("a",), 9)
    assert timers.next_deadline_ms() == 10
