"""Exactly-once writing from `foreachBatch`, for what the sink itself cannot do: update mode, several outputs.

def write(frame, batch_id):
    write_exactly_once(frame, batch_id, options)

query.writeStream.outputMode("update").foreachBatch(write).option("checkpointLocation", path).start()
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

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
    transactional_id,
    with_output_identity,
    write_rows,
)


def write_exactly_once(frame: Any, batch_id: int, options: Mapping[str, str], *, attempts: int = 1) -> bool:
    """Write a micro-batch in one transaction, unless a transaction with its number was committed before.

    `options` are the sink's, `transactionalId` or `checkpointLocation` among them. A batch may be written to several
    topics, one call for each: a `transactionalId` is for one of them. Within a run of a query, a further call for the
    same batch is another attempt if its frame has the same plan, and else an error. More than one attempt runs the
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
    if not query_id:
        return _write(frame, batch_id, given, query_id, attempts)
    run_id = context.getLocalProperty("spark.jobGroup.id") or ""
    output = _Output(query_id, run_id, batch_id, frame.semanticHash())
    _OUTPUTS.check(given, output)
    was_written = _write(frame, batch_id, given, query_id, attempts)
    _OUTPUTS.add(given, output)
    return was_written


def _write(frame: Any, batch_id: int, given: SinkOptions, query_id: str, attempts: int) -> bool:
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
            abort(given, begun)
            if attempt + 1 >= attempts:
                raise
    return False


class _Output(NamedTuple):
    """What a call writes in a run of a query."""

    query_id: str
    run_id: str
    batch_id: int
    plan: int
    """Equal for frames that are made in the same way of the same batch."""


class _Outputs:
    """The last output under each transactional id that is written: the id has one for each batch."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], _Output] = {}

    def check(self, options: SinkOptions, output: _Output) -> None:
        """Raises OptionError for another output of a batch, which would be taken for written."""
        before = self._last.get(self._key(options))
        if before is not None and before[:-1] == output[:-1] and before.plan != output.plan:
            place = "the same topic" if options.topic is None else options.topic
            raise OptionError(
                f"write_exactly_once writes other rows of batch {output.batch_id} to {place} a second time, and they "
                "would be taken for written: write the union of both, or give each a transactionalId of its own"
            )

    def add(self, options: SinkOptions, output: _Output) -> None:
        """Note an output that is committed."""
        self._last[self._key(options)] = output

    def _key(self, options: SinkOptions) -> tuple[str, str]:
        return dict(options.client)["bootstrap_servers"], transactional_id(options)


_OUTPUTS: Final = _Outputs()
"""Those of this process."""


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
