"""What Spark discovers: it imports every top-level module named pyspark_* and registers its DefaultSource.

All that is heavy (client, numpy, pyarrow) is imported when a query uses the format.
"""

from odradek.spark.data_source import OdradekDataSource as DefaultSource

__all__ = ["DefaultSource"]
