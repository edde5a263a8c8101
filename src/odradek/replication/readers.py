"""The readers of one partition: fetches that wait for more bytes, and the fetch sessions of followers."""

from __future__ import annotations

from typing import Final, Protocol

MANY_BYTES: Final = 1 << 62
"""The size of a change other than an append: each waiting fetch looks at the partition again."""


class WaitingFetch(Protocol):
    """The callback of a fetch that waits for more bytes."""

    def __call__(self, readers: PartitionReaders, appended_bytes: int, /) -> None:
        """Note that number of bytes; MANY_BYTES if the fetch has to look at the partition again."""
        ...


class SessionPartition(Protocol):
    """The partition in a follower's fetch session, which is notified of every change until it leaves."""

    def appended(self, size: int) -> None:
        """Note that number of bytes; MANY_BYTES if the session has to look at the partition again."""
        ...

    def committed(self) -> None:
        """Note that the high watermark has moved."""
        ...

    def started_later(self) -> None:
        """Note that records were deleted: a client waits until followers have deleted them, too."""
        ...

    def refresh(self) -> None:
        """Note a caught-up follower's last fetch in its progress, even if that fetch did not name the partition."""
        ...


class PartitionReaders:
    """Notified by the partition when it has more records or another state."""

    __slots__ = ("sessions", "waiting")

    def __init__(self) -> None:
        self.waiting: list[WaitingFetch] = []
        """Fetches to be called once, on the next append or move of the high watermark."""
        self.sessions: list[SessionPartition] = []
        """Fetch sessions of followers that read the partition."""

    def wait(self, fetch: WaitingFetch) -> None:
        """Call back once, on the next append or move of the high watermark."""
        self.waiting.append(fetch)

    def stop_waiting(self, fetch: WaitingFetch) -> None:
        """Drop a fetch, if it still waits."""
        if fetch in self.waiting:
            self.waiting.remove(fetch)

    def wake(self, appended_bytes: int) -> None:
        """Call the waiting fetches. Each of them may wait again."""
        waiting, self.waiting = self.waiting, []
        for fetch in waiting:
            fetch(self, appended_bytes)

    def join(self, session: SessionPartition) -> None:
        """Notify a follower's fetch session of every change, until it leaves."""
        self.sessions.append(session)

    def leave(self, session: SessionPartition) -> None:
        """Notify a fetch session no longer."""
        if session in self.sessions:
            self.sessions.remove(session)

    def appended(self, size: int) -> None:
        """Notify the sessions of followers of that number of bytes, or MANY_BYTES."""
        for session in self.sessions:
            session.appended(size)
