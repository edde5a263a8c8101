"""What a produce request is answered whose partitions are committed, or lost, at different times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api import api_00_produce
from odradek.api.api_00_produce import handle
from odradek.api.requests.long_work import LongWork
from odradek.api.requests.session import Session
from odradek.log.config import LogConfig
from odradek.log.environment import LogEnvironment, StandaloneOwner
from odradek.log.partition_log import PartitionLog
from odradek.log.writing.write_queue import DirectWrites, QueuedWrite
from odradek.metadata.image import ClusterImage, PartitionState
from odradek.ports.clock import SystemClock
from odradek.ports.disk import SystemDisk
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.compression import Codec
from odradek.replication.partition import Partition, PartitionEnvironment
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.produce import ProduceResponse
from odradek.wire.produce import ProduceRequest

NOW_MS = time.time_ns() // 1_000_000
STATE = PartitionState(1, 0, (1, 2), (1, 2))


class Connection:
    def __init__(self) -> None:
        self.answered: list[Any] = []

    def later(self) -> Connection:
        return self

    def answer(self, parts: Any) -> None:
        self.answered.append(parts)


class SlowDisk(DirectWrites):
    """Writes when somebody waits for it, as a disk's thread that does not keep up."""

    def __init__(self, disk: SystemDisk) -> None:
        super().__init__(disk)
        self.slow = True
        self._held: list[QueuedWrite] = []

    def put(self, write: QueuedWrite) -> None:
        self._held.append(write)

    def finish(self) -> None:
        held, self._held = self._held, []
        for write in held:
            super().put(write)


class OwnerOfSlowDisk(StandaloneOwner):
    def __init__(self, disk: SystemDisk) -> None:
        super().__init__(disk)
        self._writer = SlowDisk(disk)

    def writer_of(self, _directory: str) -> SlowDisk:
        return self._writer


def led(home: Path, index: int, *, slow: bool = False) -> Partition:
    (home / f"t-{index}").mkdir()
    disk = SystemDisk()
    owner = OwnerOfSlowDisk(disk) if slow else StandaloneOwner(disk)
    environment = LogEnvironment(disk, SystemClock(), owner=owner)
    log = PartitionLog.open("t", index, str(home / f"t-{index}"), LogConfig(), environment, clean=True)
    replication = PartitionEnvironment(is_eligible=lambda _id, _epoch: False)
    partition = Partition("t", bytes(16), index, 1, log, replication)
    partition.apply_state(STATE)
    return partition


def batch(value: bytes) -> memoryview:
    return memoryview(bytearray(encode_batch([(NOW_MS, None, value, ())], BatchFields())))


def context_of(partitions: dict[int, Partition]) -> Any:
    quota = SimpleNamespace(active=False)
    services = SimpleNamespace(
        authorization=None,
        audit=None,
        partitions=SimpleNamespace(require=lambda _topic, index: partitions[index]),
        clock=SystemClock(),
        quotas=SimpleNamespace(produce=quota, request=quota),
        cluster=SimpleNamespace(),
        image=lambda: None,
        long_work=LongWork(lambda: 0.0, 4),
    )
    return SimpleNamespace(
        denied=None,
        version=9,
        correlation_id=7,
        client_id="c",
        size=100,
        services=services,
        connection=Connection(),
        note_error=lambda _code: None,
    )


async def answers_when(tmp_path: Path, monkeypatch: Any, *steps: str, slow: bool = False) -> list[ErrorCode]:
    partitions = {index: led(tmp_path, index, slow=slow) for index in (0, 1)}
    context = context_of(partitions)
    rows: list[Any] = []
    monkeypatch.setattr("odradek.api.api_00_produce.current_leader", lambda *_: None)
    monkeypatch.setattr("odradek.api.api_00_produce._encode", lambda produced, _context, failed: rows.extend(produced))
    handle(ProduceRequest(None, -1, 30_000, [("t", [(0, batch(b"a")), (1, batch(b"b"))])]), context)
    for step in steps:
        assert not rows
        if step == "first moves":
            partitions[0].apply_state(STATE._replace(leader=2, leader_epoch=1, partition_epoch=1))
            # Of its new leader it gets other records for the same offsets, which are committed.
            partitions[0].replicated.truncate_to(0)
            partitions[0].replicated.append(batch(b"other"), 1, NOW_MS)
            partitions[0].log.durability.finish_writes()
            partitions[0].replicated.advance(1, 0)
            assert partitions[0].high_watermark == 1
        else:
            partitions[int(step)].log.durability.finish_writes()
            partitions[int(step)].followers.fetched(2, 1, 1, 0, 0)
    ((_, answered),) = rows
    return [ErrorCode(row.error_code) for row in answered]


def test_each_partition_is_judged_when_it_is_known(tmp_path: Path, monkeypatch: Any) -> None:
    """Not when the last of the request is: by then the first may have been refilled by another leader."""
    found = asyncio.run(answers_when(tmp_path, monkeypatch, "first moves", "1"))
    assert found == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NONE]


def test_what_is_committed_stays_so_when_its_partition_moves(tmp_path: Path, monkeypatch: Any) -> None:
    found = asyncio.run(answers_when(tmp_path, monkeypatch, "0", "first moves", "1"))
    assert found == [ErrorCode.NONE, ErrorCode.NONE]


def test_produce_is_not_acknowledged_when_its_partition_moved_unwritten(tmp_path: Path, monkeypatch: Any) -> None:
    """Found by the simulator (cluster5-500056): the wait for the high watermark began on what was a follower by then,
    and the new leader's record at that offset was taken for the one that had been cut off.
    """
    found = asyncio.run(answers_when(tmp_path, monkeypatch, "first moves", "1", slow=True))
    assert found == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NONE]


def test_nothing_overtakes_a_batch_whose_transaction_could_not_be_verified(tmp_path: Path) -> None:
    """The partition knows nothing of the producer, and takes any first sequence: the batch that was refused would be
    out of order for ever.
    """
    partition = led(tmp_path, 0)
    answers = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE]

    async def verify_or_add(*_: Any) -> Any:
        code = answers.pop(0)
        return {("t", 0): code} if code else {}

    async def send(sequence: int) -> None:
        context = context_of({0: partition})
        context.services.partitions.refused = lambda *_: None
        context.services.image = ClusterImage
        context.session = Session("PLAINTEXT", "127.0.0.1")
        context.services.transactions = SimpleNamespace(verify_or_add=verify_or_add)
        fields = BatchFields(producer_id=5, producer_epoch=0, base_sequence=sequence, is_transactional=True)
        records = memoryview(bytearray(encode_batch([(NOW_MS, None, b"x", ())], fields)))
        waiting: Any = handle(ProduceRequest("tx", 1, 30_000, [("t", [(0, records)])]), context)
        if not isinstance(waiting, list):
            await waiting

    async def play() -> list[int]:
        ends = []
        for sequence in (0, 1, 0, 1):
            await send(sequence)
            partition.log.durability.finish_writes()
            ends.append(partition.log.end_offset)
        return ends

    assert asyncio.run(play()) == [0, 0, 1, 2]


def test_unconfirmed_batch_is_answered_as_appended(tmp_path: Path) -> None:
    """librdkafka takes NOT_LEADER_OR_FOLLOWER to say "not written": it would give the sequence to another batch."""
    partition = led(tmp_path, 0)
    context = context_of({0: partition})
    context.services.image = ClusterImage
    context.session = Session("PLAINTEXT", "127.0.0.1")

    async def play() -> None:
        handle(ProduceRequest(None, -1, 30_000, [("t", [(0, batch(b"a"))])]), context)
        partition.apply_state(STATE._replace(leader=2, leader_epoch=1, partition_epoch=1))

    asyncio.run(play())
    ((parts,),) = context.connection.answered
    answer, _ = ProduceResponse.decode(memoryview(bytes(parts)), 9, 9)
    (row,) = answer.responses[0].partition_responses
    assert row.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert row.error_message == "appended, but not confirmed: this broker no longer leads the partition"
    assert (row.base_offset, row.log_start_offset) == (0, 0), "as in Kafka: the batch is in the log"


@pytest.mark.parametrize(
    ("spoiled", "code", "log_start_offset"),
    [(False, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0), (True, ErrorCode.CORRUPT_MESSAGE, -1)],
)
def test_rejected_batch_is_answered_with_the_log_start_where_kafka_does(
    tmp_path: Path, spoiled: bool, code: ErrorCode, log_start_offset: int
) -> None:
    partition = led(tmp_path, 0)
    context = context_of({0: partition})
    context.services.image = ClusterImage
    context.session = Session("PLAINTEXT", "127.0.0.1")
    context.services.partitions.refused = lambda *_: None

    def records(sequence: int) -> memoryview:
        fields = BatchFields(producer_id=5, producer_epoch=0, base_sequence=sequence)
        return memoryview(bytearray(encode_batch([(NOW_MS, None, b"x", ())], fields)))

    async def play() -> Any:
        handle(ProduceRequest(None, 1, 30_000, [("t", [(0, records(0))])]), context)
        partition.log.durability.finish_writes()
        second = records(7)
        if spoiled:
            second[-1] ^= 1
        return handle(ProduceRequest(None, 1, 30_000, [("t", [(0, second)])]), context)

    (parts,) = asyncio.run(play())
    answer, _ = ProduceResponse.decode(memoryview(bytes(parts)), 9, 9)
    (row,) = answer.responses[0].partition_responses
    assert (row.error_code, row.base_offset, row.log_start_offset) == (code, -1, log_start_offset)


COUNT = 9


@pytest.mark.parametrize(
    ("records", "code", "is_kept"),
    [
        (batch(b"a"), ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (batch(b"a"), ErrorCode.INVALID_TOPIC_EXCEPTION, False),
        (None, ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
    ],
)
def test_batch_that_its_producer_sends_again_is_remembered(
    records: memoryview | None, code: ErrorCode, is_kept: bool
) -> None:
    """The next batch in flight must not be appended before it."""
    remembered: list[tuple[str, int, memoryview, ErrorCode]] = []

    def require(_topic: str, _index: int) -> Partition:
        raise KafkaError(code)

    def refused(topic: str, index: int, data: memoryview, error: ErrorCode, _now_ms: int) -> None:
        remembered.append((topic, index, data, error))

    context = context_of({})
    context.services.partitions = SimpleNamespace(require=require, refused=refused)
    context.services.image = ClusterImage
    context.session = Session("PLAINTEXT", "127.0.0.1")
    (frame,) = handle(ProduceRequest(None, 1, 30_000, [("t", [(0, records)])]), context)  # type: ignore[misc, union-attr]
    decoded, _ = ProduceResponse.decode(memoryview(bytes(frame)), 9, 9)
    assert decoded.responses[0].partition_responses[0].error_code == code
    assert remembered == ([("t", 0, records, code)] if is_kept else [])


@pytest.mark.parametrize(
    ("version", "codec", "code"),
    [
        (6, Codec.ZSTD, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (6, Codec.LZ4, ErrorCode.NONE),
        (7, Codec.ZSTD, ErrorCode.NONE),
    ],
)
def test_zstd_is_accepted_from_version_7_on(tmp_path: Path, version: int, codec: Codec, code: ErrorCode) -> None:
    """The versions before promise consumers that no batch has it (KIP-110)."""
    partitions = {0: led(tmp_path, 0)}
    context = context_of(partitions)
    context.version = version
    context.services.partitions.refused = lambda *_: None
    context.services.image = ClusterImage
    context.session = Session("PLAINTEXT", "127.0.0.1")
    data = memoryview(encode_batch([(NOW_MS, None, bytes(100), ())], compression=codec))
    (frame,) = handle(ProduceRequest(None, 1, 30_000, [("t", [(0, data)])]), context)  # type: ignore[misc, union-attr]
    decoded, _ = ProduceResponse.decode(memoryview(bytes(frame)), 8, version)
    assert decoded.responses[0].partition_responses[0].error_code == code
    assert partitions[0].log.end_offset == (code is ErrorCode.NONE)


async def produced_in_slices(
    tmp_path: Path, acks: int, *, between: Callable[[dict[int, Partition]], None] = lambda _: None
) -> tuple[dict[int, Partition], list[tuple[int, ErrorCode, int]] | None]:
    """Partitions 0 to 8, of which the last one follows; the rows that are answered, None for no answer."""
    partitions = {index: led(tmp_path, index) for index in range(COUNT)}
    for partition in partitions.values():
        partition.apply_state(PartitionState(1, 1, (1,), (1,), partition_epoch=1))
    context = context_of(partitions)
    context.services.long_work = LongWork(lambda: 0.0, 0)
    context.services.partitions.refused = lambda *_: None
    context.services.image = ClusterImage
    context.session = Session("PLAINTEXT", "127.0.0.1")
    frame = bytearray()
    places = []
    for index in range(COUNT):
        data = bytes(batch(b"%d" % index))
        places.append((index, len(frame), len(frame) + len(data)))
        frame += data
    view = memoryview(frame)
    rows: list[Any] = [(index, view[start:end]) for index, start, end in places]
    waiting: Any = handle(ProduceRequest(None, acks, 30_000, [("t", rows[:5]), ("t", rows[5:])]), context)
    assert not isinstance(waiting, list)
    frame[:] = bytes(len(frame))  # the receive buffer is used again
    between(partitions)
    parts = await waiting
    if parts is None:
        return partitions, None
    answer, _ = ProduceResponse.decode(memoryview(bytes(parts[0])), 9, 9)
    assert [len(topic.partition_responses) for topic in answer.responses] == [5, 4]
    return partitions, [
        (row.index, ErrorCode(row.error_code), row.base_offset)
        for topic in answer.responses
        for row in topic.partition_responses
    ]


@pytest.mark.parametrize("acks", [1, -1])
def test_sliced_produce_answers_all_partitions_in_order(tmp_path: Path, acks: int) -> None:
    partitions, rows = asyncio.run(produced_in_slices(tmp_path, acks))
    assert rows == [(index, ErrorCode.NONE, 0) for index in range(COUNT)]
    values = [bytes(next(each.log.reader.read_batches(0, 1))[-2:-1]) for each in partitions.values()]
    assert values == [b"%d" % index for index in range(COUNT)]


def test_large_produce_for_many_partitions_is_sliced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_00_produce, "SLICED_BYTES", -1)
    monkeypatch.setattr(api_00_produce, "SLICED_PARTITIONS", COUNT - 1)
    _, rows = asyncio.run(produced_in_slices(tmp_path, 1))
    assert rows == [(index, ErrorCode.NONE, 0) for index in range(COUNT)]


class Slicing(LongWork):
    """Begins a new number for each slice."""

    __slots__ = ("_numbers",)

    def __init__(self, now: Callable[[], float], numbers: list[int]) -> None:
        super().__init__(now, 4)
        self._numbers = numbers

    def turn(self) -> asyncio.Future[None]:
        self._numbers.append(0)
        return super().turn()


async def slices_of_slow_opens(tmp_path: Path) -> list[int]:
    """How many partitions were opened in each slice of 4 ms, where opening one takes 3 ms."""
    partitions = {index: led(tmp_path, index) for index in range(20)}
    context = context_of(partitions)
    seconds, opened = 0.0, [0]
    require = context.services.partitions.require

    def slow(topic: str, index: int) -> Partition:
        nonlocal seconds
        seconds += 0.003
        opened[-1] += 1
        found: Partition = require(topic, index)
        return found

    context.services.partitions.require = slow
    context.services.long_work = Slicing(lambda: seconds, opened)
    context.session = Session("PLAINTEXT", "127.0.0.1")
    rows: list[Any] = [(index, batch(b"v")) for index in partitions]
    waiting: Any = handle(ProduceRequest(None, 1, 30_000, [("t", rows)]), context)
    await asyncio.wait_for(waiting, 30)
    return opened


def test_slices_of_produce_end_after_each_log_that_opens_slowly(tmp_path: Path) -> None:
    opened = asyncio.run(slices_of_slow_opens(tmp_path))
    assert sum(opened) == 20
    assert max(opened[1:]) == 2


def test_sliced_produce_without_acks_has_no_answer(tmp_path: Path) -> None:
    partitions, rows = asyncio.run(produced_in_slices(tmp_path, 0))
    assert rows is None
    assert [partition.log.end_offset for partition in partitions.values()] == [1] * COUNT


def test_sliced_produce_fails_partitions_that_moved_between_slices(tmp_path: Path) -> None:
    def depose(partitions: dict[int, Partition]) -> None:
        partitions[0].apply_state(PartitionState(2, 2, (1,), (1,), partition_epoch=2))
        partitions[8].apply_state(PartitionState(2, 2, (1,), (1,), partition_epoch=2))

    partitions, rows = asyncio.run(produced_in_slices(tmp_path, 1, between=depose))
    assert rows is not None
    assert [code for _, code, _ in rows] == [ErrorCode.NONE] * 8 + [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert partitions[8].log.end_offset == 0


async def waits_in_slices(tmp_path: Path) -> list[ErrorCode]:
    """With acks=all and a follower, whose leader is deposed and refilled between two slices."""
    partitions = {index: led(tmp_path, index) for index in range(COUNT)}
    context = context_of(partitions)
    context.services.long_work = LongWork(lambda: 0.0, 0)
    context.services.image = ClusterImage
    context.session = Session("PLAINTEXT", "127.0.0.1")
    rows: list[Any] = [(index, batch(b"%d" % index)) for index in partitions]
    waiting: Any = handle(ProduceRequest(None, -1, 30_000, [("t", rows)]), context)
    partitions[0].apply_state(STATE._replace(leader=2, leader_epoch=1, partition_epoch=1))
    partitions[0].replicated.truncate_to(0)
    partitions[0].replicated.append(batch(b"other"), 1, NOW_MS)
    partitions[0].replicated.advance(1, 0)
    answered = asyncio.ensure_future(waiting)
    while any(not partition.log.end_offset for partition in partitions.values()):
        await asyncio.sleep(0)
    for index in range(1, COUNT):
        partitions[index].followers.fetched(2, 1, 1, 0, 0)
    parts = await asyncio.wait_for(answered, 30)
    answer, _ = ProduceResponse.decode(memoryview(bytes(parts[0])), 9, 9)
    return [ErrorCode(row.error_code) for row in answer.responses[0].partition_responses]


def test_sliced_produce_is_not_acknowledged_when_its_partition_moved(tmp_path: Path) -> None:
    """Each slice begins to wait in the turn that appended it: the new leader's record has the same offset."""
    codes = asyncio.run(waits_in_slices(tmp_path))
    assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND] + [ErrorCode.NONE] * (COUNT - 1)


class ExaminingDisk:
    """Executes calls of lanes at once and notes them."""

    def __init__(self) -> None:
        self.lanes: list[str] = []

    async def run(self, lane: str, function: Callable[..., Any], *arguments: Any) -> Any:
        self.lanes.append(lane)
        await asyncio.sleep(0)
        return function(*arguments)


COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}))


def large_batch(key: bytes | None = b"key", fields: BatchFields | None = None) -> bytearray:
    return encode_batch([(NOW_MS, key, b"x" * 30, ())] * 1000, fields or BatchFields())


def compacted(tmp_path: Path, count: int = 1) -> tuple[dict[int, Partition], Any]:
    """Led partitions of a compacted topic, and a request's circumstances."""
    partitions = {index: led(tmp_path, index) for index in range(count)}
    for partition in partitions.values():
        partition.log.set_config(COMPACT)
        partition.apply_state(PartitionState(1, 1, (1,), (1,), partition_epoch=1))
    context = context_of(partitions)
    context.size = 100_000
    context.services.disk = ExaminingDisk()
    context.services.partitions.log_config = lambda _topic, index: partitions[index].log.config
    context.services.partitions.refused = lambda *_: None
    context.services.image = ClusterImage
    context.session = Session("PLAINTEXT", "127.0.0.1")
    return partitions, context


async def answer_of(request: ProduceRequest, context: Any) -> list[tuple[int, ErrorCode]]:
    """What is answered when the receive buffer is used again as soon as the handler has returned."""
    answer: Any = handle(request, context)
    if not isinstance(answer, list):
        for _, rows in request.topics:
            for _, records in rows:
                assert records is not None
                records[:] = bytes(len(records))
        answer = await answer
    decoded, _ = ProduceResponse.decode(memoryview(bytes(answer[0])), 9, 9)
    return [(row.index, ErrorCode(row.error_code)) for each in decoded.responses for row in each.partition_responses]


@pytest.mark.parametrize(("key", "code"), [(b"key", ErrorCode.NONE), (None, ErrorCode.INVALID_RECORD)])
def test_large_batch_of_a_compacted_topic_is_examined_apart(tmp_path: Path, key: bytes | None, code: ErrorCode) -> None:
    partitions, context = compacted(tmp_path)
    request = ProduceRequest(None, 1, 30_000, [("t", [(0, memoryview(large_batch(key)))])])
    assert asyncio.run(answer_of(request, context)) == [(0, code)]
    assert context.services.disk.lanes == ["examined batches"]
    assert partitions[0].log.end_offset == (1000 if key else 0)


def test_small_batch_of_a_compacted_topic_is_appended_at_once(tmp_path: Path) -> None:
    partitions, context = compacted(tmp_path)
    data = memoryview(encode_batch([(NOW_MS, b"key", bytes(1000), ())]))
    assert isinstance(handle(ProduceRequest(None, 1, 30_000, [("t", [(0, data)])]), context), list)
    assert partitions[0].log.end_offset == 1


def test_batch_that_the_client_may_not_write_is_not_examined(tmp_path: Path) -> None:
    _, context = compacted(tmp_path)
    context.denied = {"t"}
    request = ProduceRequest(None, 1, 30_000, [("t", [(0, memoryview(large_batch()))])])
    assert asyncio.run(answer_of(request, context)) == [(0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    assert context.services.disk.lanes == []


def test_large_batches_among_many_are_examined_apart(tmp_path: Path) -> None:
    partitions, context = compacted(tmp_path, COUNT)
    rows: list[Any] = [
        (index, memoryview(large_batch(None if index == 4 else b"key")) if index % 2 == 0 else batch(b"no key"))
        for index in partitions
    ]
    found = asyncio.run(answer_of(ProduceRequest(None, 1, 30_000, [("t", rows)]), context))
    valid = {0, 2, 6, 8}
    assert found == [(index, ErrorCode.NONE if index in valid else ErrorCode.INVALID_RECORD) for index in range(COUNT)]
    assert context.services.disk.lanes == ["examined batches"] * 5
    assert [each.log.end_offset for each in partitions.values()] == [1000 * (index in valid) for index in range(COUNT)]


def test_transaction_is_verified_after_the_examination(tmp_path: Path) -> None:
    partitions, context = compacted(tmp_path)
    lanes_before: list[int] = []

    def verify(_wanted: Any, _version: int) -> dict[Any, ErrorCode]:
        lanes_before.append(len(context.services.disk.lanes))
        return {}

    context.services.transactions = SimpleNamespace(verify_or_add=verify)
    fields = BatchFields(producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    request = ProduceRequest("id", -1, 30_000, [("t", [(0, memoryview(large_batch(fields=fields)))])])
    assert asyncio.run(answer_of(request, context)) == [(0, ErrorCode.NONE)]
    assert lanes_before == [1]
    assert partitions[0].log.end_offset == 1000
