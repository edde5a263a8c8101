"""The partitions that this broker holds, opened when they are first touched and kept in step with the cluster image."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from odradek.broker.storage.replica_directories import ReplicaDirectories
from odradek.log.config import LogConfig
from odradek.log.producers.state import ProducerStates
from odradek.metadata.image import ClusterImage, Topic
from odradek.metadata.topic_changes import changed_indexes, changed_topics, deleted_topics
from odradek.metrics.traffic import BrokerTraffic
from odradek.records.topic_partition import PartitionKey, TopicIdPartition
from odradek.replication.leadership import UnopenedPartition
from odradek.replication.partition import Partition, PartitionEnvironment
from odradek.replication.refused_batches import RefusedBatches
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.produce import TopicKey

_NOTHING = (-2, -2)
"""Below all epochs."""

LogSettings = Callable[[Topic], LogConfig]


class Partitions:
    """Topic and index -> `Partition`. An idle partition is only its directory until a request names it."""

    __slots__ = (
        "_directories",
        "_environment",
        "_image",
        "_local_id",
        "_open",
        "_refused",
        "_settings",
        "_stopped",
        "invariants",
        "traffic",
    )

    def __init__(
        self,
        local_id: int,
        directories: ReplicaDirectories,
        settings: LogSettings,
        environment: PartitionEnvironment | None = None,
    ) -> None:
        self._local_id = local_id
        self._directories = directories
        self._settings = settings
        self._environment = environment or PartitionEnvironment()
        self._image = ClusterImage()
        self._open: dict[PartitionKey, Partition] = {}
        self._stopped: dict[TopicIdPartition, tuple[int, int]] = {}
        """Epochs of replicas whose data went by StopReplica, which comes before the image says so."""
        self._refused: dict[PartitionKey, RefusedBatches] = {}
        """Batches for replicas that could not be opened when they came."""
        self.invariants = self._environment.invariants
        """How often invariants were violated on this broker."""
        self.traffic = BrokerTraffic()
        """Records and bytes by topic."""

    def find(self, topic: str, index: int) -> Partition | None:
        """The local replica; None when this broker has no replica of it. Raises KafkaError KAFKA_STORAGE_ERROR."""
        found = self._open.get((topic, index))
        return found if found is not None else self._touch(topic, index)

    def require(self, topic: TopicKey, index: int) -> Partition:
        """The local replica of a topic given by name or id.

        Raises NOT_LEADER_OR_FOLLOWER for one that other brokers hold, UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID
        for an unknown one, KAFKA_STORAGE_ERROR.
        """
        if isinstance(topic, bytes):
            name = self._image.topic_names.get(topic)
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            topic = name
        found = self._open.get((topic, index)) or self._touch(topic, index)
        if found is None:
            elsewhere = self._image.partition(topic, index) is not None
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER if elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return found

    def refused(self, topic: TopicKey, index: int, batches: memoryview, code: ErrorCode, now_ms: int) -> None:
        """A batch came for a replica that is here and cannot be opened yet: those behind it are to wait for it."""
        name = self._image.topic_names.get(topic) if isinstance(topic, bytes) else topic
        if name is None or (name, index) in self._open:
            return
        state = self._image.partition(name, index)
        if state is not None and self._local_id in state.replicas:
            self._refused.setdefault((name, index), RefusedBatches()).note(batches, code, ProducerStates(), now_ms)

    def may_lead(self, topic: str, index: int) -> bool:
        """Whether this broker may act as the leader of a partition that it leads; opens no log."""
        opened = self._open.get((topic, index))
        if opened is not None:
            return opened.may_lead
        leadership, state = self._environment.leadership, self._image.partition(topic, index)
        if leadership is None or state is None:
            return True
        found = self._image.topics[topic]

        def min_isr() -> int:
            return min(self._settings(found).min_insync_replicas, len(state.replicas))

        return leadership.may_lead(UnopenedPartition(topic, found.id, index, state, min_isr))

    def settings_of(self, topic: str) -> LogConfig | None:
        """What the logs of the topic obey; None for a topic that does not exist."""
        found = self._image.topics.get(topic)
        return None if found is None else self._settings(found)

    def log_config(self, topic: TopicKey, index: int) -> LogConfig | None:
        """The settings of a replica's log, which is not opened for this; None for a topic that does not exist."""
        name = self._image.topic_names.get(topic) if isinstance(topic, bytes) else topic
        if name is None:
            return None
        found = self._open.get((name, index))
        return self.settings_of(name) if found is None else found.log.config

    def _touch(self, name: str, index: int) -> Partition | None:
        state = self._image.partition(name, index)
        if state is None or self._local_id not in state.replicas:
            return None
        topic = self._image.topics[name]
        if self._stopped.get((topic.id, index), _NOTHING) >= (state.leader_epoch, state.partition_epoch):
            # Opened again it would be empty, and the leader that this image names: followers would cut their logs.
            return None
        # Nor may it be what is open there: of the topic that had the name before.
        self._directories.delete_if_doomed((name, index))
        try:
            opened = self._directories.open(topic, index, self._settings(topic))
            partition = Partition(
                name, topic.id, index, self._local_id, opened, self._environment, self.traffic.of(name)
            )
            partition.restore_high_watermark(self._directories.high_watermark(name, index) or 0)
            partition.expect(self._refused.pop((name, index), None))
            partition.apply_state(state)
        except KafkaError:
            raise
        except Exception as error:  # the caller has other partitions of the image to open
            raise self._directories.fail((name, index), topic.id, error) from error
        self._open[name, index] = partition
        return partition

    def apply(self, image: ClusterImage) -> None:
        """Take over a new image: leadership and settings. `change_directories` creates and deletes the directories.

        Until then a partition that is asked for makes its directory itself.
        """
        old, self._image = self._image, image
        self._directories.take(image)
        for topic in deleted_topics(old, image):
            self._delete(topic)
            self.traffic.forget(topic.name)
        for topic, before in changed_topics(old, image):
            if before is None:
                self._create(topic, 0)
            else:
                self._update(before, topic)
        if image.broker_configs != old.broker_configs:
            # Defaults of topics may be others now.
            settings = {name: self._settings(image.topics[name]) for name in {name for name, _ in self._open}}
            for (name, _), partition in self._open.items():
                partition.log.set_config(settings[name])
            for partition in self.opened():
                # A lower `min.insync.replicas` may commit what waits.
                partition.advance_high_watermark(0)
        self._directories.begin()

    def is_offline(self, topic: str, index: int) -> bool:
        """Whether the data of a replica here is out of reach: in a directory that failed or could not be read."""
        return self._directories.is_offline(topic, index)

    def _create(self, topic: Topic, first: int) -> None:
        for index in range(first, len(topic.partitions)):
            if self._local_id in topic.partitions[index].replicas:
                self._directories.add(topic, index)

    def _update(self, before: Topic, topic: Topic) -> None:
        settings = None if topic.configs == before.configs else self._settings(topic)
        local_id = self._local_id
        common = min(len(before.partitions), len(topic.partitions))
        changed = changed_indexes(before.partitions, topic.partitions) if settings is None else range(common)
        for index in changed:
            if index >= common:
                break
            old, state = before.partitions[index], topic.partitions[index]
            key = topic.id, index
            if key in self._stopped and self._stopped[key] < (state.leader_epoch, state.partition_epoch):
                del self._stopped[key]
            if old is not state and old.replicas != state.replicas:
                if local_id in state.replicas and local_id not in old.replicas:
                    self._directories.add(topic, index)
                elif local_id in old.replicas and local_id not in state.replicas and state.replicas:
                    self.stop(((topic.name, index),), delete=True)
            partition = self._open.get((topic.name, index))
            if partition is None:
                continue
            try:
                if settings is not None:
                    partition.log.set_config(settings)
                partition.apply_state(state)
                if settings is not None:
                    # A lower `min.insync.replicas` may commit what waits, if the new state still lets this broker lead.
                    partition.advance_high_watermark(0)
            except Exception as error:  # noqa: BLE001 - the rest of the image is still to be applied
                del self._open[topic.name, index]
                self._directories.fail((topic.name, index), topic.id, error)
                partition.retire()
        self._create(topic, len(before.partitions))

    def stop(self, places: Iterable[PartitionKey], delete: bool) -> None:
        """End replicas here, as StopReplica or a reassignment says; with `delete` their data goes, too."""
        for place in places:
            partition = self._open.get(place)
            if partition is not None:
                partition.retire()
            topic = self._image.topics.get(place[0])
            if delete and topic is not None:
                if 0 <= place[1] < len(topic.partitions):
                    state = topic.partitions[place[1]]
                    if self._local_id in state.replicas:
                        self._stopped[topic.id, place[1]] = state.leader_epoch, state.partition_epoch
                self._open.pop(place, None)
                self._directories.doom(place, self._settings(topic).file_delete_delay_ms)

    def _delete(self, topic: Topic) -> None:
        delay_ms = self._settings(topic).file_delete_delay_ms
        for index in range(len(topic.partitions)):
            partition = self._open.pop((topic.name, index), None)
            if partition is not None:
                partition.retire()
            self._refused.pop((topic.name, index), None)
            self._stopped.pop((topic.id, index), None)
            self._directories.doom((topic.name, index), delay_ms)

    async def change_directories(self) -> None:
        """See `ReplicaDirectories.change_directories`."""
        await self._directories.change_directories()

    def opened_partition(self, topic: str, index: int) -> Partition | None:
        """The local replica if something has touched it so far; it is not opened."""
        return self._open.get((topic, index))

    def opened(self) -> list[Partition]:
        """Those touched so far."""
        return list(self._open.values())
