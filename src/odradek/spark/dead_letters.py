"""Records that fail go to a topic of their own, with all that is needed to find out why and to send them again.

    attempted = attempt(stream, parse, "user string, amount double")       # parse(record) may raise
    rows = routed(attempted, topic="payments", dead_letters="payments-dlq", value=to_json("result"))
    rows.writeStream.format("odradek")...                                  # both topics in one transaction

Names of the headers are those of Kafka Connect's dead letter queues, so that tools for these know them.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from odradek.client.reports.dead_letters import (
    CLASS,
    MESSAGE,
    OFFSET,
    PARTITION,
    PREFIX,
    REDRIVES,
    STACK,
    TIMESTAMP,
    TOPIC,
)
from odradek.spark.columns import arrow_type

__all__ = [
    "CLASS", "MESSAGE", "OFFSET", "PARTITION", "PREFIX", "REDRIVES", "STACK", "TIMESTAMP", "TOPIC", "attempt",
    "error_headers", "routed",
]  # fmt: skip

ERROR_SCHEMA: Final = "struct<class:string,message:string,stack:string>"
HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"
_STACK_CHARACTERS: Final = 8_000

Function = Callable[[dict[str, Any]], Mapping[str, Any] | None]
_Outcome = tuple[dict[str, Any] | None, dict[str, str] | None]
"""A row's result or its failure; neither if it is left out."""


def attempt(frame: Any, function: Function, schema: str) -> Any:
    """The frame with two columns more: `result`, what the function makes of a row, and `error`, what it failed with.

    The function gets a row as a dict (of the source: key, value, topic, ...), and returns a mapping of the fields of
    `schema`, or None for a row that is to be left out. Whatever exception it raises is that row's `error`.
    """
    from pyspark.sql.types import StructField, StructType, _parse_datatype_string

    fields = _parse_datatype_string(schema)
    if not isinstance(fields, StructType):
        raise TypeError(f"{schema!r}: fields with names expected, such as 'user string, amount double'")
    error = _parse_datatype_string(ERROR_SCHEMA)
    whole = StructType([*frame.schema.fields, StructField("result", fields), StructField("error", error)])
    return frame.mapInArrow(_Attempt(function, arrow_type(fields), arrow_type(error)), whole)


class _Attempt:
    """What a task does with its rows."""

    def __init__(self, function: Function, result_type: Any, error_type: Any) -> None:
        self._function = function
        self._result_type = result_type
        self._error_type = error_type
        self._names = [field.name for field in result_type]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            outcomes = [self._attempt(row) for row in batch.to_pylist()]
            try:
                results = pa.array([result for result, _ in outcomes], self._result_type)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
                outcomes = [self._fitting(each) for each in outcomes]
                results = pa.array([result for result, _ in outcomes], self._result_type)
            errors = pa.array([error for _, error in outcomes], self._error_type)
            columns = [*batch.columns, results, errors]
            rows = pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, "result", "error"])
            kept = pa.array([outcome != (None, None) for outcome in outcomes], pa.bool_())
            yield rows.filter(kept)

    def _attempt(self, row: dict[str, Any]) -> _Outcome:
        try:
            result = self._function(row)
            return (None if result is None else {name: result[name] for name in self._names}), None
        except Exception as error:  # noqa: BLE001 - whatever the user's function raises is the row's failure
            return None, _described(error)

    def _fitting(self, outcome: _Outcome) -> _Outcome:
        """A result of another type than the schema's is the row's failure, too."""
        import pyarrow as pa

        result, error = outcome
        try:
            pa.scalar(result, self._result_type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as failure:
            return None, _described(failure)
        return result, error


def _described(error: Exception) -> dict[str, str]:
    kind = type(error)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    stack = "".join(traceback.format_exception(error))
    return {"class": name, "message": str(error), "stack": stack[-_STACK_CHARACTERS:]}


def routed(attempted: Any, *, topic: str, dead_letters: str, value: Any, key: Any = "key") -> Any:
    """Rows for the sink: good ones to `topic`; failed ones to `dead_letters`, as they were, with headers that say why.

    `attempted` has the source's columns and `error` (from `attempt`, or made with Spark's own functions: a struct
    `class, message, stack`, null where all is well). `value` and `key` are columns for the good rows.
    """
    from pyspark.sql import functions as f

    value = f.col(value) if isinstance(value, str) else value
    key = f.col(key) if isinstance(key, str) else key
    failed = f.col("error").isNotNull()
    own = f.col("headers") if "headers" in attempted.columns else f.lit(None).cast(HEADERS_TYPE)
    return attempted.select(
        f.when(failed, f.lit(dead_letters)).otherwise(f.lit(topic)).alias("topic"),
        f.when(failed, f.col("key")).otherwise(key.cast("binary")).alias("key"),
        f.when(failed, f.col("value")).otherwise(value.cast("binary")).alias("value"),
        f.when(failed, f.concat(f.coalesce(own, f.array().cast(HEADERS_TYPE)), error_headers())).alias("headers"),
    )


def error_headers() -> Any:
    """The headers that say where a record came from and what it failed with, of the source's columns and `error`."""
    from pyspark.sql import functions as f

    milliseconds = f.unix_millis("timestamp").cast("string")
    given = [
        (TOPIC, f.col("topic")),
        (PARTITION, f.col("partition").cast("string")),
        (OFFSET, f.col("offset").cast("string")),
        (TIMESTAMP, milliseconds),
        (CLASS, f.col("error.class")),
        (MESSAGE, f.col("error.message")),
        (STACK, f.col("error.stack")),
    ]
    return f.array(
        *(f.struct(f.lit(name).alias("key"), column.cast("binary").alias("value")) for name, column in given)
    ).cast(HEADERS_TYPE)
