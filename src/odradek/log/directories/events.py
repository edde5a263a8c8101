"""What log directories report to the rest of a broker."""

from __future__ import annotations

from collections.abc import Callable


def _ignore(_: object) -> None:
    return None


class DirectoryEvents:
    """Made before the log directories, so that parts which depend on these can listen to them."""

    __slots__ = ("_failure_listeners", "_move_listeners", "_work_listeners", "charge", "report")

    def __init__(self, report: Callable[[str], None] = _ignore, charge: Callable[[int], None] = _ignore) -> None:
        self.report = report
        """Called with a line for operators about each repair and failure."""
        self.charge = charge
        """Called with the bytes that begin to wait in a write queue, and with their negative when they leave it."""
        self._work_listeners: list[Callable[[], None]] = []
        self._failure_listeners: list[Callable[[str], None]] = []
        self._move_listeners: list[Callable[[str, int], None]] = []

    def subscribe_work(self, listener: Callable[[], None]) -> None:
        """Call the listener when something became due (a flush after a roll, a deletion): see `LogFlusher.work`."""
        self._work_listeners.append(listener)

    def subscribe_failures(self, listener: Callable[[str], None]) -> None:
        """Call the listener with the path of each directory that failed."""
        self._failure_listeners.append(listener)

    def work_is_due(self) -> None:
        """Notify the listeners of work."""
        for listener in self._work_listeners:
            listener()

    def directory_failed(self, path: str) -> None:
        """Notify the listeners of a failed directory."""
        for listener in self._failure_listeners:
            listener(path)

    def subscribe_moves(self, listener: Callable[[str, int], None]) -> None:
        """Call the listener with topic and partition of each replica that lies in another directory from now on."""
        self._move_listeners.append(listener)

    def replica_moved(self, topic: str, partition: int) -> None:
        """Notify the listeners of a replica in another directory."""
        for listener in self._move_listeners:
            listener(topic, partition)
