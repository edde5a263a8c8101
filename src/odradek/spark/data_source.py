"""`format("odradek")`: the face that Spark sees. Imports nothing heavy: every Spark application imports it once."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

BASE_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
HEADERS_SCHEMA = "headers array<struct<key:string,value:binary>>"


class OdradekDataSource(DataSource):
    """Kafka topics as tables and streams; options and schema are those of Spark's own Kafka source and sink."""

    @classmethod
    def name(cls) -> str:
        """The format's name in `spark.read.format`."""
        return "odradek"

    def schema(self) -> str:
        """The columns of Spark's Kafka source, as DDL."""
        from odradek.spark.options import read_flag

        with_headers = read_flag(self.options, "includeHeaders", default=False)
        return f"{BASE_SCHEMA}, {HEADERS_SCHEMA}" if with_headers else BASE_SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        """A reader of a batch query. Raises OptionError."""
        from odradek.spark.options import SourceOptions
        from odradek.spark.source import BatchReader

        return BatchReader(SourceOptions.parse(self.options, streaming=False))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader of a streaming query; one that raises OptionError when it is used, if an option is wrong."""
        from odradek.spark.option_names import OptionError
        from odradek.spark.options import SourceOptions
        from odradek.spark.source import RejectedReader, StreamReader

        try:
            return StreamReader(SourceOptions.parse(self.options, streaming=True))
        except OptionError as error:
            return RejectedReader(error)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        """A writer of a batch query. Raises OptionError."""
        from odradek.spark.options import SinkOptions
        from odradek.spark.sink import batch_writer

        return batch_writer(SinkOptions.parse(self.options, streaming=False), schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's
        """A writer of a streaming query. Raises OptionError."""
        from odradek.spark.options import SinkOptions
        from odradek.spark.sink import stream_writer

        return stream_writer(SinkOptions.parse(self.options, streaming=True), schema)
