"""The directories of this broker's replicas: created and deleted as the cluster image says; some have failed."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from odradek.log.config import LogConfig
from odradek.log.directories.log_directories import LogDirectories
from odradek.log.partition_log import PartitionLog
from odradek.log.turns import TURN_SECONDS
from odradek.metadata.image import ClusterImage, Topic
from odradek.records.topic_partition import PartitionKey, TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("odradek.partitions")

_CHUNK = 16
"""Directories that are created or deleted in one turn of the loop at most.

A directory takes 0.1 ms, and more than 1 ms while the disk is busy.
"""


class ReplicaDirectories:
    """Which replica has a directory. `add` and `doom` note what changes; `change_directories` does it, in pieces."""

    __slots__ = ("_begun", "_directories", "_doomed", "_failed", "_image", "_local_id", "_new", "_work")

    def __init__(self, local_id: int, directories: LogDirectories) -> None:
        self._local_id = local_id
        self._directories = directories
        self._work: deque[Callable[[], None]] = deque()
        self._begun = False
        # Replicas whose directory, with the log that may be open in it, is to go; after how many ms its files do.
        self._doomed: dict[PartitionKey, int] = {}
        # Replicas that came here while this process ran, and have no directory yet: no other may hold their data.
        self._new: set[PartitionKey] = set()
        # Replicas that this broker cannot serve because of an error in its own program, by the topic's id.
        self._failed: dict[PartitionKey, bytes] = {}
        self._image = ClusterImage()

    def take(self, image: ClusterImage) -> None:
        """Have the newest image, before anything of it is added or doomed."""
        self._image = image

    def begin(self) -> None:
        """The first image has been taken over: replicas that are added later are new."""
        self._begun = True

    def add(self, topic: Topic, index: int) -> None:
        """Have a directory created for a replica that this broker is to hold."""
        if self._begun:
            # What the first image has may have been here before this process.
            self._new.add((topic.name, index))
        self._work.append(partial(self._create, topic, index))

    def _create(self, topic: Topic, index: int) -> None:
        if self._is_current(topic) and self._local_id in self._image.topics[topic.name].partitions[index].replicas:
            if self.is_offline(topic.name, index):
                return
            is_new = (topic.name, index) in self._new
            try:
                self._directories.create(topic.name, index, topic.id, is_new=is_new)
            except KafkaError:
                raise
            except Exception as error:  # the directories of other replicas are still to be created
                raise self.fail((topic.name, index), topic.id, error) from error
            self._new.discard((topic.name, index))

    def fail(self, place: PartitionKey, topic_id: bytes, error: Exception) -> KafkaError:
        """Give one replica up after an unexpected exception, which is logged; the others work on.

        It counts as offline until the process ends, so that the controller elects another replica. Returns the error
        that requests for it get.
        """
        self._failed[place] = topic_id
        logger.error("replica %s-%d is offline until a restart: unexpected exception", *place, exc_info=error)
        # As after a failed directory, the controller asks for the replicas that are offline.
        self._directories.events.directory_failed(f"{place[0]}-{place[1]}")
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Replica {place[0]}-{place[1]} failed unexpectedly.")

    def has_failed(self, place: PartitionKey, topic_id: bytes) -> bool:
        """Whether `fail` has been called for the replica."""
        return bool(self._failed) and self._failed.get(place) == topic_id

    def _is_current(self, topic: Topic) -> bool:
        now = self._image.topics.get(topic.name)
        return now is not None and now.id == topic.id

    def open(self, topic: Topic, index: int, settings: LogConfig) -> PartitionLog:
        """Open the replica's log; create its directory if there is none. Raises KafkaError."""
        key = topic.name, index
        if self.has_failed(key, topic.id):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Replica {topic.name}-{index} failed unexpectedly.")
        opened = self._directories.open(topic.name, index, topic.id, settings, is_new=key in self._new)
        self._new.discard(key)
        return opened

    def high_watermark(self, topic: str, index: int) -> int | None:
        """As last checkpointed; None if it was not."""
        return self._directories.high_watermark(topic, index)

    def doom(self, place: PartitionKey, delay_ms: int) -> None:
        """Have the replica's directory deleted; its files go after the delay."""
        self._new.discard(place)
        self._doomed[place] = delay_ms
        self._work.append(partial(self.delete_if_doomed, place))

    def delete_if_doomed(self, place: PartitionKey) -> None:
        """Delete the directory now if that is still to be done."""
        # Unless a new topic of that name was asked for already, and what it is in now is its own.
        delay_ms = self._doomed.pop(place, None)
        if delay_ms is not None:
            self._directories.delete(*place, delay_ms)

    async def change_directories(self) -> None:
        """Create and delete directories as the last images say, some in each turn of the loop.

        A failed change is logged and left out: the next request for the partition tries again and reports the error.
        """
        work = self._work
        while work:
            ends = self._directories.now() + TURN_SECONDS
            for _ in range(min(len(work), _CHUNK)):
                try:
                    work.popleft()()
                except KafkaError as error:
                    logger.warning(
                        "cannot create or delete a partition's directory: %s; the next request for it retries",
                        error.message,
                    )
                if self._directories.now() >= ends:
                    break
            if work:
                await asyncio.sleep(0)

    def is_offline(self, topic: str, index: int) -> bool:
        """Whether the data of a replica here is out of reach: in a directory that failed or could not be read."""
        directories = self._directories
        found = self._image.topics.get(topic) if self._failed else None
        if found is not None and self.has_failed((topic, index), found.id):
            return True
        if directories.directory_of(topic, index) is not None:
            return directories.is_offline(topic, index)
        state = self._image.partition(topic, index)
        if state is None or self._local_id not in state.replicas:
            return False
        return directories.startup.has_unread and (topic, index) not in self._new

    def offline_replicas(self, image: ClusterImage) -> list[TopicPartition]:
        """Return the replicas of this broker in the image whose data is out of reach: the controller has to know."""
        return [
            TopicPartition(name, index)
            for name, topic in image.topics.items()
            for index, state in enumerate(topic.partitions)
            if self._local_id in state.replicas and self.is_offline(name, index)
        ]
