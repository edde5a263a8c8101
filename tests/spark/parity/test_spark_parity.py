"""Spark's own Kafka connector and ours, side by side, on Odradek and on Apache Kafka: rows, schemas and errors."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from odradek.spark.stores.databases import Sqlite
from odradek.spark.stores.sql import SqlSink, read_rows
from tests.spark.parity import recording
from tests.spark.parity.batches import run_case
from tests.spark.parity.cases import CASES, Case
from tests.spark.parity.data import DATASETS, Filler, make, numbered
from tests.spark.parity.differences import DIFFERENCES
from tests.spark.parity.outcomes import FORMATS
from tests.spark.parity.recording import plain
from tests.spark.parity.stream_cases import SCENARIOS
from tests.spark.parity.streams import Create, Fill, Query, Run, Scenario, run_scenario
from tests.spark.parity.writes import STREAMED, WRITES, Write, run_write, stream_write
from tests.spark.support import run_to_end

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def filled(filler: Filler) -> Filler:
    """The broker with the topics of all batch cases."""
    make(filler, DATASETS)
    return filler


def check(name: str, found: str) -> None:
    """Fail if two outcomes differ, unless the difference is listed; then fail if they do not."""
    known = DIFFERENCES.get(name)
    if known is None:
        assert not found, found
    else:
        assert known.contains in found, f"listed as {known.row!r}, but: {found or 'no difference'}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_batch_equals_official(spark: Any, filled: Filler, case: Case) -> None:
    official, ours = (run_case(spark, filled, case, side) for side in FORMATS)
    check(case.name, official.difference(ours))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_stream_equals_official(spark: Any, filler: Filler, scenario: Scenario, tmp_path: Path) -> None:
    pairs = run_scenario(spark, filler.renamed(), scenario, tmp_path)
    found = (f"run {number}: {text}" for number, pair in enumerate(pairs) if (text := pair[0].difference(pair[1])))
    check(scenario.name, next(found, ""))


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.name)
def test_write_equals_official(spark: Any, filler: Filler, write: Write) -> None:
    official, ours = (run_write(spark, filler, write, side) for side in FORMATS)
    check(write.name, official.difference(ours))


@pytest.mark.parametrize("write", STREAMED, ids=lambda write: write.name)
def test_streamed_write_equals_official(spark: Any, filler: Filler, write: Write, tmp_path: Path) -> None:
    official, ours = (stream_write(spark, filler, write, side, tmp_path / side) for side in FORMATS)
    check(write.name, official.difference(ours))


def test_used_frame_keeps_its_end_in_ours_only(spark: Any, filler: Filler) -> None:
    """A difference that the documentation lists: Spark plans a Python source once per DataFrame."""
    there = filler.renamed()
    make(there, ["small"])
    frames = [
        spark.read.format(each)
        .option("kafka.bootstrap.servers", there.topics.bootstrap)
        .option("subscribe", there.name("small"))
        .load()
        for each in FORMATS.values()
    ]
    assert [each.count() for each in frames] == [17, 17]
    there.send("small", numbered(5, 0, 10))
    assert [each.count() for each in frames] == [22, 17]


def test_checkpoint_continues_under_either_connector(spark: Any, filler: Filler, tmp_path: Path) -> None:
    there = filler.renamed()
    Create("a", 2).apply(there)
    scenario = Scenario("moved", (), {"subscribe": "$a", "startingOffsets": "earliest"})
    found = []
    for side in ("official", "ours", "official", "ours"):
        Fill("a", (5, 2)).apply(there)
        reading = Query(spark, there, scenario, side, tmp_path / "checkpoint").run(Run())
        found.append([(partition, offset) for _, partition, offset, *_ in reading.rows])
    assert found == [[*((0, 5 * turn + n) for n in range(5)), (1, 2 * turn), (1, 2 * turn + 1)] for turn in range(4)]


@pytest.mark.parametrize("side", FORMATS)
def test_database_is_resumed_only_where_it_ends(spark: Any, filler: Filler, tmp_path: Path, side: str) -> None:
    """Each connector shows in the checkpoint where a query began, in its own way."""
    there = filler.renamed()
    Create("a", 2).apply(there)
    Fill("a", (5, 2)).apply(there)
    database = Sqlite(str(tmp_path / "store.db"))

    def run(folder: str, starting: str = "") -> None:
        checkpoint = str(tmp_path / folder)
        sink = SqlSink(database, "records", checkpoint, key=(), resumed=True)
        source = spark.readStream.format(FORMATS[side]).option("kafka.bootstrap.servers", there.topics.bootstrap)
        source = source.options(subscribe=there.name("a"), startingOffsets=starting or sink.starting_offsets())
        writer = source.load().selectExpr("partition", "offset").writeStream.foreachBatch(sink)
        run_to_end(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start)

    run("first")
    with pytest.raises(PySparkException, match="did not begin where the database is"):
        run("second", "earliest")
    Fill("a", (1, 3)).apply(there)
    run("third")
    run("third")
    found = sorted(read_rows(database, "records", ["partition", "offset"]))
    assert found == [*((0, n) for n in range(6)), *((1, n) for n in range(5))]


def test_continuous_trigger_is_of_official_only(spark: Any, filler: Filler, tmp_path: Path) -> None:
    """A difference that the documentation lists."""
    there = filler.renamed()
    make(there, ["small"])

    def start(side: str) -> Any:
        source = spark.readStream.format(FORMATS[side]).option("kafka.bootstrap.servers", there.topics.bootstrap)
        frame = source.option("subscribe", there.name("small")).option("startingOffsets", "earliest").load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / side))
        return writer.trigger(continuous="1 second").start()

    official = start("official")
    try:
        assert official.isActive
    finally:
        official.stop()
    with pytest.raises(PySparkException, match=r"(?i)continuous"):
        start("ours").awaitTermination(60)


def test_real_time_mode_is_of_official_only(spark: Any, filler: Filler, tmp_path: Path) -> None:
    """A difference that the documentation lists."""
    there = filler.renamed()
    make(there, ["small"])
    target = there.topics.create(1)

    def start(side: str) -> Any:
        servers = {"kafka.bootstrap.servers": there.topics.bootstrap}
        source = spark.readStream.format(FORMATS[side]).options(**servers, subscribe=there.name("small"))
        frame = source.option("startingOffsets", "earliest").load().select("value")
        writer = frame.writeStream.format("kafka").options(**servers, topic=target).outputMode("update")
        return writer.option("checkpointLocation", str(tmp_path / side)).trigger(realTime="5 seconds").start()

    official = start("official")
    try:
        deadline = time.monotonic() + 120
        while not there.topics.ends(target, 1)[0]:
            assert official.isActive, official.exception()
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        official.stop()
    with pytest.raises(PySparkException, match="INPUT_STREAM_NOT_SUPPORTED"):
        start("ours").awaitTermination(60)


def test_recorded_outcomes_are_those_of_official(spark: Any, filler: Filler) -> None:
    """The file of the usual suite is what the official connector says today; ODRADEK_RECORD=1 writes it."""
    there = filler.renamed()
    make(there, recording.DATASETS)
    found = {each.name: plain(run_case(spark, there, each, "official"), there) for each in recording.RECORDED}
    if os.environ.get("ODRADEK_RECORD"):
        recording.save(found)
    assert found == recording.load()
