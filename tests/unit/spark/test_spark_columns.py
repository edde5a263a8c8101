import pyarrow as pa
import pytest
from pyspark.sql import types as t

from odradek.spark.columns import arrow_type


def test_arrow_types_are_those_that_spark_takes() -> None:
    fields = [
        t.StructField("at", t.TimestampType()),
        t.StructField("local", t.TimestampNTZType()),
        t.StructField("price", t.DecimalType(9, 2)),
        t.StructField("tags", t.ArrayType(t.StringType())),
        t.StructField("counts", t.MapType(t.StringType(), t.ShortType())),
        t.StructField("inner", t.StructType([t.StructField("day", t.DateType())])),
    ]
    expected = pa.struct(
        [
            ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("price", pa.decimal128(9, 2)),
            ("tags", pa.list_(pa.string())),
            ("counts", pa.map_(pa.string(), pa.int16())),
            ("inner", pa.struct([("day", pa.date32())])),
        ]
    )
    assert arrow_type(t.StructType(fields)) == expected
    with pytest.raises(TypeError, match="void"):
        arrow_type(t.ArrayType(t.NullType()))
