"""Log directories notify every listener of what happened."""

from __future__ import annotations

from odradek.log.directories.events import DirectoryEvents


def test_each_listener_is_notified_of_its_event() -> None:
    events = DirectoryEvents()
    received: list[object] = []
    for number in (1, 2):
        events.subscribe_work(lambda number=number: received.append(number))  # type: ignore[misc]
        events.subscribe_failures(lambda path, number=number: received.append((path, number)))  # type: ignore[misc]
        events.subscribe_moves(
            lambda topic, partition, number=number: received.append((topic, partition, number))  # type: ignore[misc]
        )
    events.work_is_due()
    events.directory_failed("/data")
    events.replica_moved("t", 3)
    assert received == [1, 2, ("/data", 1), ("/data", 2), ("t", 3, 1), ("t", 3, 2)]


def test_reports_and_charges_are_ignored_without_a_receiver() -> None:
    events = DirectoryEvents()
    assert events.report("a line") is None  # type: ignore[func-returns-value]
    assert events.charge(5) is None  # type: ignore[func-returns-value]
