"""`VersionedMap`: an immutable mapping whose next version costs what it changes, not what it has. Pure.

A version is a dict that many versions share, and a few changes of its own. Versions know which keys the last ones
changed, so two that follow each other are compared without a look at the rest. Keys keep the order in which they were
added. See docs/decisions/0020-images-share-a-versioned-map.md.
"""

from __future__ import annotations

from collections.abc import Collection, ItemsView, Iterator, KeysView, Mapping, ValuesView
from itertools import chain
from math import isqrt
from typing import Any, Final, NamedTuple, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

_SMALL: Final = 64
"""A mapping of that many entries is copied as fast as anything else could be done."""
_VERSIONS_KNOWN: Final = 16
_REMOVED: Final[Any] = object()
_UNCHANGED: Final[Any] = object()


class _Step(NamedTuple):
    """One change: the version that it was made of, and the keys that it set or removed."""

    before: object
    keys: tuple[Any, ...]


class VersionedMap(Mapping[K, V]):
    """`changed` makes the next version; `keys_changed_since` compares two."""

    __slots__ = ("_changes", "_length", "_shared", "_steps", "_version")

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        self._shared: dict[K, V] = dict(entries or {})
        self._changes: dict[K, V] = {}
        self._length = len(self._shared)
        self._version = object()
        self._steps: tuple[_Step, ...] = ()

    def changed(self, entries: Mapping[K, V], removed: Collection[K] = ()) -> VersionedMap[K, V]:
        """The next version: without the removed keys, missing ones among them, and then with these entries."""
        found: VersionedMap[K, V] = VersionedMap.__new__(VersionedMap)
        found._version = object()
        gone = dict.fromkeys(removed)
        count = len(entries) + len(gone)
        # Against a change of most entries, a look at all of them costs no more, and needs no memory.
        is_large = 2 * count > self._length
        keys = (*gone, *entries)
        found._steps = () if is_large else (*self._steps[1 - _VERSIONS_KNOWN :], _Step(self._version, keys))
        shared, changes = self._shared, self._changes
        if len(shared) <= _SMALL or len(changes) + count > 2 * isqrt(len(shared)):
            whole = self._merged()
            for key in gone:
                whole.pop(key, None)
            whole.update(entries)
            found._shared, found._changes, found._length = whole, {}, len(whole)
            return found
        lost = sum(key in self for key in gone)
        found._length = self._length - lost + sum(key not in self or key in gone for key in entries)
        changes = dict(changes)
        for key in gone:
            if key in shared:
                changes[key] = _REMOVED
            else:
                changes.pop(key, None)
        changes.update(entries)
        found._shared, found._changes = shared, changes
        return found

    def keys_changed_since(self, before: VersionedMap[K, V]) -> Collection[K]:
        """All keys that `before` or this one lacks, or that have another object in it; perhaps further ones.

        It costs the number of changes where `before` is one of the last versions, else a look at all entries.
        """
        if before is self:
            return ()
        if self._length > _SMALL:
            for number, step in enumerate(reversed(self._steps), 1):
                if step.before is before._version:
                    return dict.fromkeys(chain.from_iterable(each.keys for each in self._steps[-number:]))
            if before._shared is self._shared:
                return {**before._changes, **self._changes}
        return {**before._whole(), **self._whole()}

    def _merged(self) -> dict[K, V]:
        """A new dict of all entries."""
        whole = dict(self._shared)
        for key, value in self._changes.items():
            if value is _REMOVED:
                del whole[key]
            else:
                whole[key] = value
        return whole

    def _whole(self) -> dict[K, V]:
        """All entries as one dict, which is kept: the versions made of this one share it."""
        if self._changes:
            # In this order: between the two, the changes are made twice, with the same outcome.
            self._shared = self._merged()
            self._changes = {}
        return self._shared

    # --- Mapping ---

    def __getitem__(self, key: K) -> V:
        found: Any = self._changes.get(key, _UNCHANGED)
        if found is _REMOVED:
            raise KeyError(key)
        return self._shared[key] if found is _UNCHANGED else found

    @overload
    def get(self, key: K, /) -> V | None: ...

    @overload
    def get(self, key: K, /, default: V) -> V: ...

    @overload
    def get(self, key: K, /, default: T) -> V | T: ...

    def get(self, key: K, /, default: Any = None) -> Any:
        """See `Mapping`."""
        if not self._changes:
            return self._shared.get(key, default)
        found = self._changes.get(key, _UNCHANGED)
        if found is _UNCHANGED:
            return self._shared.get(key, default)
        return default if found is _REMOVED else found

    def __contains__(self, key: object) -> bool:
        found = self._changes.get(key, _UNCHANGED)  # type: ignore[arg-type]
        return key in self._shared if found is _UNCHANGED else found is not _REMOVED

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[K]:
        return iter(self._whole())

    def keys(self) -> KeysView[K]:
        """See `Mapping`."""
        return self._whole().keys()

    def values(self) -> ValuesView[V]:
        """See `Mapping`."""
        return self._whole().values()

    def items(self) -> ItemsView[K, V]:
        """See `Mapping`."""
        return self._whole().items()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, VersionedMap):
            return self._whole() == other._whole()
        return self._whole() == other if isinstance(other, Mapping) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"VersionedMap({self._whole()!r})"
