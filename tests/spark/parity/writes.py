"""Batch writes with both connectors: the same rows and options, each into a topic of its own."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.spark.parity.data import Filler
from tests.spark.parity.outcomes import FORMATS, failure

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


def run_write(spark: Any, filler: Filler, write: Write, side: str) -> Written:
    """What the topic holds after the write."""
    there = filler.renamed()
    if write.topic_exists:
        there.topics.create(PARTITIONS, there.name("out"))
    frame = spark.range(0, 30, 1, 1).selectExpr(*(there.expand(each) for each in write.columns))
    writer = frame.write.format(FORMATS[side]).option("kafka.bootstrap.servers", there.topics.bootstrap)
    for name, value in write.options.items():
        if side == "ours" or name != "deliveryGuarantee":
            writer = writer.option(name, there.expand(value))
    try:
        writer.mode("append").save()
    except (PySparkException, Py4JJavaError) as error:
        return Written((), *failure(error, side)[-2:])
    there.wait_for_markers(there.name("out"), PARTITIONS)
    found = there.topics.read(there.name("out"), PARTITIONS, committed=True)
    records = [
        (each.partition if write.has_keys else 0, each.key, each.value, tuple(each.headers or ())) for each in found
    ]
    return Written(tuple(records if write.has_keys else sorted(records, key=str)))
