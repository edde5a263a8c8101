"""Functions of whole Arrow columns as functions of Spark's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def column_function(function: Callable[[Any], Any], returns: str) -> Any:
    """A function from an Arrow array to another of the same length, for use on columns. It goes to executors."""
    from pyspark.sql import functions as f

    def call(values: Any) -> Any:
        return function(values)

    return f.arrow_udf(call, returnType=returns, functionType=f.ArrowUDFType.SCALAR)


def arrow_type(ddl: str) -> Any:
    """The Arrow type that Spark wants for a type in its own words; only the driver can tell."""
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import _parse_datatype_string

    return to_arrow_type(_parse_datatype_string(ddl))
