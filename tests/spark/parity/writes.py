"""Writes with both connectors, as batches and as streams: the same rows and options, each into a topic of its own."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.spark.parity.data import Filler
from tests.spark.parity.outcomes import FORMATS, failure
from tests.spark.support import run_to_end

PARTITIONS: Final = 4
"""As many as brokers give a topic that they create for a producer."""


class Write(NamedTuple):
    """Columns as SQL over the numbers from 0 to 29 in `id`, and options. `$out` stands for the topic."""

    name: str
    columns: tuple[str, ...]
    options: Mapping[str, str] = {"topic": "$out"}
    has_keys: bool = True
    """Whether keys decide on the partitions. Records without one may be anywhere."""
    topic_exists: bool = True


class Written(NamedTuple):
    """The records that a write left, or what it failed with."""

    records: tuple[tuple[Any, ...], ...] = ()
    error: str = ""
    message: str = ""

    def difference(self, other: "Written") -> str:
        """What differs, official first; nothing if the two are equal."""
        if self.error != other.error:
            return f"error {self.error or 'none'!r} and {other.error or 'none'!r}:\n{self.message}\n--\n{other.message}"
        return "" if self.records == other.records else f"records {self.records[:40]}\nand {other.records[:40]}"


_VALUE: Final = "cast(concat('v', id) as binary) value"
_KEY: Final = "cast(concat('k', id) as binary) key"
_HEADER: Final = (
    "array(struct('a' as key, cast(concat('h', id) as binary) as value), struct('a' as key, null as value))"
)
_NULL_HEADER: Final = "array(struct(if(id = 3, null, 'a') as key, cast('h' as binary) as value))"
_QUICK: Final = {"kafka.delivery.timeout.ms": "6000", "kafka.request.timeout.ms": "3000", "kafka.max.block.ms": "4000"}

WRITES: Final = [
    Write("write: keys and values", (_KEY, _VALUE)),
    Write("write: strings", ("concat('k', id) key", "concat('v', id) value")),
    Write("write: only values", (_VALUE,), has_keys=False),
    Write("write: tombstones", (_KEY, "cast(null as binary) value")),
    Write("write: empty keys and values", ("cast('' as binary) key", "'' value")),
    Write("write: some keys are null", ("if(id % 2 = 0, null, 'k') key", _VALUE), has_keys=False),
    Write("write: a column names the topic", (_KEY, _VALUE, "'$out' topic"), {}),
    Write("write: the option wins over the column", (_KEY, _VALUE, "'elsewhere' topic")),
    Write("write: partitions", (_VALUE, _KEY, "cast(id % 2 as int) partition")),
    Write("write: some partitions are null", (_KEY, _VALUE, "if(id % 2 = 0, null, 1) partition")),
    Write("write: headers", (_KEY, _VALUE, f"{_HEADER} headers"), {"topic": "$out", "includeHeaders": "true"}),
    Write("write: headers without includeHeaders", (_KEY, _VALUE, f"{_HEADER} headers")),
    Write("write: headers are null", (_KEY, _VALUE, f"if(id < 3, {_HEADER}, null) headers")),
    Write("write: no headers in the array", (_KEY, _VALUE, f"filter({_HEADER}, each -> false) headers")),
    Write("write: a header's key is null", (_KEY, _VALUE, f"{_NULL_HEADER} headers")),
    Write("write: a header is null", (_KEY, _VALUE, "array(cast(null as struct<key:string,value:binary>)) headers")),
    Write("write: other columns", (_KEY, _VALUE, "id", "1.5 ratio")),
    Write("write: timestamp columns have no effect", (_KEY, _VALUE, "timestamp_millis(5) timestamp", "7L offset")),
    Write("write: names in capitals", ("concat('k', id) KEY", "concat('v', id) Value")),
    Write("write: compressed", (_KEY, _VALUE), {"topic": "$out", "kafka.compression.type": "zstd"}),
    Write("write: acks 1", (_KEY, _VALUE), {"topic": "$out", "kafka.acks": "1", "deliveryGuarantee": "at-least-once"}),
    Write("write: the topic is created by the broker", (_KEY, _VALUE), topic_exists=False),
    Write("write: no value", (_KEY,)),
    Write("write: no topic", (_KEY, _VALUE), {}),
    Write("write: a topic is null", (_VALUE, "if(id = 3, null, '$out') topic"), {}),
    Write("write: the value is a number", (_KEY, "id value")),
    Write("write: the key is a number", ("id key", _VALUE)),
    Write("write: the topic is a number", (_VALUE, "id topic"), {}),
    Write("write: the partition is a string", (_VALUE, "'1' partition")),
    Write("write: the partition is a bigint", (_VALUE, "id % 2 partition")),
    Write("write: headers are strings", (_VALUE, "'a' headers")),
    Write("write: a partition that does not exist", (_VALUE, "9 partition"), {"topic": "$out", **_QUICK}),
    Write("write: a negative partition", (_VALUE, "-1 partition")),
    Write("write: a value beyond max.request.size", ("repeat('x', 2000000) value",)),
    Write("write: key.serializer is Spark's", (_VALUE,), {"topic": "$out", "kafka.key.serializer": "x.Y"}),
    Write("write: value.serializer is Spark's", (_VALUE,), {"topic": "$out", "kafka.value.serializer": "x.Y"}),
    Write("write: no brokers", (_VALUE,), {"topic": "$out", "kafka.bootstrap.servers": ""}),
    Write("write: acks are nonsense", (_VALUE,), {"topic": "$out", "kafka.acks": "some"}),
]


_STREAMED: Final = (
    "keys and values", "only values", "tombstones", "empty keys and values", "a column names the topic",
    "the option wins over the column", "partitions", "some partitions are null", "headers", "headers are null",
    "no headers in the array", "a header's key is null", "timestamp columns have no effect", "compressed",
    "the topic is created by the broker", "no value", "no topic", "a topic is null", "the value is a number",
    "headers are strings", "a partition that does not exist", "a negative partition",
    "a value beyond max.request.size", "acks are nonsense",
)  # fmt: skip
STREAMED: Final = [each for each in WRITES if each.name.removeprefix("write: ") in _STREAMED]
"""The writes that are done by streaming queries, too."""


def run_write(spark: Any, filler: Filler, write: Write, side: str) -> Written:
    """What the topic holds after the write."""

    def save(there: Filler, options: Mapping[str, str]) -> None:
        frame = spark.range(0, 30, 1, 1).selectExpr(*(there.expand(each) for each in write.columns))
        frame.write.format(FORMATS[side]).options(**options).mode("append").save()

    return _run(filler, write, side, save)


def stream_write(spark: Any, filler: Filler, write: Write, side: str, home: Path) -> Written:
    """What the topic holds after a query has written ten rows in each of three micro-batches, one of them later."""
    numbers = home / "numbers"

    def save(there: Filler, options: Mapping[str, str]) -> None:
        for first in (0, 10, 20):
            numbers.mkdir(parents=True, exist_ok=True)
            (numbers / f"{first}.json").write_text("".join(f'{{"id": {first + n}}}\n' for n in range(10)))
            # Spark takes files in the order of their times
            os.utime(numbers / f"{first}.json", (first, first))
            if first:
                frame = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", "1").json(str(numbers))
                writer = frame.selectExpr(*(there.expand(each) for each in write.columns)).writeStream
                writer = writer.format(FORMATS[side]).options(**options).trigger(availableNow=True)
                run_to_end(writer.option("checkpointLocation", str(home / "checkpoint")).start)

    return _run(filler, write, side, save)


def _run(filler: Filler, write: Write, side: str, save: Callable[[Filler, Mapping[str, str]], None]) -> Written:
    there = filler.renamed()
    if write.topic_exists:
        there.topics.create(PARTITIONS, there.name("out"))
    given = {name: each for name, each in write.options.items() if side == "ours" or name != "deliveryGuarantee"}
    options = {"kafka.bootstrap.servers": there.topics.bootstrap, **given}
    try:
        save(there, {name: there.expand(each) for name, each in options.items()})
    except (PySparkException, Py4JJavaError) as error:
        return Written((), *failure(error, side)[-2:])
    there.wait_for_markers(there.name("out"), PARTITIONS)
    found = there.topics.read(there.name("out"), PARTITIONS, committed=True)
    records = [
        (each.partition if write.has_keys else 0, each.key, each.value, tuple(each.headers or ())) for each in found
    ]
    return Written(tuple(records if write.has_keys else sorted(records, key=str)))
