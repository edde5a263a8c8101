"""Dead letters: records that failed, with headers that say why, and their way back to the topics they came from.

Names of the headers are those of Kafka Connect's dead letter queues (KIP-298).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from odradek.client.model import LATEST
from odradek.client.offsets import fetch_committed, list_offsets
from odradek.records.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.client.consumer.consumer import Consumer
    from odradek.client.model import ConsumerRecord
    from odradek.client.producer.transactions import TransactionalProducer

PREFIX: Final = "__connect.errors."
TOPIC: Final = PREFIX + "topic"
PARTITION: Final = PREFIX + "partition"
OFFSET: Final = PREFIX + "offset"
TIMESTAMP: Final = PREFIX + "timestamp"
CLASS: Final = PREFIX + "exception.class.name"
MESSAGE: Final = PREFIX + "exception.message"
STACK: Final = PREFIX + "exception.stacktrace"
REDRIVES: Final = PREFIX + "redrives"
"""How often the record was sent again before: not Connect's; `odradek dlq redrive` and the console count here."""
_ROUND: Final = 500
_POLL_MS: Final = 500


class UnknownTopic(LookupError):
    """There is no topic of that name."""


class OffsetBeyondEnd(RuntimeError):
    """The offset that the group has of a partition lies beyond its end."""


class UnknownOrigin(LookupError):
    """The headers of a dead letter do not name its topic. The message is its place, TOPIC-PARTITION@OFFSET."""


class Letter(NamedTuple):
    """A dead letter: the record, its error headers by name, its other headers, and how often it was sent again."""

    record: ConsumerRecord[Any, Any]
    errors: dict[str, str]
    headers: tuple[tuple[str, bytes | None], ...]
    redrives: int

    @classmethod
    def of(cls, record: ConsumerRecord[Any, Any]) -> Letter:
        """The dead letter in a record: its error headers apart from the other headers."""
        errors: dict[str, str] = {}
        kept: list[tuple[str, bytes | None]] = []
        for name, value in record.headers:
            if name.startswith(PREFIX):
                errors[name] = "" if value is None else bytes(value).decode(errors="replace")
            else:
                kept.append((name, value))
        count = errors.get(REDRIVES, "0")
        is_number = count.isascii() and count.isdecimal() and len(count) < 10
        return cls(record, errors, tuple(kept), int(count) if is_number else 0)

    @property
    def topic(self) -> str | None:
        """The topic that the record came from; None if no header names it."""
        return self.errors.get(TOPIC)

    @property
    def origin(self) -> str:
        """Where the record came from, TOPIC-PARTITION@OFFSET; ? for what no header says."""
        return f"{self.topic or '?'}-{self.errors.get(PARTITION, '?')}@{self.errors.get(OFFSET, '?')}"

    @property
    def reason(self) -> str:
        """The exception's class and message."""
        return ": ".join(each for each in (self.errors.get(CLASS), self.errors.get(MESSAGE)) if each)

    def row(self) -> dict[str, Any]:
        """The letter as a row of a table."""
        return {
            "partition": self.record.partition,
            "offset": self.record.offset,
            "origin": self.origin,
            "redrives": self.redrives,
            "key": _text(self.record.key),
            "value": _text(self.record.value),
            "stack": self.errors.get(STACK),
            "error": self.reason,
        }


def _text(data: Any) -> str | None:
    return None if data is None else bytes(data).decode(errors="replace")


def redrive_group(topic: str) -> str:
    """The group that keeps the offsets of redriven letters, unless another one is chosen."""
    return f"{topic}-redrive"


def redrive_id(group: str) -> str:
    """The transactional id of redrives for a group: a later redrive fences an earlier one."""
    return f"odradek-dlq-{group}"


def wanted_of(letters: Sequence[Letter], max_redrives: int | None) -> list[Letter]:
    """Letters that were sent again less often than a limit."""
    return [each for each in letters if max_redrives is None or each.redrives < max_redrives]


async def read_letters(
    consumer: Consumer, topic: str, group: str, *, from_beginning: bool = False, max_records: int | None = None
) -> AsyncIterator[list[Letter]]:
    """Rounds of all dead letters from the group's offsets up to where the topic ends now.

    The consumer has `read_committed` and creates no topics. Raises UnknownTopic, OffsetBeyondEnd, KafkaError,
    ClientError.
    """
    cluster = consumer.cluster
    cluster.follow_topics([topic])
    errors = await cluster.refresh_metadata()
    info = cluster.metadata.topics.get(topic)
    if topic in errors or info is None:
        raise UnknownTopic(f"there is no topic {topic}")
    keys = [TopicPartition(topic, each.partition) for each in info.partitions]
    consumer.assign(keys)
    consumer.seek_to_beginning()
    committed = {} if from_beginning else await fetch_committed(cluster, group, keys, require_stable=True)
    # after the committed offsets: another redrive may commit meanwhile
    ends = await consumer.end_offsets(keys)
    if committed:
        starts = await consumer.beginning_offsets(keys)
        written = await list_offsets(cluster, dict.fromkeys(committed, LATEST))
        for key, at in committed.items():
            if at.offset > written[key].offset:
                raise OffsetBeyondEnd(
                    f"group {group} has the offset {at.offset} of {key}, which ends at {written[key].offset}: the "
                    "topic was created again, or lost records. Set where to continue: odradek groups --reset-offsets "
                    f"--group {group} --topic {topic} --to-earliest --execute"
                )
            if at.offset >= starts[key]:
                consumer.seek(key, at.offset)
    left = max_records
    while left != 0 and any([await consumer.position(key) < ends[key] for key in keys]):
        found = await consumer.poll(_POLL_MS, max_records=_ROUND if left is None else min(left, _ROUND))
        letters = [Letter.of(each) for each in found if each.offset < ends[each.topic_partition]]
        if letters:
            yield letters
        if left is not None:
            left -= len(letters)


async def send_again(
    producer: TransactionalProducer, group: str, letters: Sequence[Letter], wanted: Sequence[Letter], to: str | None
) -> Counter[str]:
    """Send the wanted letters and commit the offsets behind all of them, in one transaction; records by topic.

    They go to the topics they came from, or all to `to`, without the headers of the failure. Raises UnknownOrigin,
    KafkaError, ClientError; then nothing of this round was sent.
    """
    counts: Counter[str] = Counter()
    ends: dict[TopicPartition, int] = {}
    for each in letters:
        ends[each.record.topic_partition] = each.record.offset + 1
    async with producer.transaction():
        for each in wanted:
            topic = to or each.topic
            record = each.record
            if topic is None:
                raise UnknownOrigin(f"{record.topic}-{record.partition}@{record.offset}")
            timestamp = record.timestamp if record.timestamp >= 0 else None  # some old clients wrote none
            headers = [*each.headers, (REDRIVES, b"%d" % (each.redrives + 1))]
            await producer.send(topic, record.value, record.key, headers, timestamp_ms=timestamp)
            counts[topic] += 1
        await producer.send_offsets(group, dict(ends))
    return counts
