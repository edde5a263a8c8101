"""The callbacks of a store: for changes below a node, and for the end of the session."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from odradek.ports.store import Changed, Stop, is_at_or_below


class Watches:
    """The callbacks of one store."""

    __slots__ = ("_expired", "_next", "_watches")

    def __init__(self) -> None:
        self._watches: dict[int, tuple[str, Changed]] = {}
        self._expired: dict[int, Callable[[], None]] = {}
        self._next = 0

    def add(self, path: str, changed: Changed) -> Stop:
        """Call `changed` for changes at or below the path until the returned function is called."""
        key = self._next
        self._next += 1
        self._watches[key] = (path, changed)
        return lambda: self._watches.pop(key, None) and None

    def add_session(self, expired: Callable[[], None]) -> Stop:
        """Call `expired` for each expired session until the returned function is called."""
        key = self._next
        self._next += 1
        self._expired[key] = expired
        return lambda: self._expired.pop(key, None) and None

    def paths(self) -> list[str]:
        """The watched paths."""
        return list(dict.fromkeys(path for path, _ in self._watches.values()))

    def fire(self, paths: Iterable[str]) -> None:
        """Call those who watch a path or something above it, once for every path."""
        if not self._watches:
            return
        for path in dict.fromkeys(paths):
            for top, changed in list(self._watches.values()):
                if is_at_or_below(path, top):
                    changed(path)

    def fire_all(self) -> None:
        """Call every callback with its own path: the changes are unknown."""
        for top, changed in list(self._watches.values()):
            changed(top)

    def fire_expired(self) -> None:
        """Report that the session has expired."""
        for expired in list(self._expired.values()):
            expired()

    def clear(self) -> None:
        """Drop all callbacks."""
        self._watches.clear()
        self._expired.clear()
