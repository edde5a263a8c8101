"""Lazy batches: lengths without decoding, columns, positions, damage."""

from __future__ import annotations

import asyncio

import pytest

from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.positions import Chunk, PartitionState
from odradek.client.consumer.record_batches import RecordBatch, take_batch
from odradek.records.batch import HEADER_SIZE, parse_header
from odradek.records.builder import BatchFields, encode_batch, finish_batch
from odradek.records.errors import CorruptRecords
from odradek.records.record import decode_records
from odradek.records.topic_partition import TopicPartition
from odradek.wire.apis import ApiKey
from tests.unit.client.consumers import filled, run, until
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.records.rebuilding import encode_record, rebuild_batch

pytestmark = pytest.mark.usefixtures("each_loop")

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ROWS = [(1_000 + number, b"key", b"value %d" % number, (("h", b"x"),)) for number in range(20)]


def batch_of(data: bytes, from_offset: int = 0) -> RecordBatch:
    view = memoryview(data)
    return RecordBatch(T0, view, 0, parse_header(view), from_offset)


def test_batch_knows_its_length_without_decoding() -> None:
    data = encode_batch(ROWS)
    data[HEADER_SIZE] ^= 0x40  # the length of the first record
    batch = batch_of(bytes(data), from_offset=5)
    assert len(batch) == 15
    with pytest.raises(CorruptRecords, match="t-0: batch at offset 0"):
        batch.values  # noqa: B018 - the look is what fails


def test_batch_after_compaction_counts_its_records() -> None:
    data = encode_batch(ROWS)
    view = memoryview(data)
    kept = decode_records(view, parse_header(view))[::4]
    batch = batch_of(bytes(rebuild_batch(parse_header(view), kept)), from_offset=1)
    assert len(batch) == 4
    assert list(batch.offsets) == [4, 8, 12, 16]


def test_batch_has_columns_and_records() -> None:
    batch = batch_of(bytes(encode_batch(ROWS, BatchFields(base_offset=100))), from_offset=118)
    assert list(batch.offsets) == [118, 119]
    assert list(batch.timestamps) == [1_018, 1_019]
    assert list(batch.keys) == [b"key", b"key"]
    assert list(batch.values) == [b"value 18", b"value 19"]
    assert [list(each) for each in batch.headers] == [[("h", b"x")]] * 2
    assert [record.value for record in batch] == list(batch.values)
    assert batch[1].offset == 119
    assert batch[-1:][0].topic_partition == batch.topic_partition


def test_views_share_the_memory_of_the_answer() -> None:
    data = encode_batch(ROWS)
    keys, values = batch_of(data).views()  # type: ignore[arg-type]  # a bytearray, to change it below
    data[data.index(b"value 7")] = ord("V")
    assert keys[7] == b"key"
    assert values[7] == b"Value 7"


def test_batches_arrive_in_order_and_move_the_position() -> None:
    cluster = filled(FakeCluster(topics={"t": 2}))

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0, T1])
        consumer.seek(T0, 6)
        seen: dict[TopicPartition, list[int]] = {T0: [], T1: []}
        async for batch in consumer.batches():
            seen[batch.topic_partition] += batch.offsets
            assert await consumer.position(batch.topic_partition) == batch.next_offset
            if all(offsets[-1:] == [19] for offsets in seen.values()):
                break
        assert seen == {T0: list(range(6, 20)), T1: list(range(20))}

    run(cluster, body)


class Turns:
    """Counts the turns of the running loop."""

    def __init__(self) -> None:
        self.count = -1
        self._turn()

    def _turn(self) -> None:
        self.count += 1
        asyncio.get_running_loop().call_soon(self._turn)


async def turns_between_batches(consumer: Consumer) -> list[int]:
    """The loop's turns since the last batch, for each batch of an answer that has six."""
    consumer.assign([T0])
    consumer.seek(T0, 0)
    assert consumer._fetcher is not None
    state = consumer._fetcher.states[T0]
    batches = [encode_batch(ROWS, BatchFields(base_offset=number * len(ROWS))) for number in range(6)]
    state.chunks.append(Chunk(memoryview(b"".join(batches)), None, 0))
    turns, found, before = Turns(), [], 0
    async for batch in consumer.batches():
        found.append(turns.count - before)
        before = turns.count
        if batch.next_offset == 6 * len(ROWS):
            break
    return found


def test_batches_of_an_answer_are_returned_in_one_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.client.consumer.consumer._TURN_S", 60.0)

    async def body(consumer: Consumer) -> None:
        assert (await turns_between_batches(consumer))[1:] == [0] * 5

    run(FakeCluster(), body)


def test_loop_turns_between_batches_after_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tasks, such as heartbeats, do not wait for the program's work on all of them."""
    monkeypatch.setattr("odradek.client.consumer.consumer._TURN_S", -1.0)

    async def body(consumer: Consumer) -> None:
        assert 0 not in (await turns_between_batches(consumer))[1:]

    run(FakeCluster(), body)


def test_batches_follow_records_that_a_poll_has_not_returned() -> None:
    cluster = filled(FakeCluster())

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        assert [each.offset for each in await consumer.poll(5_000, 2)] == [0, 1]
        async for batch in consumer.batches():
            assert batch.offsets[0] == 2
            break

    run(cluster, body)


def test_damaged_batch_is_never_passed_over_by_batches() -> None:
    state = PartitionState(T0)
    state.seek(0)
    data = encode_batch(ROWS)
    data[-1] ^= 0xFF
    for _ in range(2):
        state.chunks.append(Chunk(memoryview(data), None, 0))
        with pytest.raises(CorruptRecords, match="t-0"):
            take_batch(state, check_crcs=True)
        assert state.position == 0


def test_idle_partition_is_glanced_at_while_another_is_full() -> None:
    """A long poll for the idle one alone would keep the other from being fetched."""
    cluster = filled(FakeCluster(topics={"t": 2}), batches=1)
    for _ in range(40):
        cluster.append(cluster.brokers[1], "t", 1, bytes(encode_batch(ROWS)))

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0, T1])
        consumer.seek(T0, 4)
        assert await consumer.poll(5_000, 1)
        await until(lambda: 0 in [each.max_wait_ms for _, key, _, each in cluster.requests if key is ApiKey.FETCH])

    run(cluster, body, max_partition_fetch_bytes=800)


def test_broken_headers_raise_when_they_are_looked_at() -> None:
    section = encode_record(0, 0, b"k", b"v", b"\2\2a\x14x")
    batch = batch_of(bytes(finish_batch(section, 0, None, (1, 0, 0, 0))))
    assert list(batch.values) == [b"v"]
    assert batch[0].value == b"v"
    with pytest.raises(CorruptRecords, match="t-0: "):
        batch.headers  # noqa: B018 - the look is what fails
    with pytest.raises(CorruptRecords):
        list(batch[0].headers)
