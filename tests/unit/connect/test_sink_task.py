"""The loop of a sink's task, with a consumer and a sink of the test's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest

from odradek.client.errors import CallTimedOut, DeliveryTimedOut
from odradek.client.model import CREATE_TIME, ConsumerRecord
from odradek.connect.connector_settings import ErrorPolicy
from odradek.connect.conversion import Conversion
from odradek.connect.converters import JsonConverter, StringConverter
from odradek.connect.errors import ConnectError, PositionMoved, RecordRejected, TargetAway
from odradek.connect.model import Batch, SinkRecord
from odradek.connect.sink_task import DeadLetterTopic, SinkTask
from odradek.connect.transforms import transforms_of
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.primitives import ZERO_UUID

ORDERS = TopicPartition("orders", 0)
TEAS = TopicPartition("teas", 0)
POLICY = ErrorPolicy(False, 0.0, 0.1, False, "", False)


def record(partition: TopicPartition, offset: int, number: int) -> ConsumerRecord[Any, Any]:
    return ConsumerRecord(*partition, offset, 1_000, CREATE_TIME, None, json.dumps({"n": number}).encode(), (), 0)


class Polls:
    """A consumer that returns one list of records at each poll, and loses a partition before the second poll."""

    def __init__(self, polls: Iterable[list[ConsumerRecord[Any, Any]]], lost: set[TopicPartition]) -> None:
        self._polls = list(polls)
        self._lost = lost
        self._asked = 0
        self.task: SinkTask | None = None
        self.stopping = asyncio.Event()
        self.commits: list[dict[TopicPartition, int]] = []
        self.topic_ids: dict[str, bytes] = {}
        self.cluster = self
        self.metadata = self

    def topic_id(self, topic: str) -> bytes:
        return self.topic_ids.get(topic, ZERO_UUID)

    async def poll(self, **_options: Any) -> list[ConsumerRecord[Any, Any]]:
        self._asked += 1
        if self._asked == 2:
            assert self.task is not None
            self.task.on_partitions_revoked(self._lost)
        await asyncio.sleep(0)
        return self._polls.pop(0) if self._polls else []

    async def commit(self, ends: dict[TopicPartition, int]) -> None:
        self.commits.append(ends)
        self.stopping.set()


class Kept:
    """A sink that keeps batches of two records."""

    batch_records = 2
    batch_wait_s = 1_000.0

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    async def open(self) -> None:
        pass

    async def positions(self, _partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {}

    async def write(self, batch: Batch) -> None:
        self.batches.append(batch)

    async def close(self) -> None:
        pass


def test_routed_records_of_a_lost_partition_are_not_written() -> None:
    """A transform changed their topic; the partition that they came from counts."""

    async def run() -> None:
        route = {"r.type": "RegexRouter", "r.regex": ".*", "r.replacement": "all"}
        conversion = Conversion(StringConverter(), JsonConverter(), transforms_of(["r"], route))
        consumer, sink = Polls([[record(ORDERS, 4, 1)], [record(TEAS, 7, 2), record(TEAS, 8, 3)]], {ORDERS}), Kept()
        consumer.task = SinkTask("c-0", consumer, sink, conversion, POLICY, None)  # type: ignore[arg-type]
        async with asyncio.timeout(60):
            await consumer.task.run(consumer.stopping)
        (written,) = sink.batches
        assert [(each.topic, each.origin, each.offset) for each in written.records] == [
            ("all", TEAS, 7),
            ("all", TEAS, 8),
        ]
        assert consumer.commits == [{TEAS: 9}]

    asyncio.run(run())


class Endless(Polls):
    """A consumer that returns a record at each poll, until there was a commit or a bound is reached."""

    async def poll(self, **_options: Any) -> list[ConsumerRecord[Any, Any]]:
        self._asked += 1
        await asyncio.sleep(0)
        if self._asked == 10_000:
            self.stopping.set()
        return [record(ORDERS, self._asked, 1)._replace(value=None)]


def test_position_moves_while_all_records_are_dropped() -> None:
    """A transform drops them: there is nothing to write, and the group shows that they were read."""

    async def run() -> None:
        dropping = transforms_of(["d"], {"d.type": "DropTombstones"})
        consumer, sink = Endless([], set()), Kept()
        sink.batch_wait_s = 0.01
        conversion = Conversion(StringConverter(), JsonConverter(), dropping)
        task = SinkTask("c-0", consumer, sink, conversion, POLICY, None)  # type: ignore[arg-type]
        await task.run(consumer.stopping)
        assert len(consumer.commits) == 1
        assert sink.batches == []

    asyncio.run(run())


class Letters:
    """Dead letters: those that wait, and those that are in their topic."""

    def __init__(self) -> None:
        self.waiting: list[int] = []
        self.kept: list[int] = []

    async def add(self, record: SinkRecord, _error: Exception) -> None:
        self.waiting.append(record.offset)

    async def flush(self) -> None:
        self.kept += self.waiting
        self.waiting.clear()


class Rejecting(Kept):
    """A sink that keeps positions, rejects the first record of its first batch, and may be killed by each write."""

    def __init__(self, letters: Letters) -> None:
        super().__init__()
        self._letters = letters
        self._rejects = True
        self.without_letter: list[int] = []
        """Records before the position that are neither written nor dead letters when the position moves."""

    async def write(self, batch: Batch) -> None:
        if self._rejects:
            self._rejects = False
            raise RecordRejected(0, "not a row")
        there = {each.offset for each in batch.records} | set(self._letters.kept)
        self.without_letter += [each for each in range(batch.ends[ORDERS]) if each not in there]


def test_dead_letters_are_written_before_the_position_moves() -> None:
    """A task that ends between the two continues behind the records that it has skipped."""

    async def run() -> None:
        conversion = Conversion(StringConverter(), JsonConverter(), ())
        letters = Letters()
        broken = record(ORDERS, 0, 0)._replace(value=b"{")
        consumer, sink = Polls([[broken, record(ORDERS, 1, 1), record(ORDERS, 2, 2)]], set()), Rejecting(letters)
        policy = POLICY._replace(tolerates_records=True)
        task = SinkTask("c-0", consumer, sink, conversion, policy, letters)  # type: ignore[arg-type]
        consumer.task = task
        async with asyncio.timeout(60):
            await task.run(consumer.stopping)
        assert sink.without_letter == []
        assert letters.kept == [0, 1]
        assert consumer.commits == [{ORDERS: 3}]

    asyncio.run(run())


class Refusing(Kept):
    """A sink that rejects some offsets, and keeps batches as they come."""

    batch_wait_s = 0.0

    def __init__(self, refused: set[int]) -> None:
        super().__init__()
        self._refused = refused

    async def write(self, batch: Batch) -> None:
        for index, each in enumerate(batch.records):
            if each.offset in self._refused:
                raise RecordRejected(index, "not a row")
        await super().write(batch)


class Unanswered(Polls):
    """A consumer whose first commit is not answered; it loses a partition while the task waits."""

    def __init__(self, polls: Iterable[list[ConsumerRecord[Any, Any]]], lost: set[TopicPartition]) -> None:
        super().__init__(polls, lost)
        self._owned = {ORDERS, TEAS}
        self._fails = True

    async def poll(self, **options: Any) -> list[ConsumerRecord[Any, Any]]:
        found = await super().poll(**options)
        if self._asked == 2:
            self._owned -= self._lost
        return found

    async def commit(self, ends: dict[TopicPartition, int]) -> None:
        if self._fails:
            self._fails = False
            raise CallTimedOut("commit of group connect-c: no success within 60000 ms")
        await super().commit(ends)

    def assignment(self) -> set[TopicPartition]:
        return set(self._owned)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused = set(partitions)

    def paused(self) -> set[TopicPartition]:
        return self._paused

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused = self._paused - set(partitions)


def test_commit_is_repeated_once_the_brokers_answer() -> None:
    """The task has written the records: it neither fails nor writes them again."""

    async def run() -> None:
        conversion = Conversion(StringConverter(), JsonConverter(), ())
        consumer, sink = Unanswered([[record(ORDERS, 4, 1), record(TEAS, 7, 2)]], {ORDERS}), Kept()
        policy = POLICY._replace(retry_s=60.0)
        task = SinkTask("c-0", consumer, sink, conversion, policy, None)  # type: ignore[arg-type]
        consumer.task = task
        async with asyncio.timeout(60):
            await task.run(consumer.stopping)
        assert len(sink.batches) == 1
        assert consumer.commits == [{TEAS: 8}]

    asyncio.run(run())


class Recreated(Unanswered):
    """A consumer that reads a topic of the same name, created again, from its second poll on."""

    def __init__(self, polls: Iterable[list[ConsumerRecord[Any, Any]]]) -> None:
        super().__init__(polls, set())
        self._fails = False
        self._owned = {ORDERS}
        self.topic_ids = {"orders": b"\1" * 16}
        self.begun: list[TopicPartition] = []

    async def poll(self, **options: Any) -> list[ConsumerRecord[Any, Any]]:
        if self._asked == 0:
            assert self.task is not None
            await self.task.on_partitions_assigned({ORDERS})
        if self._asked == 1:
            self.topic_ids = {"orders": b"\2" * 16}
        return await super().poll(**options)

    async def committed(self, _partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Any]:
        return {}

    def seek_to_beginning(self, partitions: Iterable[TopicPartition]) -> None:
        self.begun += partitions
        self._polls = [[record(ORDERS, 0, 10), record(ORDERS, 1, 11)]]


def test_topic_that_is_created_again_is_read_from_its_beginning() -> None:
    """The new topic has more records than were read of the former one, so that the consumer continues in its middle."""

    async def run() -> None:
        conversion = Conversion(StringConverter(), JsonConverter(), ())
        consumer, sink = Recreated([[record(ORDERS, 0, 1)], [record(ORDERS, 1, 11)]]), Kept()
        task = SinkTask("c-0", consumer, sink, conversion, POLICY, None)  # type: ignore[arg-type]
        consumer.task = task
        async with asyncio.timeout(60):
            await task.run(consumer.stopping)
        assert [[each.value for each in batch.records] for batch in sink.batches] == [
            [{"n": 1}],
            [{"n": 10}, {"n": 11}],
        ]
        assert consumer.begun == [ORDERS]
        assert consumer.commits == [{ORDERS: 2}]

    asyncio.run(run())


class Away(Letters):
    """A topic of dead letters whose brokers do not answer once: records that wait are lost, or are not accepted."""

    def __init__(self, fails: str) -> None:
        super().__init__()
        self._fails = fails

    def _fail_once(self, call: str) -> None:
        if self._fails == call:
            self._fails = ""
            self.waiting.clear()
            raise DeliveryTimedOut(f"{call}: no answer within 120000 ms")

    async def add(self, record: SinkRecord, error: Exception) -> None:
        self._fail_once("add")
        await super().add(record, error)

    async def flush(self) -> None:
        self._fail_once("flush")
        await super().flush()


class Rewound(Unanswered):
    """A consumer that returns its records again from where it is sent to."""

    def __init__(self, records: list[ConsumerRecord[Any, Any]]) -> None:
        super().__init__([records], set())
        self._records = records
        self._fails = False
        self._owned = {ORDERS}

    async def committed(self, _partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Any]:
        return {}

    def seek(self, _partition: TopicPartition, offset: int) -> None:
        self._polls = [[each for each in self._records if each.offset >= offset]]

    def seek_to_beginning(self, _partitions: Iterable[TopicPartition]) -> None:
        self._polls = [self._records]

    async def poll(self, **options: Any) -> list[ConsumerRecord[Any, Any]]:
        if getattr(self, "_paused", None):
            await asyncio.sleep(0)
            return []
        return await super().poll(**options)


@pytest.mark.parametrize("fails", ["add", "flush"])
@pytest.mark.parametrize("rejects", [False, True])
def test_dead_letter_that_is_lost_with_the_brokers_is_written_again(fails: str, rejects: bool) -> None:
    """Its record was not converted, or was rejected by the target; the task neither fails nor goes past it."""

    async def run() -> None:
        conversion = Conversion(StringConverter(), JsonConverter(), ())
        letters = Away(fails)
        first = record(ORDERS, 0, 0) if rejects else record(ORDERS, 0, 0)._replace(value=b"{")
        consumer, sink = Rewound([first, record(ORDERS, 1, 1), record(ORDERS, 2, 2)]), Refusing({0})
        policy = POLICY._replace(tolerates_records=True, retry_s=60.0)
        task = SinkTask("c-0", consumer, sink, conversion, policy, letters)  # type: ignore[arg-type]
        consumer.task = task
        async with asyncio.timeout(60):
            await task.run(consumer.stopping)
        assert letters.kept == [0]
        assert [each.offset for batch in sink.batches for each in batch.records] == [1, 2]
        assert consumer.commits == [{ORDERS: 3}]

    asyncio.run(run())


def test_task_fails_when_dead_letters_are_lost_for_too_long() -> None:
    async def run() -> None:
        conversion = Conversion(StringConverter(), JsonConverter(), ())
        consumer, sink = Rewound([record(ORDERS, 0, 0)._replace(value=b"{"), record(ORDERS, 1, 1)]), Kept()
        sink.batch_wait_s = 0.0
        policy = POLICY._replace(tolerates_records=True)
        task = SinkTask("c-0", consumer, sink, conversion, policy, Away("flush"))  # type: ignore[arg-type]
        consumer.task = task
        async with asyncio.timeout(60):
            await task.run(consumer.stopping)

    with pytest.raises(TargetAway, match="the topic of dead letters"):
        asyncio.run(run())


class Silent(Rewound):
    """A consumer whose group does not answer once where its positions are."""

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Any]:
        if not self._fails:
            self._fails = True
            raise CallTimedOut("committed: no answer within 60000 ms")
        self._fails = False
        return await super().committed(partitions)

    async def commit(self, ends: dict[TopicPartition, int]) -> None:
        self._fails = False
        await super().commit(ends)


class Moved(Kept):
    """A sink to which another task seems to have written before the first batch."""

    batch_wait_s = 0.0

    async def write(self, batch: Batch) -> None:
        await super().write(batch)
        if len(self.batches) == 1:
            raise PositionMoved("another task")


def test_task_waits_for_the_positions_of_its_group() -> None:
    async def run() -> None:
        conversion = Conversion(StringConverter(), JsonConverter(), ())
        consumer, sink = Silent([record(ORDERS, 0, 0)]), Moved()
        policy = POLICY._replace(retry_s=60.0)
        task = SinkTask("c-0", consumer, sink, conversion, policy, None)  # type: ignore[arg-type]
        consumer.task = task
        async with asyncio.timeout(60):
            await task.run(consumer.stopping)
        assert [each.ends for each in sink.batches] == [{ORDERS: 1}, {ORDERS: 1}]
        assert consumer.commits == [{ORDERS: 1}]

    asyncio.run(run())


def test_dead_letter_describes_a_failure_with_text_that_is_no_unicode() -> None:
    """The message may have a field's name in it, and JSON can name half of a character."""
    sent: list[Any] = []

    class Written:
        async def send(self, *arguments: Any) -> None:
            sent.append(arguments)

    policy = POLICY._replace(dead_letters="bad", describes_failures=True)
    letters = DeadLetterTopic(Written(), policy, "c", 0)  # type: ignore[arg-type]
    rejected = SinkRecord(ORDERS, 3, 1_000, None, None, (), b"k", b"v", "orders")
    asyncio.run(letters.add(rejected, ValueError("field \ud800 is of type string")))
    ((topic, value, key, headers),) = sent
    assert (topic, value, key) == ("bad", b"v", b"k")
    assert dict(headers)["__connect.errors.exception.message"] == rb"field \ud800 is of type string"


class Holding(Kept):
    """A sink whose target holds positions."""

    batch_wait_s = 0.0

    def __init__(self, held: dict[TopicPartition, int]) -> None:
        super().__init__()
        self._held = held

    def note_topics(self, _topic_ids: Mapping[str, bytes]) -> None:
        pass

    async def positions(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {each: self._held[each] for each in partitions if each in self._held}


class Truncated(Rewound):
    """A consumer that is assigned its partition at its first poll, and is reset to the beginning before its second."""

    async def poll(self, **options: Any) -> list[ConsumerRecord[Any, Any]]:
        if self._asked == 0:
            assert self.task is not None
            await self.task.on_partitions_assigned({ORDERS})
        if self._asked == 1:
            self.seek_to_beginning([])
        return await super().poll(**options)

    async def commit(self, ends: dict[TopicPartition, int]) -> None:
        self.commits.append(ends)


@pytest.mark.parametrize("held", [{ORDERS: 1}, {}])
def test_records_before_the_position_of_the_target_are_not_written(held: dict[TopicPartition, int]) -> None:
    """A consumer whose position lies beyond a truncated log is reset: the target has these records already."""

    async def run() -> None:
        conversion = Conversion(StringConverter(), JsonConverter(), ())
        consumer, sink = Truncated([record(ORDERS, 0, 0), record(ORDERS, 1, 1)]), Holding(held)
        task = SinkTask("c-0", consumer, sink, conversion, POLICY, None)  # type: ignore[arg-type]
        consumer.task = task
        try:
            async with asyncio.timeout(60):
                await task.run(consumer.stopping)
        finally:
            first = held.get(ORDERS, 0)
            assert [each.offset for each in sink.batches[0].records] == list(range(first, 2))
            assert len(sink.batches) == 1

    with pytest.raises(ConnectError, match="orders-0 is read again from offset 0, before the position 2"):
        asyncio.run(run())


class Unreachable(Polls):
    """A consumer whose first polls fail."""

    def __init__(self, failures: list[Exception]) -> None:
        super().__init__([[record(ORDERS, 0, 0), record(ORDERS, 1, 1)]], set())
        self._failures = failures

    async def poll(self, **options: Any) -> list[ConsumerRecord[Any, Any]]:
        if self._failures:
            raise self._failures.pop(0)
        return await super().poll(**options)


def test_task_polls_again_while_brokers_do_not_answer() -> None:
    """They are asked for the ends of logs and for positions within a poll."""

    async def run() -> None:
        conversion = Conversion(StringConverter(), JsonConverter(), ())
        consumer, sink = Unreachable([CallTimedOut("no success within 60000 ms")] * 2), Kept()
        policy = POLICY._replace(retry_s=60.0)
        task = SinkTask("c-0", consumer, sink, conversion, policy, None)  # type: ignore[arg-type]
        consumer.task = task
        async with asyncio.timeout(60):
            await task.run(consumer.stopping)
        assert consumer.commits == [{ORDERS: 2}]

    asyncio.run(run())


def test_task_fails_where_the_brokers_reject_its_polls() -> None:
    async def run() -> None:
        consumer = Unreachable([KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)])
        conversion = Conversion(StringConverter(), JsonConverter(), ())
        policy = POLICY._replace(retry_s=60.0)
        await SinkTask("c-0", consumer, Kept(), conversion, policy, None).run(asyncio.Event())  # type: ignore[arg-type]

    with pytest.raises(ConnectError, match="the brokers: ") as caught:
        asyncio.run(run())
    assert not isinstance(caught.value, TargetAway)
