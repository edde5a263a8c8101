"""Records as objects of a store such as S3, exactly once: an object's name has the position that it continues.

Each write makes one object for each partition, `TOPIC/partition=N/TOPIC+N+POSITION.jsonl`, and only where there is none
of that name. The position after it is in its metadata. Two tasks at the same position make the same name, so that the
slower one changes nothing; a task that starts continues after the last object.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final
from urllib.parse import quote

from odradek.connect.errors import ConnectError, PositionMoved
from odradek.connect.model import Batch, SinkRecord
from odradek.connect.object_folder import STORAGE_PREFIX, ObjectFolder
from odradek.connect.sinks.files import ENCODERS, SUFFIXES, by_origin, created_again, encoded
from odradek.connect.worker_thread import WorkerThread
from odradek.records.topic_partition import TopicPartition

NEXT_OFFSET: Final = "odradek-next-offset"
"""The metadata with the position after an object."""
TOPIC_ID: Final = "odradek-topic-id"
"""The metadata with the id of the topic that the position belongs to, where it is known."""
_NAME: Final = re.compile(r".*\+\d+\+\d{20}\.(?:jsonl|csv|parquet)")


def folder_of(partition: TopicPartition) -> str:
    """Where the objects of a partition are."""
    return f"{quote(partition.topic, safe='')}/partition={partition.partition}"


def object_name(partition: TopicPartition, position: int, suffix: str) -> str:
    """The name of the object that continues at the position."""
    name = f"{quote(partition.topic, safe='')}+{partition.partition}+{position:020d}{suffix}"
    return f"{folder_of(partition)}/{name}"


class ObjectsSink:
    """One task's objects. See `Sink`."""

    def __init__(self, values: Mapping[str, Any], connector: str) -> None:
        """`values` are those of a checked configuration. The connector needs the folder for itself."""
        self._folder = ObjectFolder(values["directory"], values[STORAGE_PREFIX])
        self._encode = ENCODERS[values["format"]]
        self._suffix = SUFFIXES[values["format"]]
        self._thread = WorkerThread(f"connect-{connector}")
        self._held: dict[TopicPartition, int] = {}
        self._made: set[TopicPartition] = set()
        self._topics: dict[str, str] = {}
        self.batch_records: int = values["flush.size"]
        """Records of one write."""
        self.batch_wait_s: float = values["rotate.interval.ms"] / 1000
        """How long records are gathered."""

    async def open(self) -> None:
        """See `Sink`."""

    async def positions(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See `Sink`."""
        found = await self._thread.run(self._read_positions, partitions)
        for each in partitions:
            self._held.pop(each, None)
            self._made.discard(each)
        self._held.update(found)
        return found

    async def write(self, batch: Batch) -> None:
        """See `Sink`. Objects that were made by an attempt that failed later are not made again."""
        for partition, records in by_origin(batch.records).items():
            if partition in self._made:
                continue
            position, first = self._held.get(partition, 0), records[0][1].offset
            if first < position:
                raise created_again(partition, first, position, f"{self._folder.url}/{folder_of(partition)}")
            await self._thread.run(self._write, partition, position, records, batch.ends[partition])
            self._held[partition] = batch.ends[partition]
            self._made.add(partition)
        self._made.clear()

    def note_topics(self, topic_ids: Mapping[str, bytes]) -> None:
        """See `TopicBoundSink`."""
        self._topics.update({topic: topic_id.hex() for topic, topic_id in topic_ids.items()})

    async def close(self) -> None:
        """See `Sink`."""
        await self._thread.close()

    # --- in the thread ---

    def _read_positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        found = {}
        for each in partitions:
            names = self._folder.names(folder_of(each))
            last = max((name for name in names if _NAME.fullmatch(name)), default=None)
            if last is None:
                continue
            attributes = self._folder.attributes(last)
            text = attributes.get(NEXT_OFFSET, "")
            if not text.isdecimal():
                raise ConnectError(
                    f"{self._folder.url}/{last}: its metadata has no {NEXT_OFFSET}: it is not this sink's"
                )
            found[each] = int(text)
            topic_id = attributes.get(TOPIC_ID, "")
            if topic_id and self._topics.get(each.topic, topic_id) != topic_id:
                raise created_again(each, 0, found[each], f"{self._folder.url}/{folder_of(each)}")
        return found

    def _write(self, partition: TopicPartition, position: int, records: list[tuple[int, SinkRecord]], end: int) -> None:
        name = object_name(partition, position, self._suffix)
        attributes = {NEXT_OFFSET: str(end)}
        if partition.topic in self._topics:
            attributes[TOPIC_ID] = self._topics[partition.topic]
        if not self._folder.create(name, encoded(self._encode, records), attributes):
            raise PositionMoved(f"{partition}: another task has written {self._folder.url}/{name}")
