"""Exactly-once writing from `foreachBatch`, for what the sink itself cannot do: update mode, several outputs.

def write(frame, batch_id):
    write_exactly_once(frame, batch_id, options)

query.writeStream.outputMode("update").foreachBatch(write).option("checkpointLocation", path).start()
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

from odradek.spark.datasets import WRITTEN, topic
from odradek.spark.option_names import OptionError
from odradek.spark.options import SinkOptions
from odradek.spark.sink import check_columns
from odradek.spark.speculation import refuse
from odradek.spark.transactions import (
    Begun,
    TaskReport,
    abort,
    begin,
    commit,
    is_done,
    with_output_identity,
    write_rows,
)


def write_exactly_once(frame: Any, batch_id: int, options: Mapping[str, str], *, attempts: int = 1) -> bool:
    """Write a micro-batch in one transaction, unless a transaction with its number was committed before.

    `options` are the sink's, `transactionalId` or `checkpointLocation` among them. A batch may be written to several
    topics, one call for each: a `transactionalId` is for one of them. More than one attempt runs the
    frame's plan again in place, which only suits queries without state. Returns whether rows were written now. Raises
    OptionError, TransactionError, or what the last attempt failed with; nothing of the batch is visible then.
    """
    given = SinkOptions.parse({name.lower(): value for name, value in options.items()}, streaming=True)
    if not given.exactly_once:
        raise OptionError("deliveryGuarantee=at-least-once: use frame.write for that")
    check_columns(frame.schema, given.topic)
    given = with_output_identity(given)
    context = frame.sparkSession.sparkContext
    refuse(context.getConf().get("spark.speculation", "false"))
    if given.topic is not None:
        WRITTEN.note(frame, topic(given.client, given.topic))
    query_id = context.getLocalProperty("sql.streaming.queryId") or ""
    for attempt in range(max(1, attempts)):
        begun = begin(given, os.getpid(), session=frame.sparkSession)
        if is_done(begun, batch_id, query_id):
            return False
        try:
            rows = frame.mapInArrow(_Task(given, begun, batch_id, query_id), "report binary").collect()
            reports = [pickle.loads(each.report) for each in rows]  # noqa: S301 - made by our own tasks
            commit(given, reports, batch_id, frame.sparkSession)
            return True
        except Exception:
            abort(given)
            if attempt + 1 >= attempts:
                raise
    return False


class _Task:
    """What a task does with its rows."""

    def __init__(self, options: SinkOptions, begun: Begun, batch_id: int, query_id: str) -> None:
        self._options = options
        self._begun = begun
        self._batch_id = batch_id
        self._query_id = query_id

    def __call__(self, rows: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        counts = write_rows(self._options, self._begun, context.partitionId(), rows)
        report = TaskReport(self._begun, self._batch_id, self._query_id, counts)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(report)], pa.binary())], ["report"])
