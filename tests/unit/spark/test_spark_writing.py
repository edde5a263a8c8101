"""How a task's rows become batches of partitions: in rounds, each beginning with another partition per task."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.batch import parse_header
from odradek.records.compression import CODEC_NAMES
from odradek.records.murmur import partition_for_key
from odradek.records.record import decode_records
from odradek.spark import writing
from odradek.spark.options import SinkOptions
from odradek.spark.protocol import Encoded, TransactionError, checked
from odradek.spark.sink import AtLeastOnceStreamWriter, Written
from odradek.spark.writing import RowWriter

CONFIG = {"compression_type": "none", "compression_level": None, "batch_size": 524_288, "max_request_size": 8 << 20}
PARTITIONS = 3


async def _topic(_: str, _patience_ms: int) -> SimpleNamespace:
    return SimpleNamespace(partitions=range(PARTITIONS))


def rows(numbers: range) -> Any:
    keys = [b"%d" % n for n in numbers]
    return pa.RecordBatch.from_arrays([pa.array(keys), pa.array(keys)], ["key", "value"])


def written(task: int, *batches: Any) -> tuple[list[list[Encoded]], dict[tuple[str, int], int]]:
    """What was handed over in each round, and the counts."""
    rounds: list[list[Encoded]] = [[]]
    producer: Any = SimpleNamespace(config=CONFIG, cluster=SimpleNamespace(topic=_topic))

    def emit(encoded: Encoded) -> None:
        rounds[-1].append(encoded)

    writer = RowWriter(producer, "t", emit, lambda: rounds.append([]), task=task)
    for batch in batches:
        writer.add(batch)
    writer.flush()
    assert rounds.pop() == []
    return rounds, writer.counts


@pytest.mark.parametrize("task", range(4))
def test_each_task_begins_with_another_partition(task: int) -> None:
    rounds, counts = written(task, rows(range(300)))
    expected = Counter(partition_for_key(b"%d" % n, PARTITIONS) for n in range(300))
    assert [[each.partition for each in round_] for round_ in rounds] == [[(task + n) % PARTITIONS for n in range(3)]]
    assert {each.partition: each.records for each in rounds[0]} == expected
    assert counts == {("t", partition): count for partition, count in expected.items()}


FIELDS = st.none() | st.binary(max_size=70)


@given(
    st.lists(st.tuples(FIELDS, FIELDS), min_size=1, max_size=writing.FEW_ROWS),
    st.booleans(),
    st.sampled_from(sorted(CODEC_NAMES)),
)
def test_few_rows_are_encoded_as_many_are(
    fields: list[tuple[bytes | None, bytes | None]], has_keys: bool, codec: str
) -> None:
    """The same bytes for the same partitions, one by one or column by column."""
    keys, values = (pa.array(column, pa.binary()) for column in zip(*fields, strict=True))
    batch = pa.RecordBatch.from_arrays([keys, values], ["key", "value"]) if has_keys else None
    batch = batch or pa.RecordBatch.from_arrays([values], ["value"])
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(CONFIG, "compression_type", codec)
        patched.setattr("random.randrange", lambda _: 5)
        patched.setattr("time.time_ns", lambda: 1_800_000_000_000_000_000)
        few = written(1, batch)
        patched.setattr(writing, "FEW_ROWS", 0)
        assert few == written(1, batch)


def test_text_is_written_as_its_bytes() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["é"]), pa.array(["ü"])], ["key", "value"])
    (((encoded,),), _) = written(0, batch)
    (record,) = decode_records(memoryview(encoded.batches[0]), parse_header(encoded.batches[0]))
    assert (bytes(record.key or b""), bytes(record.value or b"")) == ("é".encode(), "ü".encode())


def test_rounds_end_where_enough_rows_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "ROWS_AT_ONCE", 100)
    rounds, counts = written(0, *(rows(range(start, start + 60)) for start in range(0, 300, 60)))
    assert [sum(each.records for each in round_) for round_ in rounds] == [120, 120, 60]
    assert sum(counts.values()) == 300


def test_nothing_is_no_round() -> None:
    assert written(0, rows(range(0))) == ([], {})


def test_end_of_a_batch_that_no_task_has_written_is_an_error() -> None:
    """So Spark 4.3 treats Python sinks under a continuous trigger."""
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t", "checkpointlocation": "c"}
    writer = AtLeastOnceStreamWriter(SinkOptions.parse(given, streaming=True))
    writer.commit([Written(3), Written(0)], 0)
    with pytest.raises(RuntimeError, match="continuous"):
        writer.commit([None, None], 1)
    with pytest.raises(TransactionError, match="continuous"):
        checked([None, None], 1)
