"""Topics and their partitions while records are replayed. Source: Kafka's `TopicsDelta`, `TopicDelta`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from odradek.kraft.errors import CorruptMetadata
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.metadata.kraft.partition_records import (
    Shared,
    changed_partition,
    cleared_elr,
    partition_of,
    with_uncarried,
)
from odradek.metadata.kraft.usual_partitions import read_usual_partition
from odradek.wire.messages import cluster_metadata as md


class ReplayedTopics:
    """The changed topics of an image. A topic is copied at its first change; the others stay as they are."""

    def __init__(self, before: ClusterImage) -> None:
        self._before = before
        self._changed: dict[bytes, _ChangedTopic] = {}
        self._removed: set[bytes] = set()
        self._ids: dict[str, bytes | None] = {}
        self._shared: Shared = {}

    def create(self, record: md.TopicRecord) -> None:
        """Add a topic, without partitions."""
        self._changed[record.topic_id] = _ChangedTopic(record.name)
        self._ids[record.name] = record.topic_id

    def remove(self, record: md.RemoveTopicRecord) -> str | None:
        """Remove a topic; its name, or None where a topic of another id has the name now. Raises CorruptMetadata."""
        name = self._topic(record.topic_id).name
        del self._changed[record.topic_id]
        self._removed.add(record.topic_id)
        if self._ids.get(name, record.topic_id) != record.topic_id:
            return None
        self._ids[name] = None
        return name

    def set_partition(self, record: md.PartitionRecord) -> None:
        """Set the state of a partition, whether it exists or not. Raises CorruptMetadata."""
        self._set(record.topic_id, record.partition_id, partition_of(record, self._shared))

    def set_usual_partition(self, value: memoryview) -> bool:
        """As `set_partition` with the bytes of a usual PartitionRecord; False, without a change, for another record.

        Raises CorruptMetadata.
        """
        found = read_usual_partition(value, self._shared)
        if found is None:
            return False
        self._set(*found)
        return True

    def _set(self, topic_id: bytes, index: int, found: PartitionState) -> None:
        topic = self._changed.get(topic_id) or self._topic(topic_id)
        before = topic.get(index)
        topic.changed[index] = found if before is None else with_uncarried(found, before)

    def change_partition(self, record: md.PartitionChangeRecord) -> None:
        """Change the state of a partition. Raises CorruptMetadata."""
        topic = self._changed.get(record.topic_id) or self._topic(record.topic_id)
        before = topic.get(record.partition_id)
        if before is None:
            raise CorruptMetadata(f"partition {topic.name}-{record.partition_id} is missing")
        topic.changed[record.partition_id] = changed_partition(before, record)

    def clear_elr(self, record: md.ClearElrRecord) -> None:
        """Empty the ELRs of a topic, or of all topics where the record names none. Raises CorruptMetadata."""
        for topic_id in [self._id_of(record.topic_name)] if record.topic_name else self._present():
            topic = self._topic(topic_id)
            for index, state in enumerate(topic.states()):
                topic.changed[index] = cleared_elr(state)

    def removed_names(self) -> list[str]:
        """The names under which the image before has the removed topics."""
        names = self._before.topic_names
        return [names[topic_id] for topic_id in self._removed if topic_id in names]

    def changed(self, configs: Mapping[str, Mapping[str, str]]) -> Iterator[Topic]:
        """The new and changed topics, with `configs` where these have the name.

        Raises CorruptMetadata for a topic whose partitions are not numbered from 0.
        """
        for topic_id, topic in self._changed.items():
            settings = configs.get(topic.name)
            if settings is None:
                settings = self._before.topic_configs(topic.name)
            yield Topic(topic.name, topic_id, topic.states(), settings)

    def _topic(self, topic_id: bytes) -> _ChangedTopic:
        found = self._changed.get(topic_id)
        if found is None:
            before = None if topic_id in self._removed else self._before.topic_by_id(topic_id)
            if before is None:
                raise CorruptMetadata(f"the topic with the id {topic_id.hex()} is missing")
            found = self._changed[topic_id] = _ChangedTopic(before.name, before.partitions)
        return found

    def _id_of(self, name: str) -> bytes:
        topic = self._before.topics.get(name)
        found = self._ids.get(name, None if topic is None else topic.id)
        if found is None:
            raise CorruptMetadata(f"topic {name} is missing")
        return found

    def _present(self) -> list[bytes]:
        """The ids of all topics that have an ELR, and of all changed ones."""
        unchanged = (
            topic.id
            for topic in self._before.topics.values()
            if topic.id not in self._removed and any(each.elr or each.last_known_elr for each in topic.partitions)
        )
        return list(dict.fromkeys((*unchanged, *self._changed)))


class _ChangedTopic:
    """A topic with the partitions that it had before, and the changed ones by their index."""

    __slots__ = ("_before", "changed", "name")

    def __init__(self, name: str, before: tuple[PartitionState, ...] = ()) -> None:
        self.name = name
        self._before = before
        self.changed: dict[int, PartitionState] = {}

    def get(self, index: int) -> PartitionState | None:
        """The partition as it is now; None if there is none."""
        found = self.changed.get(index)
        if found is None and 0 <= index < len(self._before):
            found = self._before[index]
        return found

    def states(self) -> tuple[PartitionState, ...]:
        """All partitions by their index. Raises CorruptMetadata where one is missing."""
        states: list[PartitionState] = list(self._before)
        changed = self.changed
        for index in sorted(changed):
            if index < len(self._before):
                states[index] = changed[index]
            elif index == len(states):
                states.append(changed[index])
            else:
                raise CorruptMetadata(f"topic {self.name} has no partition {len(states)}, but a partition {index}")
        return tuple(states)
