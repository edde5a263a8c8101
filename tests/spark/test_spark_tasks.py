"""How the source cuts what is there into tasks, and that these read it, without Spark."""

from typing import Any

import pytest

from odradek.spark.options import SourceOptions
from odradek.spark.source import SMALL, BatchReader
from tests.spark.support import Record, Topics

pytestmark = pytest.mark.xdist_group("spark")


def tasks(topics: Topics, topic: str, **options: str) -> list[list[tuple[int, int]]]:
    """The (partition, offset) pairs that each task reads."""
    given = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic, **options}
    reader = BatchReader(SourceOptions.parse(given, streaming=False))
    found = []
    for part in reader.partitions():
        batches: list[Any] = list(reader.read(part))
        pairs = [
            pair
            for batch in batches
            for pair in zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True)
        ]
        found.append(pairs)
    return found


def fill(topics: Topics, *sizes: int) -> str:
    topic = topics.create(len(sizes))
    topics.fill(topic, [Record(b"%d" % n, partition=p) for p, size in enumerate(sizes) for n in range(size)])
    return topic


def test_partitions_with_little_share_a_task(topics: Topics) -> None:
    topic = fill(topics, 3, 0, 5, 1)
    assert tasks(topics, topic) == [[(p, n) for p, size in enumerate((3, 0, 5, 1)) for n in range(size)]]


def test_partitions_with_much_have_tasks_of_their_own(topics: Topics) -> None:
    topic = fill(topics, SMALL + 1, 2, SMALL)
    assert [sorted({p for p, _ in task}) for task in tasks(topics, topic)] == [[0], [1], [2]]
    assert sum(len(task) for task in tasks(topics, topic)) == 2 * SMALL + 3


def test_who_asks_for_tasks_gets_them(topics: Topics) -> None:
    topic = fill(topics, 4, 4)
    assert len(tasks(topics, topic, minPartitions="2")) == 2
    assert len(tasks(topics, topic, minPartitions="4")) == 4
    assert len(tasks(topics, topic, maxRecordsPerPartition="4")) == 2
