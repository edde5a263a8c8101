"""Functions of whole Arrow columns as functions of Spark's, and the Arrow types that these have to return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def column_function(function: Callable[[Any], Any], returns: str) -> Any:
    """A function from an Arrow array to another of the same length, for use on columns. It goes to executors."""
    import pyarrow as pa
    from pyspark.sql import functions as f

    def call(values: Any) -> Any:
        return function(values)

    # by which Spark knows what kind of function it is
    call.__annotations__.update({"values": pa.Array, "return": pa.Array})
    return f.arrow_udf(call, returnType=returns)


def array_of(values: list[Any], kind: Any, *, permissive: bool) -> Any:
    """The values as an Arrow array; those that do not fit its type are null if `permissive`. Raises ValueError."""
    import pyarrow as pa

    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError) as error:
        if not permissive:
            raise ValueError(f"a value does not fit the type {kind}: {error}") from error
    return pa.array([each if _fits(each, kind) else None for each in values], kind)


def _fits(value: Any, kind: Any) -> bool:
    import pyarrow as pa

    try:
        pa.array([value], kind)
    except (pa.ArrowException, OverflowError):
        return False
    return True


def arrow_type(kind: Any) -> Any:
    """The Arrow type that Spark wants for a type of its own, or for one in its own words (with a session only).

    Raises TypeError for a type that has none.
    """
    import pyarrow as pa
    from pyspark.sql import types as t

    if isinstance(kind, str):
        kind = t._parse_datatype_string(kind)
    simple = {
        t.BooleanType: pa.bool_(), t.ByteType: pa.int8(), t.ShortType: pa.int16(), t.IntegerType: pa.int32(),
        t.LongType: pa.int64(), t.FloatType: pa.float32(), t.DoubleType: pa.float64(), t.StringType: pa.string(),
        t.BinaryType: pa.binary(), t.DateType: pa.date32(), t.TimestampType: pa.timestamp("us", "UTC"),
        t.TimestampNTZType: pa.timestamp("us"),
    }  # fmt: skip
    if type(kind) in simple:
        return simple[type(kind)]
    if isinstance(kind, t.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, t.ArrayType):
        return pa.list_(arrow_type(kind.elementType))
    if isinstance(kind, t.MapType):
        return pa.map_(arrow_type(kind.keyType), arrow_type(kind.valueType))
    if isinstance(kind, t.StructType):
        return pa.struct([pa.field(each.name, arrow_type(each.dataType)) for each in kind.fields])
    raise TypeError(f"{kind.simpleString()} is not supported here")
