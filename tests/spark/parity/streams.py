"""Streaming scenarios: what happens to topics between the runs of a query, and the runs of both connectors."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.spark.parity.data import Filler, make, numbered
from tests.spark.parity.outcomes import FORMATS, failure
from tests.spark.support import run_to_end

WAIT_S: Final = 120
TRIGGERS: Final[Mapping[str, dict[str, Any]]] = {
    "availableNow": {"availableNow": True},
    "once": {"once": True},
    "running": {"processingTime": "0 seconds"},
}


class Create(NamedTuple):
    """A new topic."""

    topic: str
    partitions: int = 1
    configs: Mapping[str, str] = {}

    def apply(self, filler: Filler) -> None:
        filler.topics.create(self.partitions, filler.name(self.topic), **self.configs)


class Make(NamedTuple):
    """A topic of the batch cases, filled."""

    dataset: str

    def apply(self, filler: Filler) -> None:
        make(filler, [self.dataset])


class Fill(NamedTuple):
    """Records behind those that are there: the number for each partition."""

    topic: str
    counts: tuple[int, ...]

    def apply(self, filler: Filler) -> None:
        ends = filler.topics.ends(filler.name(self.topic), len(self.counts))
        for partition, (count, end) in enumerate(zip(self.counts, ends, strict=True)):
            filler.send(self.topic, numbered(count, partition, end))


class Abort(NamedTuple):
    """Records of an aborted transaction."""

    topic: str
    records: int

    def apply(self, filler: Filler) -> None:
        filler.transaction(self.topic, numbered(self.records), "abort")


class Grow(NamedTuple):
    """More partitions."""

    topic: str
    partitions: int

    def apply(self, filler: Filler) -> None:
        filler.topics.grow(filler.name(self.topic), self.partitions)


class Delete(NamedTuple):
    """The topic is deleted."""

    topic: str

    def apply(self, filler: Filler) -> None:
        filler.topics.delete(filler.name(self.topic))
        filler.topics.wait_until_gone(filler.name(self.topic))


class DeleteRecords(NamedTuple):
    """Records before an offset of partition 0 are deleted."""

    topic: str
    before: int

    def apply(self, filler: Filler) -> None:
        filler.delete_records(self.topic, 0, self.before)


class Run(NamedTuple):
    """A run of the query from its checkpoint on, with these options beside the scenario's.

    With the trigger `running` both queries run side by side until each has read `rows`. The steps in `meanwhile` happen
    one after another, each when both queries have the number of rows beside it.
    """

    options: Mapping[str, str] = {}
    trigger: str = "availableNow"
    rows: int = 0
    meanwhile: tuple[tuple[int, Any], ...] = ()


class Scenario(NamedTuple):
    """Steps in turn; a Run is done by both connectors, each from a checkpoint of its own."""

    name: str
    steps: tuple[Any, ...]
    options: Mapping[str, str] = {}


class Reading(NamedTuple):
    """What one run came to."""

    rows: list[tuple[Any, ...]]
    batches: list[int]
    """The number of rows of each micro-batch that had any."""
    offsets: dict[str, Any]
    """The end of the last micro-batch, as the checkpoint has it, without what only ours adds."""
    error: str = ""
    message: str = ""

    def difference(self, other: "Reading") -> str:
        """The first thing that differs, official first; nothing if the two are equal."""
        if self.error != other.error:
            return f"error {self.error or 'none'!r} and {other.error or 'none'!r}:\n{self.message}\n--\n{other.message}"
        for name in ("rows", "batches", "offsets"):
            one, two = getattr(self, name), getattr(other, name)
            if one != two:
                return f"{name}: {str(one)[:1500]}\nand {str(two)[:1500]}"
        return ""


class Query:
    """A streaming query of one connector, which can be run again from its checkpoint."""

    def __init__(self, spark: Any, filler: Filler, scenario: Scenario, side: str, checkpoint: Path) -> None:
        self._spark, self._filler, self._scenario = spark, filler, scenario
        self._side, self._checkpoint = side, checkpoint
        self._rows: dict[int, list[Any]] = {}
        self._query: Any = None

    def run(self, step: Run) -> Reading:
        """One run until nothing is left or it fails."""
        self._rows = {}
        try:
            self._query = run_to_end(self._writer(step).start, WAIT_S)
        except (PySparkException, Py4JJavaError) as error:
            return self._reading(error)
        return self._reading()

    def start(self, step: Run) -> None:
        """Begin a run that others watch."""
        self._rows = {}
        self._query = self._writer(step).start()

    def wait_for(self, rows: int) -> None:
        """Wait until the run has read so many rows, or has failed."""
        deadline = time.monotonic() + WAIT_S
        while sum(map(len, self._rows.values())) < rows and self._query.isActive:
            assert time.monotonic() < deadline, f"{self._side}: {self._rows} instead of {rows} rows after {WAIT_S} s"
            time.sleep(0.05)

    def stop(self) -> Reading:
        """End a run that was started."""
        self._query.stop()
        return self._reading(self._query.exception())

    def _writer(self, step: Run) -> Any:
        options = {"kafka.bootstrap.servers": self._filler.topics.bootstrap, **self._scenario.options, **step.options}
        reader = self._spark.readStream.format(FORMATS[self._side])
        for name, value in options.items():
            reader = reader.option(name, self._filler.expand(value))

        def keep(frame: Any, batch: int) -> None:
            # a batch that is run again replaces its rows
            self._rows[batch] = frame.collect()

        writer = reader.load().writeStream.foreachBatch(keep).option("checkpointLocation", str(self._checkpoint))
        return writer.trigger(**TRIGGERS[step.trigger])

    def _reading(self, error: Exception | None = None) -> Reading:
        failed = ("", "") if error is None else failure(error, self._side)[-2:]
        rows = [_plain(row) for batch in self._rows.values() for row in batch]
        batches = [len(batch) for _, batch in sorted(self._rows.items()) if batch]
        return Reading(sorted(rows, key=lambda row: row[:3]), batches, self._offsets(), *failed)

    def _offsets(self) -> dict[str, Any]:
        files = [each for each in (self._checkpoint / "offsets").glob("*") if each.name.isdecimal()]
        if not files:
            return {}
        last = max(files, key=lambda each: int(each.name)).read_text().splitlines()[-1]
        return {name: each for name, each in json.loads(last).items() if each}


def _plain(row: Any) -> tuple[Any, ...]:
    """All columns of a row; headers only where the query has them."""
    columns = row.asDict(recursive=True)
    headers = columns.pop("headers", ())
    place = (columns.pop("topic"), columns.pop("partition"), columns.pop("offset"))
    return (*place, *columns.values(), headers and [(each["key"], each["value"]) for each in headers])


def run_scenario(spark: Any, filler: Filler, scenario: Scenario, home: Path) -> list[tuple[Reading, Reading]]:
    """The runs of the official connector and of ours, in pairs."""
    official, ours = (Query(spark, filler, scenario, side, home / side) for side in FORMATS)
    pairs: list[tuple[Reading, Reading]] = []
    for step in scenario.steps:
        if not isinstance(step, Run):
            step.apply(filler)
        elif step.meanwhile or step.rows:
            pairs.append(_run_together(filler, step, official, ours))
        else:
            pairs.append((official.run(step), ours.run(step)))
    return pairs


def _run_together(filler: Filler, step: Run, official: Query, ours: Query) -> tuple[Reading, Reading]:
    try:
        for query in (official, ours):
            query.start(step)
        for rows, change in (*step.meanwhile, (step.rows, None)):
            for query in (official, ours):
                query.wait_for(rows)
            if change is not None:
                change.apply(filler)
    finally:
        readings = [query.stop() for query in (official, ours)]
    return readings[0], readings[1]
