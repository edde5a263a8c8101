"""Records copied to another cluster, exactly once: records and positions are one transaction there.

The positions are offsets of the group `connect-NAME` on the other cluster, of the topics as they are named there: a
group can have offsets of topics only that exist. Their metadata have the ids of the topics that were read. Records keep
their partition, key, value, timestamp and headers; their offsets differ. One task at a time writes: the transactional
id fences an earlier one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Any, Final

from odradek.client.admin.admin import Admin
from odradek.client.errors import ClientError
from odradek.client.model import OffsetAndMetadata
from odradek.client.producer.transactions import TransactionalProducer
from odradek.connect.client_failures import failure_of
from odradek.connect.errors import PositionMoved, RecordRejected, TargetAway
from odradek.connect.group_positions import set_positions
from odradek.connect.model import Batch
from odradek.connect.settings import REQUIRED, Importance, Setting, Type
from odradek.connect.sinks.sink import of_a_former_topic
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError

PREFIX: Final = "target."
SETTINGS: Final = (
    Setting("target.bootstrap.servers", Type.STRING, REQUIRED, "brokers of the other cluster; further settings of "
            "clients as target.NAME", Importance.HIGH, group="Target"),
    Setting("topic.format", Type.STRING, "${topic}", "name of a topic on the other cluster", group="Target"),
    Setting("batch.size", Type.INT, 5_000, "most records of one transaction", minimum=1, group="Target"),
)  # fmt: skip
_TOPIC_ID: Final = "topic-id:"
"""How the metadata of an offset begin that have the id of the topic."""
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)


def check(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """What is wrong with settings that are right one by one."""
    if len(values["topics"]) != 1 and "${topic}" not in values["topic.format"]:
        return {"topic.format": ["topic.format: ${topic} expected, because the sink may read several topics"]}
    return {}


class ClusterSink:
    """One task's producer. See `Sink`."""

    def __init__(self, values: Mapping[str, Any], options: Mapping[str, Any], group: str) -> None:
        """`options` are those of the other cluster's clients; `group` names the positions and the producer there."""
        self._options = dict(options)
        self._layout: str = values["topic.format"]
        self._group = group
        self._producer: TransactionalProducer[bytes | None, bytes | None] | None = None
        self._admin: Admin | None = None
        self._topics: dict[str, str] = {}
        self.batch_records: int = values["batch.size"]
        """Records of one transaction."""
        self.batch_wait_s = 0.0
        """Records are written as they come."""

    async def open(self) -> None:
        """See `Sink`. An earlier task of this number is fenced, and its open transaction aborted."""
        await self.close()
        producer: TransactionalProducer[bytes | None, bytes | None] = TransactionalProducer(
            **self._options, transactional_id=self._group
        )
        self._producer = producer
        self._admin = Admin(**self._options)
        try:
            await producer.start()
            await self._admin.start()
            await producer.initialize()
        except (KafkaError, ClientError) as error:
            await self.close()
            raise failure_of(error, "the other cluster") from error

    async def positions(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See `Sink`."""
        if self._admin is None:
            # A task that waits for the cluster may get partitions meanwhile.
            raise TargetAway("the other cluster: there is no connection")
        try:
            found = await self._admin.groups.offsets(self._group)
        except (KafkaError, ClientError) as error:
            raise failure_of(error, "the other cluster") from error
        held = {each: found[key] for each in partitions if (key := self._copy_of(each)) in found}
        for each, at in held.items():
            mark = at.metadata or ""
            if mark.startswith(_TOPIC_ID) and self._topics.get(each.topic, mark) != mark:
                raise of_a_former_topic(each, at.offset, f"group {self._group} of the other cluster")
        return {each: at.offset for each, at in held.items()}

    async def write(self, batch: Batch) -> None:
        """See `Sink`."""
        producer = self._producer
        if producer is None:
            # The last write failed in a way that left its outcome open: what was committed is read first.
            await self.open()
            raise PositionMoved("the producer was made again")
        try:
            producer.begin()
            for index, record in enumerate(batch.records):
                try:
                    await producer.send(
                        self._name(record.topic),
                        record.raw_value,
                        record.raw_key,
                        record.headers,
                        record.partition,
                        record.timestamp if record.timestamp >= 0 else None,
                    )
                except KafkaError as error:
                    if error.code in _TOO_LARGE:
                        await producer.abort()
                        raise RecordRejected(index, str(error)) from error
                    raise
            # A topic without a record yet may not exist there.
            origins = {record.origin for record in batch.records}
            ends = {
                self._copy_of(each): OffsetAndMetadata(batch.ends[each], self._topics.get(each.topic, ""))
                for each in origins
            }
            await producer.send_offsets(self._group, ends)
            await producer.commit()
        except (KafkaError, ClientError) as error:
            await self.close()
            raise failure_of(error, "the other cluster") from error

    def note_topics(self, topic_ids: Mapping[str, bytes]) -> None:
        """See `TopicBoundSink`."""
        self._topics.update({topic: f"{_TOPIC_ID}{topic_id.hex()}" for topic, topic_id in topic_ids.items()})

    async def move(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """See `MovableSink`."""
        assert self._admin is not None
        try:
            moved = {self._copy_of(each): offset for each, offset in positions.items()}
            await set_positions(self._admin, self._group, moved)
        except (KafkaError, ClientError) as error:
            raise failure_of(error, "the other cluster") from error

    async def close(self) -> None:
        """See `Sink`."""
        producer, self._producer = self._producer, None
        admin, self._admin = self._admin, None
        for each in (producer, admin):
            if each is not None:
                with contextlib.suppress(KafkaError, ClientError):
                    await each.close()

    def _name(self, topic: str) -> str:
        """The name of a topic on the other cluster."""
        return self._layout.replace("${topic}", topic)

    def _copy_of(self, partition: TopicPartition) -> TopicPartition:
        """The partition of the other cluster whose offset in the group is the position of this one."""
        return TopicPartition(self._name(partition.topic), partition.partition)
