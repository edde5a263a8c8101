"""Who wants to know of changes below which node: the part of a store that keeps its callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from odradek.metadata.paths import is_at_or_below

Changed = Callable[[str], None]


class Watches:
    __slots__ = ("_next", "_watches")

    def __init__(self) -> None:
        self._watches: dict[int, tuple[str, Changed]] = {}
        self._next = 0

    def add(self, path: str, changed: Changed) -> Callable[[], None]:
        key = self._next
        self._next += 1
        self._watches[key] = (path, changed)
        return lambda: self._watches.pop(key, None) and None

    def fire(self, paths: Iterable[str]) -> None:
        """Call those who watch a path or something above it, once for every path."""
        for path in dict.fromkeys(paths):
            for top, changed in list(self._watches.values()):
                if is_at_or_below(path, top):
                    changed(path)

    def clear(self) -> None:
        self._watches.clear()
