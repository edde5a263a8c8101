"""One batch case with one connector."""

from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.spark.parity.cases import Case
from tests.spark.parity.data import Filler
from tests.spark.parity.outcomes import FORMATS, Outcome, failure, outcome_of

DEFAULTS: Final = {"kafka.fetch.max.wait.ms": "20"}
"""The official connector asks for ends of logs behind a fetch that waits for records: 0.5 s for each task."""


def run_case(spark: Any, filler: Filler, case: Case, side: str) -> Outcome:
    """What the case comes to with the official connector or with ours."""
    reader = spark.read.format(FORMATS[side]).option("kafka.bootstrap.servers", filler.topics.bootstrap)
    for name, value in {**DEFAULTS, **case.options}.items():
        reader = reader.option(name, filler.expand(value))
    try:
        return outcome_of(reader.load(), counts_tasks=case.counts_tasks)
    except (PySparkException, Py4JJavaError) as error:
        return failure(error, side)
