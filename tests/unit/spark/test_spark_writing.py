"""How a task's rows become batches of partitions: in rounds, each beginning with another partition per task."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from odradek.records.murmur import partition_for_key
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
