"""Committed offsets, and those of transactions that are still open.

Source: Kafka's OffsetMetadataManager. Only `apply` and `end_transaction` change anything; both are part of replay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from odradek.groups.events import FetchedOffset
from odradek.groups.records import OffsetRecord, OffsetValue
from odradek.wire.errors import ErrorCode

NO_PRODUCER_ID = -1
NO_OFFSET = -1


class StoredOffset(NamedTuple):
    """A committed offset and the offset of the record that committed it.

    A transaction's commit does not overwrite a plain commit that was written after it, even where compaction has
    removed the records between them.
    """

    value: OffsetValue
    record_offset: int


Key: TypeAlias = tuple[str, int]
"""(topic, partition)"""
GroupOffsets: TypeAlias = dict[Key, StoredOffset]


class Offsets:
    """By group, and for open transactions by producer id and group."""

    __slots__ = ("_groups", "_open", "_pending")

    def __init__(self) -> None:
        self._groups: dict[str, GroupOffsets] = {}
        self._pending: dict[int, dict[str, GroupOffsets]] = {}
        self._open: dict[str, set[int]] = {}
        """Group id -> producer ids with open transactions that commit offsets of it."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Offsets):
            return NotImplemented
        return self._groups == other._groups and self._pending == other._pending

    __hash__ = None  # type: ignore[assignment]

    # --- replay ---

    def apply(self, record: OffsetRecord, record_offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        group_id, topic, partition, value = record
        key = (topic, partition)
        if value is None:
            self._remove(group_id, key)
        elif producer_id == NO_PRODUCER_ID:
            offsets = self._groups.get(group_id)
            if offsets is None:
                offsets = self._groups[group_id] = {}
            offsets[key] = tuple.__new__(StoredOffset, (value, record_offset))
        else:
            pending = self._pending.setdefault(producer_id, {}).setdefault(group_id, {})
            pending[key] = StoredOffset(value, record_offset)
            self._open.setdefault(group_id, set()).add(producer_id)

    def _remove(self, group_id: str, key: Key) -> None:
        offsets = self._groups.get(group_id)
        if offsets is not None and offsets.pop(key, None) is not None and not offsets:
            del self._groups[group_id]
        for producer_id in self._open.get(group_id, ()):
            self._pending[producer_id][group_id].pop(key, None)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """A transaction's marker: its offsets become the groups' or vanish."""
        for group_id, pending in self._pending.pop(producer_id, {}).items():
            producers = self._open[group_id]
            producers.discard(producer_id)
            if not producers:
                del self._open[group_id]
            if not committed or not pending:
                continue
            offsets = self._groups.setdefault(group_id, {})
            for key, stored in pending.items():
                known = offsets.get(key)
                if known is None or stored.record_offset > known.record_offset:
                    offsets[key] = stored

    # --- questions ---

    def group_ids(self) -> set[str]:
        return self._groups.keys() | self._open.keys()

    def of_group(self, group_id: str) -> GroupOffsets:
        return self._groups.get(group_id, {})

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._open

    def is_pending(self, group_id: str, key: Key) -> bool:
        """Whether an open transaction has committed an offset for the partition."""
        producers = self._open.get(group_id)
        return producers is not None and any(key in self._pending[p].get(group_id, ()) for p in producers)

    def keys_of_group(self, group_id: str) -> list[Key]:
        """Of committed and of pending offsets, each once."""
        keys = dict.fromkeys(self.of_group(group_id))
        for producer_id in self._open.get(group_id, ()):
            keys.update(dict.fromkeys(self._pending[producer_id].get(group_id, ())))
        return list(keys)

    def topic_ids(self, group_id: str, key: Key) -> set[bytes]:
        """Of the topics that the committed and the pending offsets under the key are of."""
        found = [self.of_group(group_id), *(self._pending[p].get(group_id, {}) for p in self._open.get(group_id, ()))]
        return {offsets[key].value.topic_id for offsets in found if key in offsets}

    def of_topics(self, topics: Iterable[str]) -> Iterator[tuple[str, Key]]:
        """(group id, key) of every committed or pending offset of these topics."""
        wanted = frozenset(topics)
        for group_id in sorted(self.group_ids()):
            for key in self.keys_of_group(group_id):
                if key[0] in wanted:
                    yield group_id, key

    def fetch(self, group_id: str, topic: str, partitions: Iterable[int], *, stable: bool) -> list[FetchedOffset]:
        """UNSTABLE_OFFSET_COMMIT, with `stable`, where a transaction's outcome is not known yet (KIP-447)."""
        offsets = self._groups.get(group_id)
        unstable = stable and group_id in self._open
        found: list[FetchedOffset] = []
        for partition in partitions:
            key = (topic, partition)
            if unstable and self.is_pending(group_id, key):
                found.append(FetchedOffset(partition, NO_OFFSET, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT))
                continue
            stored = None if offsets is None else offsets.get(key)
            if stored is None:
                found.append(FetchedOffset(partition, NO_OFFSET, -1, ""))
            else:
                value = stored[0]
                found.append(FetchedOffset(partition, value[0], value[1], value[2]))
        return found
