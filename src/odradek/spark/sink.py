"""The sink's writers, batch and micro-batch, at least once and exactly once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructType

from odradek.spark.option_names import OptionError
from odradek.spark.options import SinkOptions
from odradek.spark.speculation import refuse_here
from odradek.spark.workers import freeze_modules, keep_memory

NOT_WRITTEN: Final = (
    "Spark ends a batch whose rows no task has written; trigger(continuous=...) does not write to Python sinks"
)


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task reports: how many records were acknowledged."""

    records: int


def check_columns(schema: Any, topic: str | None) -> None:
    """Raise OptionError unless the columns are what can be written: those of Spark's own Kafka sink."""
    fields = {field.name: field.dataType for field in schema.fields}
    if topic is None and "topic" not in fields:
        raise OptionError("there is no topic: give the option topic, or rows with a column topic")
    if "value" not in fields:
        raise OptionError("rows need a column value")
    text = (StringType, BinaryType)
    for name, kinds in (("topic", (StringType,)), ("key", text), ("value", text), ("partition", (IntegerType,))):
        if name in fields and not isinstance(fields[name], kinds):
            allowed = " or ".join(kind().simpleString() for kind in kinds)
            raise OptionError(f"column {name} is {fields[name].simpleString()}, not {allowed}")
    if "headers" in fields and not _are_headers(fields["headers"]):
        raise OptionError(
            f"column headers is {fields['headers'].simpleString()}, not array<struct<key:string,value:binary>>"
        )


def _are_headers(kind: Any) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]


def _write(options: SinkOptions, rows: Iterator[Any]) -> Written:
    """Write a task's rows with an idempotent producer that the process keeps."""
    from odradek.spark import clients
    from odradek.spark.protocol import Encoded
    from odradek.spark.writing import PRODUCER_DEFAULTS, RowWriter

    keep_memory()
    key = tuple(sorted({**PRODUCER_DEFAULTS, **dict(options.client)}.items()))
    producer = clients.producer(key)

    def send(each: Encoded) -> None:
        clients.run(producer.send_batch(each.topic, each.partition, each.batches))

    writer = RowWriter(producer, options.topic, send, lambda: None)
    try:
        for batch in rows:
            writer.add(batch)
        writer.flush()
        clients.run(producer.flush())
    except BaseException:
        # Whatever it still holds belongs to a task that will be tried again.
        clients.drop_producer(key)
        raise
    freeze_modules(at_leisure=True)
    return Written(sum(writer.counts.values()))


class AtLeastOnceBatchWriter(DataSourceArrowWriter):
    """A failed job leaves what its tasks had written, as Spark's own sink does."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of a task and wait for their acknowledgements."""
        return _write(self._options, iterator)


class AtLeastOnceStreamWriter(DataSourceStreamArrowWriter):
    """A micro-batch that is tried again is written again."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of a task and wait for their acknowledgements."""
        return _write(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Raise RuntimeError unless all tasks have written: with a continuous trigger Spark drops the rows."""
        if None in messages:
            raise RuntimeError(NOT_WRITTEN)


@dataclass(frozen=True)
class Reported(WriterCommitMessage):
    """A task's report within a transaction."""

    report: Any


class ExactlyOnceBatchWriter(DataSourceArrowWriter):
    """All rows of a write become visible at once, or none: one transaction, begun when Spark pickles the writer.

    A job that fails, or whose driver dies, leaves nothing that a read-committed reader sees. Writing again is a new
    write: whether the one before was committed is for the one who asks to know.
    """

    def __init__(self, options: SinkOptions) -> None:
        from odradek.spark.transactions import with_identity

        self._options = with_identity(options)
        self._begun: Any = None

    def __getstate__(self) -> dict[str, Any]:
        from odradek.spark.transactions import begin

        if self._begun is None:
            self._begun = begin(self._options, os.getppid(), batches=False)
        return {"_options": self._options, "_begun": self._begun}

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of a task within the transaction of the write."""
        from pyspark import TaskContext

        from odradek.spark.transactions import NO_BATCH, TaskReport, write_rows

        context = TaskContext.get()
        assert context is not None
        counts = write_rows(self._options, self._begun, context.partitionId(), iterator)
        return Reported(TaskReport(self._begun, NO_BATCH, "", counts))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the transaction of the write."""
        from odradek.spark.transactions import commit

        commit(self._options, _reports(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the transaction of the write."""
        from odradek.spark.transactions import give_up

        give_up(self._options, self._begun)


def _reports(messages: list[WriterCommitMessage | None]) -> list[Any]:
    return [each.report if isinstance(each, Reported) else None for each in messages]


class ExactlyOnceStreamWriter(DataSourceStreamArrowWriter):
    """A micro-batch becomes visible whole, with its number, or not at all; one that is run again is skipped if it was.

    Spark makes a new writer for every micro-batch and pickles it, twice, before the tasks start: that is where the
    transaction begins. Commit and abort run in another process, on another object; only the reports connect them.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._begun: Any = None

    def __getstate__(self) -> dict[str, Any]:
        from odradek.spark.transactions import begin

        if self._begun is None:
            # The parent is Spark's daemon of Python workers, or Java itself: the leases live as long.
            self._begun = begin(self._options, os.getppid())
        return {"_options": self._options, "_begun": self._begun}

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of a task within the transaction of the micro-batch."""
        from pyspark import TaskContext

        from odradek.spark.transactions import TaskReport, is_done, write_rows

        context = TaskContext.get()
        assert context is not None
        batch_id = int(_property(context, "streaming.sql.batchId"))
        query_id = _property(context, "sql.streaming.queryId")
        counts = None
        if not is_done(self._begun, batch_id, query_id):
            counts = write_rows(self._options, self._begun, context.partitionId(), iterator)
        return Reported(TaskReport(self._begun, batch_id, query_id, counts))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit the micro-batch, unless an earlier attempt has committed it."""
        from odradek.spark.transactions import commit

        commit(self._options, _reports(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Abort the micro-batch."""
        from odradek.spark.transactions import abort

        begun = next((each.report.begun for each in messages if isinstance(each, Reported)), None)
        abort(self._options, begun)


def _property(context: Any, name: str) -> str:
    value = context.getLocalProperty(name)
    if value is None:
        raise RuntimeError(f"this Spark does not pass {name} to its tasks: use deliveryGuarantee=at-least-once")
    return str(value)


def batch_writer(options: SinkOptions, schema: Any, overwrite: bool) -> DataSourceWriter:
    """Raises OptionError."""
    if overwrite:
        raise OptionError("a topic cannot be overwritten; the save mode must be append")
    check_columns(schema, options.topic)
    if not options.exactly_once:
        return AtLeastOnceBatchWriter(options)
    refuse_here()
    return ExactlyOnceBatchWriter(options)


def stream_writer(options: SinkOptions, schema: Any) -> DataSourceStreamWriter:
    """Raises OptionError."""
    check_columns(schema, options.topic)
    if not options.exactly_once:
        return AtLeastOnceStreamWriter(options)
    refuse_here()
    return ExactlyOnceStreamWriter(options)
