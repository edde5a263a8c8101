"""Committed offsets, and those of transactions that are still open.

Source: Kafka's OffsetMetadataManager. Only `apply` and `end_transaction` change anything; both are part of replay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from odradek.groups.events import FetchedOffset
from odradek.groups.offsets.records import OffsetRecord, OffsetValue
from odradek.metadata.image import Topic
from odradek.records.topic_partition import PartitionKey
from odradek.wire.errors import ErrorCode
from odradek.wire.primitives import ZERO_UUID

NO_PRODUCER_ID = -1
NO_OFFSET = -1
_NO_IDS = (b"", ZERO_UUID)


class StoredOffset(NamedTuple):
    """A committed offset and the offset of the record that committed it.

    A transaction's commit does not overwrite a plain commit that was written after it, even where compaction has
    removed the records between them.
    """

    value: OffsetValue
    record_offset: int


GroupOffsets: TypeAlias = dict[PartitionKey, StoredOffset]


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
        """Replay a commit or a tombstone; with a producer id the commit is pending until its transaction's marker."""
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

    def _remove(self, group_id: str, key: PartitionKey) -> None:
        offsets = self._groups.get(group_id)
        if offsets is not None and offsets.pop(key, None) is not None and not offsets:
            del self._groups[group_id]
        for producer_id in self._open.get(group_id, ()):
            self._pending[producer_id][group_id].pop(key, None)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply a transaction's marker: its offsets become the groups' offsets or are dropped."""
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
        """Groups that have committed or pending offsets."""
        return self._groups.keys() | self._open.keys()

    def has_group(self, group_id: str) -> bool:
        """Whether the group has committed offsets, or pending ones."""
        return group_id in self._groups or group_id in self._open

    def of_group(self, group_id: str) -> GroupOffsets:
        """A group's committed offsets; not to be changed."""
        return self._groups.get(group_id, {})

    def has_open_transaction(self, group_id: str) -> bool:
        """Whether an open transaction has committed offsets of the group."""
        return group_id in self._open

    def is_pending(self, group_id: str, key: PartitionKey, topic_id: bytes = ZERO_UUID) -> bool:
        """Whether an open transaction has committed an offset for the partition; with an id, of that topic."""
        for producer_id in self._open.get(group_id, ()):
            stored = self._pending[producer_id].get(group_id, {}).get(key)
            if stored is not None and is_of(stored.value.topic_id, topic_id):
                return True
        return False

    def keys_of_group(self, group_id: str) -> list[PartitionKey]:
        """Of committed and of pending offsets, each once."""
        keys = dict.fromkeys(self.of_group(group_id))
        for producer_id in self._open.get(group_id, ()):
            keys.update(dict.fromkeys(self._pending[producer_id].get(group_id, ())))
        return list(keys)

    def topic_ids(self, group_id: str, key: PartitionKey) -> set[bytes]:
        """Topic ids of the committed and the pending offsets of this key."""
        found = [self.of_group(group_id), *(self._pending[p].get(group_id, {}) for p in self._open.get(group_id, ()))]
        return {offsets[key].value.topic_id for offsets in found if key in offsets}

    def of_topics(self, topics: Iterable[str]) -> Iterator[tuple[str, PartitionKey]]:
        """(group id, key) of every committed or pending offset of these topics."""
        wanted = frozenset(topics)
        for group_id in sorted(self.group_ids()):
            for key in self.keys_of_group(group_id):
                if key[0] in wanted:
                    yield group_id, key

    def of_others(self, topics: Mapping[str, Topic]) -> Iterator[tuple[str, PartitionKey]]:
        """(group id, key) of every committed or pending offset that belongs to none of these topics."""
        for group_id in sorted(self.group_ids()):
            for key in self.keys_of_group(group_id):
                topic = topics.get(key[0])
                if topic is None or not any(is_of(found, topic.id) for found in self.topic_ids(group_id, key)):
                    yield group_id, key

    def fetch(
        self,
        group_id: str,
        topic: str,
        partitions: Iterable[int],
        *,
        stable: bool,
        topic_id: bytes = ZERO_UUID,
    ) -> list[FetchedOffset]:
        """Committed offsets; with `stable`, UNSTABLE_OFFSET_COMMIT while a transaction's outcome is unknown (KIP-447).

        With an id, offsets of an earlier topic of the name are ignored: their tombstones may have been rejected, or may
        not be written yet (Kafka's `isMismatchedTopicId`).
        """
        offsets = self._groups.get(group_id)
        unstable = stable and group_id in self._open
        found: list[FetchedOffset] = []
        for partition in partitions:
            key = (topic, partition)
            if unstable and self.is_pending(group_id, key, topic_id):
                found.append(FetchedOffset(partition, NO_OFFSET, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT))
                continue
            stored = None if offsets is None else offsets.get(key)
            if stored is None or not is_of(stored[0].topic_id, topic_id):
                found.append(FetchedOffset(partition, NO_OFFSET, -1, ""))
            else:
                value = stored[0]
                found.append(FetchedOffset(partition, value[0], value[1], value[2]))
        return found


def is_of(stored_id: bytes, topic_id: bytes) -> bool:
    """Whether an offset may belong to the topic: offsets of older Kafka versions have no id and match by name."""
    return stored_id == topic_id or stored_id in _NO_IDS or topic_id in _NO_IDS
