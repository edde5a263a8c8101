"""The sink's writers: batch and micro-batch, at least once; `exactly_once` holds the transactional ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructType

from odradek.spark.options import OptionError, SinkOptions


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
    from odradek.spark.writing import PRODUCER_DEFAULTS, RowWriter

    key = tuple(sorted({**PRODUCER_DEFAULTS, **dict(options.client)}.items()))
    writer = RowWriter(clients.producer(key), options.topic)
    try:
        for batch in rows:
            writer.add(batch)
        writer.flush()
    except BaseException:
        # Whatever it still holds belongs to a task that will be tried again.
        clients.drop_producer(key)
        raise
    return Written(sum(writer.counts.values()))


class AtLeastOnceBatchWriter(DataSourceArrowWriter):
    """A failed job leaves what its tasks had written, as Spark's own sink does."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _write(self._options, iterator)


class AtLeastOnceStreamWriter(DataSourceStreamArrowWriter):
    """A micro-batch that is tried again is written again."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _write(self._options, iterator)


def batch_writer(options: SinkOptions, schema: Any, overwrite: bool) -> DataSourceWriter:
    """Raises OptionError."""
    if overwrite:
        raise OptionError("a topic cannot be overwritten; the save mode must be append")
    check_columns(schema, options.topic)
    return AtLeastOnceBatchWriter(options)


def stream_writer(options: SinkOptions, schema: Any) -> DataSourceStreamWriter:
    """Raises OptionError."""
    check_columns(schema, options.topic)
    return AtLeastOnceStreamWriter(options)
