"""What a query came to: its schema and rows, or the kind of its error. Kinds are words for both connectors."""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

FORMATS: Final = {"official": "kafka", "ours": "odradek"}

KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "no record at a timestamp": ("No offset matched from request", "has no record at or after timestamp"),
    "start after end": (
        r"start offset \d+ is greater than the",
        r"the start offset \d+ is greater than the end offset",
    ),
    "missing topic": ("UnknownTopicOrPartitionException", r"topic \S+ does not exist"),
    "positions of other partitions": (
        "don't match what are assigned|must specify all TopicPartitions",
        "must name every partition of the query",
    ),
    "data loss": (
        "Some data may have been lost|Could not read records in offset|OffsetOutOfRangeException",
        "some data may have been missed|lies beyond the end of the log|the topic was deleted or records expired",
    ),
    "too large": ("RecordTooLargeException", "MESSAGE_TOO_LARGE"),
    "no such partition": ("not present in metadata after|Invalid partition: -", r"a row asks for -?\d+"),
    "null header": ('Cannot invoke ".*(UTF8String|InternalRow|UnsafeRow)\\.', "a header and its key may not be null"),
    "null topic": ("contains a null topic", "a row has a null topic"),
    "option": (
        (
            "options (must|can) be specified|No topics to subscribe to|Pattern to subscribe is empty|Unclosed group"
            "|No topicpartitions to assign|ConfigException|can't be (latest|earliest) for batch|AssertionError"
            "|Expected e\\.g\\.|Expected a single long|No value found for|must be positive|For input string"
            "|Required attribute|attribute unsupported type|topic option required"
            "|is not supported|not valid in streaming|is higher than the maxOffsetsPerTrigger|Failed to parse time"
        ),
        r"(OptionError|ConfigError): (?!(.|\n)*UnboundLocalError)",
    ),
}
"""Kind of error, and what says so in the official connector's message and in ours."""


class Outcome(NamedTuple):
    """A query's schema, rows by topic, partition and offset, and tasks where they count; or what it failed with."""

    schema: Any = None
    rows: pa.Table | None = None
    in_order: bool = True
    """Whether rows of one partition came in the order of their offsets."""
    tasks: int | None = None
    error: str = ""
    message: str = ""
    """The error in full, for people."""

    def difference(self, other: "Outcome") -> str:
        """The first thing that differs, official first; nothing if the two are equal."""
        if self.error != other.error:
            return f"error {self.error or 'none'!r} and {other.error or 'none'!r}:\n{self.message}\n--\n{other.message}"
        for name in ("schema", "in_order", "tasks"):
            if getattr(self, name) != getattr(other, name):
                return f"{name} {getattr(self, name)} and {getattr(other, name)}"
        return "" if self.rows is None or other.rows is None else _difference(self.rows, other.rows)


def outcome_of(frame: Any, *, counts_tasks: bool = False) -> Outcome:
    """Run a batch query that has been described. Raises what it fails with."""
    rows = frame.toArrow()
    by_partition = [("topic", "ascending"), ("partition", "ascending")]
    order = pc.sort_indices(rows, sort_keys=[*by_partition, ("offset", "ascending")])
    came = rows["offset"].take(pc.sort_indices(rows, sort_keys=by_partition))
    ordered = rows.take(order).combine_chunks()
    tasks = frame.rdd.getNumPartitions() if counts_tasks else None
    return Outcome(frame.schema.jsonValue(), ordered, came.equals(ordered["offset"]), tasks)


def failure(error: Exception, side: str) -> Outcome:
    """The outcome of a query that failed; `side` is official or ours."""
    message = full_message(error)
    return Outcome(error=kind_of(message, side), message=message)


def full_message(error: Exception) -> str:
    """The message, and in Java those of the causes."""
    if isinstance(error, Py4JJavaError):
        java = error.java_exception
        parts: list[str] = []
        while java is not None and len(parts) < 10:
            parts.append(str(java.toString()))
            java = java.getCause()
        return "\n".join(parts)
    assert isinstance(error, PySparkException), error
    return str(error)


def kind_of(message: str, side: str) -> str:
    """The kind of an error; the first line of the message where the table of kinds has none."""
    column = list(FORMATS).index(side)
    for kind, patterns in KINDS.items():
        if patterns[column] and re.search(patterns[column], message):
            return kind
    return f"unknown to KINDS: {message[:300]}"


def _difference(official: pa.Table, ours: pa.Table) -> str:
    if official.num_rows != ours.num_rows:
        place = ["topic", "partition", "offset"]
        there, here = (set(map(tuple, map(dict.values, each.select(place).to_pylist()))) for each in (official, ours))
        return (
            f"{official.num_rows} and {ours.num_rows} rows; only there: {sorted(there - here)[:5]}, "
            f"only here: {sorted(here - there)[:5]}"
        )
    for name in official.column_names:
        if official[name].type != ours[name].type:
            return f"type of {name}: {official[name].type} and {ours[name].type}"
        if not official[name].equals(ours[name]):
            pairs = zip(official[name].to_pylist(), ours[name].to_pylist(), strict=True)
            at, (there_, here_) = next((n, pair) for n, pair in enumerate(pairs) if pair[0] != pair[1])
            return f"row {at}, {name}: {there_!r} and {here_!r}"
    return ""
