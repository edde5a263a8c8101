"""Topics as Arrow tables, and tables as records."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from odradek.client import AvroValues
from odradek.client.blocking_clients import BlockingProducer
from odradek.client.consumer.blocking_consumer import BlockingConsumer
from odradek.client.consumer.columns import Columns
from odradek.client.consumer.consumer import Consumer
from odradek.client.framing import framed
from odradek.client.producer.producer import Producer
from odradek.client.producer.table_writer import write_table
from odradek.client.producer.transactions import TransactionalProducer
from odradek.records.murmur import partition_for_key
from odradek.records.topic_partition import TopicPartition
from odradek.testing import BlockingBroker

SCHEMA = pa.schema([("number", pa.int64()), ("name", pa.string())])


@pytest.fixture(scope="module")
def kafka() -> Iterator[BlockingBroker]:
    with BlockingBroker() as broker:
        yield broker


async def send(address: str, table: Any, topic: str, **columns: Any) -> int:
    async with Producer(bootstrap_servers=address) as producer:
        return await producer.send_table(table, topic, **columns)


async def tables(address: str, topic: str, rows: int, *, options: Any = (), **arguments: Any) -> pa.Table:
    """The first tables of a topic that have so many rows."""
    async with Consumer(topic, bootstrap_servers=address, auto_offset_reset="earliest", **dict(options)) as consumer:
        found: list[pa.Table] = []
        async for table in consumer.arrow(**arguments):
            found.append(table)
            if sum(each.num_rows for each in found) >= rows:
                break
        return pa.concat_tables(found)


class CountingSender:
    """Takes batches and keeps them; a round's deliveries are awaited through `outcome`."""

    def __init__(self, partitions: int) -> None:
        self.config: Any = {"max_request_size": 1 << 20, "compression_type": "none", "compression_level": None}
        self.unacknowledged = self.most = self.rows = 0
        self.batches: list[int] = []
        self._partitions = partitions

    async def partitions_for(self, topic: str) -> Any:
        return [None] * self._partitions

    async def send_batch(self, topic: str, partition: int, batches: Any) -> Any:
        sizes = [len(each) for each in batches]
        self.batches += sizes
        self.unacknowledged += sum(sizes)
        self.most = max(self.most, self.unacknowledged)
        return [self._outcome(size) for size in sizes]

    async def _outcome(self, size: int) -> None:
        self.unacknowledged -= size


@pytest.mark.parametrize("key", [None, "key"])
def test_large_rows_are_sent_in_rounds_of_some_megabytes(key: str | None) -> None:
    rows, size, partitions = 4_000, 10_000, 4
    sent = pa.table({"key": [str(row) for row in range(rows)], "value": [bytes(size)] * rows})
    sender = CountingSender(partitions)
    columns = Columns("value", key, None, None, None)
    assert asyncio.run(write_table(sender, sent, "orders", columns)) == rows
    assert sum(sender.batches) > rows * size
    assert sender.unacknowledged == 0
    assert sender.most < 8 << 20
    # Batches are large all the same.
    assert len(sender.batches) < rows * size // 300_000


def test_table_comes_back_as_it_was_sent(kafka: BlockingBroker) -> None:
    topic = kafka.topic(partitions=3)
    sent = pa.table({"key": ["a", "b", None] * 100, "value": [b"%d" % number for number in range(300)]})
    assert asyncio.run(send(kafka.bootstrap_servers, sent, topic, key="key")) == 300
    read = asyncio.run(tables(kafka.bootstrap_servers, topic, 300))
    assert read.schema.names == ["topic", "partition", "key", "value", "offset", "timestamp"]
    assert set(read["topic"].to_pylist()) == {topic}
    assert sorted(read["value"].to_pylist()) == sorted(sent["value"].to_pylist())
    for key, partition in zip(read["key"].to_pylist(), read["partition"].to_pylist(), strict=True):
        assert key is None or partition == partition_for_key(key, 3)


def test_headers_timestamps_and_partitions_are_those_of_the_columns(kafka: BlockingBroker) -> None:
    topic = kafka.topic(partitions=2)
    headers = pa.array(
        [[{"key": "h", "value": b"1"}], None], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    )
    at = pa.array([1_000, 2_000], pa.timestamp("ms"))
    sent = pa.table({"v": ["x", "y"], "headers": headers, "at": at, "p": pa.array([1, 1], pa.int8())})
    names = {"value": "v", "headers": "headers", "timestamp": "at", "partition": "p"}
    asyncio.run(send(kafka.bootstrap_servers, sent, topic, **names))
    read = asyncio.run(tables(kafka.bootstrap_servers, topic, 2, include_headers=True))
    assert read["partition"].to_pylist() == [1, 1]
    assert [each.timestamp() for each in read["timestamp"].to_pylist()] == [1.0, 2.0]
    assert read["headers"].to_pylist() == [[{"key": "h", "value": b"1"}], None]


def test_several_columns_make_json_and_json_makes_columns(kafka: BlockingBroker) -> None:
    topic = kafka.topic()
    sent = pa.table({"number": [1, 2, None], "name": ["a", 'quo"te\n', "ü"], "other": [1, 2, 3]})
    asyncio.run(send(kafka.bootstrap_servers, sent, topic, value=["number", "name"]))
    kafka.produce(topic, None, '{"name": "spread\\nout",\n "more": 1}')
    read = asyncio.run(tables(kafka.bootstrap_servers, topic, 5, values=SCHEMA))
    assert read["value"].to_pylist() == [
        {"number": 1, "name": "a"},
        {"number": 2, "name": 'quo"te\n'},
        {"number": None, "name": "ü"},
        None,
        {"number": None, "name": "spread\nout"},
    ]


@pytest.mark.parametrize("value", ["{} {}", "", "[]", "7", '{"name":', b"\xff", '{"number": "one"}', '{"a":{}'])
def test_value_that_is_no_object_is_an_error_and_is_not_skipped(kafka: BlockingBroker, value: str | bytes) -> None:
    topic = kafka.topic()
    kafka.produce(topic, value, "{}")

    async def main() -> None:
        async with Consumer(topic, bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            for _ in range(2):
                with pytest.raises(ValueError, match=f"{topic}-0: a value is not"):
                    await anext(consumer.arrow(values=SCHEMA))
            assert await consumer.position(TopicPartition(topic, 0)) == 0

    asyncio.run(main())


AVRO = json.dumps({"type": "record", "name": "Row", "fields": [{"name": "number", "type": "long"}]})


def avro(number: int, schema_id: int | None = None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(AVRO)), {"number": number})
    return out.getvalue() if schema_id is None else framed(schema_id, out.getvalue())


def test_avro_values_become_columns(kafka: BlockingBroker) -> None:
    topic = kafka.topic()
    kafka.produce(topic, avro(1), None, avro(-(2**40)))
    read = asyncio.run(tables(kafka.bootstrap_servers, topic, 3, values=AvroValues(AVRO)))
    assert read["value"].to_pylist() == [{"number": 1}, None, {"number": -(2**40)}]


class Registry:
    """Notes which schemas were looked up, and in which threads."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, bool]] = []

    def schema(self, schema_id: int) -> str:
        self.asked.append((schema_id, threading.current_thread() is threading.main_thread()))
        return {5: AVRO}[schema_id]


def test_schemas_are_looked_up_once_by_id_in_a_thread(kafka: BlockingBroker) -> None:
    topic, registry = kafka.topic(partitions=2), Registry()
    kafka.produce(topic, *(avro(number, 5) for number in (1, 2)), key="one")
    kafka.produce(topic, avro(3, 5), key="other")
    read = asyncio.run(tables(kafka.bootstrap_servers, topic, 3, values=AvroValues(AVRO, schemas=registry)))
    assert sorted(each["number"] for each in read["value"].to_pylist()) == [1, 2, 3]
    assert registry.asked == [(5, False)]


def test_avro_value_that_cannot_be_read_is_not_skipped(kafka: BlockingBroker) -> None:
    topic = kafka.topic()
    kafka.produce(topic, avro(1, 6), avro(2, 5))

    async def main() -> None:
        async with Consumer(topic, bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            values = AvroValues(AVRO, schemas=Registry())
            with pytest.raises(ValueError, match=f"^{topic}-0: there is no schema with id 6"):
                await anext(consumer.arrow(values=values))
            assert await consumer.position(TopicPartition(topic, 0)) == 0
            consumer.seek(TopicPartition(topic, 0), 1)
            table = await anext(consumer.arrow(values=values))
            assert table["value"].to_pylist() == [{"number": 2}]

    asyncio.run(main())


def test_positions_and_commits_are_behind_the_table(kafka: BlockingBroker) -> None:
    topic = kafka.topic()
    kafka.produce(topic, *(str(number) for number in range(10)))

    async def main() -> None:
        options: Any = {
            "bootstrap_servers": kafka.bootstrap_servers,
            "group_id": topic,
            "auto_offset_reset": "earliest",
        }
        place = TopicPartition(topic, 0)
        async with Consumer(topic, enable_auto_commit=False, **options) as consumer:
            async for table in consumer.arrow():
                assert await consumer.position(place) == table["offset"][-1].as_py() + 1
                await consumer.commit()
                break
        async with Consumer(topic, enable_auto_commit=False, **options) as consumer:
            assert (await consumer.committed([place]))[place].offset == 10

    asyncio.run(main())


def test_tables_follow_records_of_a_poll_without_a_gap(kafka: BlockingBroker) -> None:
    topic = kafka.topic()
    kafka.produce(topic, *(str(number) for number in range(10)))

    async def main() -> None:
        async with Consumer(topic, bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            records = await consumer.poll(10_000, 3)
            assert [record.offset for record in records] == [0, 1, 2]
            table = await anext(consumer.arrow())
            assert table["offset"].to_pylist() == list(range(3, 10))

    asyncio.run(main())


def test_table_of_an_aborted_transaction_is_not_read(kafka: BlockingBroker) -> None:
    topic = kafka.topic()

    async def main() -> None:
        async with TransactionalProducer(transactional_id=topic, bootstrap_servers=kafka.bootstrap_servers) as producer:
            for text in ("aborted", "committed"):
                producer.begin()
                assert await producer.send_table(pa.table({"value": [text] * 10}), topic) == 10
                await (producer.commit() if text == "committed" else producer.abort())

    asyncio.run(main())
    options = {"isolation_level": "read_committed"}
    read = asyncio.run(tables(kafka.bootstrap_servers, topic, 10, options=options))
    assert read["value"].to_pylist() == [b"committed"] * 10
    assert asyncio.run(tables(kafka.bootstrap_servers, topic, 20)).num_rows == 20


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"key": "k"}, "the table has no column k for the key"),
        ({"value": "number"}, "column number is of type int64; the value is binary or string"),
        ({"value": []}, "no column for the value"),
        ({"value": ["number", "more"]}, "the table has no column more"),
        ({"partition": "number"}, "the topic has 1 partitions, a row asks for 7"),
        ({"timestamp": "value"}, "column value is of type string; the timestamp is milliseconds"),
    ],
)
def test_column_that_does_not_fit_is_an_error(kafka: BlockingBroker, columns: dict[str, Any], text: str) -> None:
    topic = kafka.topic()
    with pytest.raises(ValueError, match=text):
        asyncio.run(send(kafka.bootstrap_servers, pa.table({"value": ["a"], "number": [7]}), topic, **columns))
    assert kafka.records(topic) == []


def test_what_is_no_table_is_an_error(kafka: BlockingBroker) -> None:
    with pytest.raises(TypeError, match="dict is no table"):
        asyncio.run(send(kafka.bootstrap_servers, {"value": ["a"]}, "t"))


def test_tables_of_pandas_and_readers_are_taken(kafka: BlockingBroker) -> None:
    pandas = pytest.importorskip("pandas")
    topic = kafka.topic()
    table = pa.table({"value": ["a", "b"]})
    for data in (pandas.DataFrame({"value": ["a", "b"]}), table.to_batches()[0], table.to_reader()):
        assert asyncio.run(send(kafka.bootstrap_servers, data, topic)) == 2
    assert [record.value for record in kafka.records(topic)] == [b"a", b"b"] * 3


def test_blocking_faces_have_tables(kafka: BlockingBroker) -> None:
    topic = kafka.topic()
    with BlockingProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        assert producer.send_table(pa.table({"value": ["a"] * 5}), topic) == 5
    with BlockingConsumer(topic, bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        for table in consumer.arrow():
            assert table.num_rows == 5
            break
