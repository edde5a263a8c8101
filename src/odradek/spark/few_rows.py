"""The rows of a small micro-batch, read beside the driver and handed to Spark with the plan of the micro-batch.

Otherwise Java lets another Python process read them in the task, which takes longer than anything else about them. From
readers that Spark calls simple it accepts rows with the plan. It keeps them as a block, and a task reads its partition
as usual where the block is lost. Spark recognises such a reader by its class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from odradek.spark.offsets import OffsetRange
from odradek.spark.options import SourceOptions

try:
    from pyspark.sql import datasource_internal
except ImportError:  # another PySpark: tasks read all rows
    datasource_internal = None

SimpleReader: Final[Any] = getattr(datasource_internal, "_SimpleStreamReaderWrapper", None)
"""The class by which Spark recognises a reader that has rows; None if it has no such class."""

FEW_BYTES: Final = 1024 * 1024
"""More are left to tasks: they are not to pass through the driver."""


def read_few(options: SourceOptions, ranges: Sequence[OffsetRange]) -> list[Any] | None:
    """Record batches of all records in the ranges, or None if they are large. Raises as `reading.read_ranges`."""
    from odradek.spark.reading import read_ranges

    found: list[Any] = []
    for each in read_ranges(options, ranges):
        found.append(each)
        if sum(rows.nbytes for rows in found) > FEW_BYTES:
            return None
    return found
