"""A sink in Python that throws rows away: what Spark takes for any sink in Python, whatever it does.

It leaves modules out of the search for garbage after each call, as ours does: without, a batch of few rows takes some
15 ms more than with our sink.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from odradek.spark.workers import freeze_modules


class _FloorWriter(DataSourceStreamArrowWriter):
    def __getstate__(self) -> dict[str, Any]:
        freeze_modules(at_leisure=False)
        return {}

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        freeze_modules(at_leisure=True)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        freeze_modules(at_leisure=False)


class FloorDataSource(DataSource):
    """`format("floor")`, for streaming writes only. Its options are without effect."""

    @classmethod
    def name(cls) -> str:
        return "floor"

    def schema(self) -> str:
        return "key binary, value binary"

    def streamWriter(self, schema: Any, overwrite: bool) -> _FloorWriter:  # noqa: ARG002, N802 - Spark's
        return _FloorWriter()
