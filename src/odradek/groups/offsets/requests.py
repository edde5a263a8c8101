"""Requests that concern committed offsets, whatever the kind of their group.

Source: Kafka's OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from odradek.groups.events import NOTHING, CommitRequest, FetchedOffset, GroupDecision, Token
from odradek.groups.group import CheckPartition, Group
from odradek.groups.offsets.committed import Offsets, is_of
from odradek.groups.offsets.records import OffsetRecord, OffsetValue
from odradek.groups.settings import GroupSettings
from odradek.metadata.image import ClusterImage, Topic
from odradek.records.topic_partition import PartitionKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.primitives import ZERO_UUID

_NEVER_MS: Final = (1 << 63) - 1
_NONE: Final = ErrorCode.NONE
"""A look-up of a member of an enumeration costs as much as a call."""


class OffsetRequests:
    """Decides on commits, fetches and deletions, and on what changes of topics mean for offsets."""

    __slots__ = ("_image", "_offsets", "_settings")

    def __init__(self, settings: GroupSettings, offsets: Offsets, image: Callable[[], ClusterImage]) -> None:
        self._settings = settings
        self._offsets = offsets
        self._image = image

    def commit(self, now_ms: int, token: Token, request: CommitRequest, check: CheckPartition | None) -> GroupDecision:
        """The reply is a list of error codes, one per offset. `check` raises KafkaError for the request as a whole."""
        expire_ms = -1 if request.retention_ms == -1 else min(now_ms + request.retention_ms, _NEVER_MS)
        limit = self._settings.offset_metadata_max_bytes
        group_id = request.group_id
        records: list[OffsetRecord] = []
        errors: list[ErrorCode] = []
        new = tuple.__new__
        for topic, partition, offset, leader_epoch, metadata, topic_id in request.offsets:
            if metadata and len(metadata) > limit:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            if check is not None:
                check(topic_id, partition)
            errors.append(_NONE)
            # Commits are the most frequent requests; `tuple.__new__` is twice as fast as a NamedTuple's constructor.
            value = new(OffsetValue, (offset, leader_epoch, metadata or "", now_ms, expire_ms, topic_id))
            records.append(new(OffsetRecord, (group_id, topic, partition, value)))
        return new(GroupDecision, (records, [(token, errors)], None, ()))

    def fetch(
        self, group_id: str, topics: Iterable[tuple[str, Iterable[int]]] | None, *, require_stable: bool
    ) -> list[tuple[str, list[FetchedOffset]]]:
        """Per topic the offsets asked for, or all that the group has committed if `topics` is None."""
        if topics is None:
            partitions: dict[str, list[int]] = {}
            for topic, partition in self._offsets.of_group(group_id):
                partitions.setdefault(topic, []).append(partition)
            topics = partitions.items()
        fetch = self._offsets.fetch
        existing = self._image().topics
        found: list[tuple[str, list[FetchedOffset]]] = []
        for name, wanted in topics:
            topic_id = existing[name].id if name in existing else ZERO_UUID
            found.append((name, fetch(group_id, name, wanted, stable=require_stable, topic_id=topic_id)))
        return found

    def delete(self, token: Token, group: Group, partitions: Sequence[PartitionKey]) -> GroupDecision:
        """The reply is a list of error codes, one per partition. Raises KafkaError NON_EMPTY_GROUP."""
        if not group.lets_offsets_be_deleted:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        group_id = group.group_id
        records: list[OffsetRecord] = []
        errors: list[ErrorCode] = []
        known = self._offsets.of_group(group_id)
        for topic, partition in partitions:
            if group.is_subscribed(topic):
                errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            errors.append(ErrorCode.NONE)
            if (topic, partition) in known or self._offsets.is_pending(group_id, (topic, partition)):
                records.append(OffsetRecord(group_id, topic, partition, None))
        return GroupDecision(records, [(token, errors)])

    # --- topics ---

    def topics_grown(self, now_ms: int, groups: Iterable[Group], grown: Iterable[tuple[Topic, int]]) -> GroupDecision:
        """Commit offset 0 in the new partitions of topics that groups read; each topic comes with its previous count.

        Members that begin at the end would miss what is written before they see the new partitions.
        """
        if not self._settings.new_partitions_from_start:
            return NOTHING
        known_groups = list(groups)
        records = [
            record for topic, count in grown for record in self._start_of_new(now_ms, known_groups, topic, count)
        ]
        return GroupDecision(records=records) if records else NOTHING

    def _start_of_new(
        self, now_ms: int, groups: Iterable[Group], topic: Topic, old_count: int
    ) -> Iterable[OffsetRecord]:
        value = OffsetValue(0, -1, "", now_ms, -1, topic.id)
        for group in groups:
            if not group.will_read(topic.name):
                continue
            offsets = self._offsets.of_group(group.group_id)
            found = [offsets.get((topic.name, index)) for index in range(len(topic.partitions))]
            known = [stored is not None and is_of(stored.value.topic_id, topic.id) for stored in found]
            if any(known[:old_count]):
                for index in range(old_count, len(topic.partitions)):
                    if not known[index]:
                        yield OffsetRecord(group.group_id, topic.name, index, value)
