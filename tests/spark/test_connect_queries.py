"""Queries in Spark SQL as connectors: in the tests' session, and in a worker that is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from odradek.client.blocking_clients import BlockingProducer
from odradek.client.model import ConsumerRecord
from odradek.client.reports import dead_letters
from odradek.connect.plugins import TaskPlace, check_config, find
from odradek.connect.topics import read_all
from odradek.spark.interpreter import launcher
from odradek.wire.errors import KafkaError
from tests.integration.test_connect import Run, process_of
from tests.integration.waiting import until
from tests.spark.evidence import explained
from tests.spark.standalone import PATIENCE_S, WORKERS, bare_environment, standalone_cluster

pytestmark = pytest.mark.xdist_group("spark")

COUNT = 1_000


class Numbers(NamedTuple):
    """A topic to read, and one to write."""

    bootstrap: str
    source: str
    target: str

    def produce(self, *values: Any) -> None:
        with BlockingProducer(bootstrap_servers=self.bootstrap) as producer:
            for value in values:
                producer.send(self.source, value if isinstance(value, bytes) else json.dumps(value).encode())
            producer.flush()

    def records(self) -> list[ConsumerRecord[bytes, bytes]]:
        """The records of the target, as far as they are committed."""

        async def read() -> list[ConsumerRecord[bytes, bytes]]:
            try:
                return [each async for each in read_all({"bootstrap_servers": self.bootstrap}, self.target)]
            except KafkaError:
                return []  # the topic does not exist yet

        return asyncio.run(read())

    def written(self) -> list[Any]:
        return [json.loads(each.value or b"") for each in self.records()]


@pytest.fixture
def numbers(bootstrap: str) -> Numbers:
    name = uuid4().hex[:10]
    return Numbers(bootstrap, f"numbers-{name}", f"even-{name}")


def config_of(numbers: Numbers, folder: Path, **more: str) -> dict[str, str]:
    """A query that keeps the even numbers."""
    return {
        "name": numbers.target, "connector.class": "SparkSql", "topics": numbers.source,
        "value.columns": "n BIGINT, text STRING",
        "sql": "SELECT n, upper(text) AS text FROM records WHERE n % 2 = 0",
        "checkpoint.location": f"{folder}/state", "trigger.interval.ms": "0",
        **{name.replace("_", "."): text for name, text in more.items()},
    }  # fmt: skip


def started(spark: Any, numbers: Numbers, config: dict[str, str]) -> Any:
    plugin = find("SparkSql")
    assert plugin is not None
    plan: Any = plugin.make(check_config(plugin, config).valid(), config, TaskPlace(config["name"], 0, 1))
    client = {"kafka.bootstrap.servers": numbers.bootstrap}
    return plan.start(spark.newSession(), source={**client, "kafka.group.id": f"connect-{numbers.target}"}, sink=client)


@pytest.mark.parametrize("tolerance", [pytest.param("none", marks=pytest.mark.long), "all"])
def test_query_writes_rows_of_its_result_as_records(
    spark: Any, numbers: Numbers, tmp_path: Path, tolerance: str
) -> None:
    """A value that is no object of the columns ends the query, or is skipped."""
    numbers.produce(*({"n": n, "text": "a" if n else None} for n in range(4)))
    config = config_of(numbers, tmp_path, topic=numbers.target, key_column="n", errors_tolerance=tolerance)
    query = started(spark, numbers, config)
    try:
        query.processAllAvailable()
        records = numbers.records()
        assert [each.key for each in records] == [b"0", b"2"]
        assert numbers.written() == [{"n": 0, "text": None}, {"n": 2, "text": "A"}]
        numbers.produce(b'{"n": "x', {"n": 4, "text": "b"})
        if tolerance == "all":
            query.processAllAvailable()
            assert numbers.written()[2:] == [{"n": 4, "text": "B"}]
        else:
            until(lambda: query.exception() is not None, "the query fails")
            assert len(numbers.written()) == 2
    finally:
        query.stop()


def test_records_that_are_skipped_become_dead_letters(spark: Any, numbers: Numbers, tmp_path: Path) -> None:
    """In the same transaction as the rows of the result."""
    numbers.produce({"n": 0, "text": "a"}, b'{"n": "x', {"n": 2, "text": None})
    bad = f"bad-{numbers.target}"
    config = config_of(
        numbers, tmp_path, topic=numbers.target, key_column="n", errors_tolerance="all",
        errors_deadletterqueue_topic_name=bad,
    )  # fmt: skip
    query = started(spark, numbers, config)
    try:
        query.processAllAvailable()
        assert [(each.key, each.headers) for each in numbers.records()] == [(b"0", ()), (b"2", ())]
        assert numbers.written() == [{"n": 0, "text": "A"}, {"n": 2, "text": None}]
        (letter,) = numbers._replace(target=bad).records()
        headers = {name: bytes(value or b"").decode() for name, value in letter.headers}
        assert (letter.value, headers[dead_letters.TOPIC], headers[dead_letters.OFFSET]) == (
            b'{"n": "x', numbers.source, "1",
        )  # fmt: skip
        assert "value.columns" in headers[dead_letters.MESSAGE]
        numbers.produce({"n": 4, "text": "b"}, b"worse")
        query.processAllAvailable()
        assert numbers.written()[2:] == [{"n": 4, "text": "B"}]
        assert {each.value for each in numbers._replace(target=bad).records()} == {b'{"n": "x', b"worse"}
    finally:
        query.stop()


def test_query_keeps_its_groups_in_a_table_of_a_database(spark: Any, numbers: Numbers, tmp_path: Path) -> None:
    """A group that has changed replaces its row; a restarted query continues."""
    path = tmp_path / "o.db"
    config = config_of(
        numbers, tmp_path, connection_url=f"sqlite:///{path}", table_name="counts", pk_fields="even",
        output_mode="update", sql="SELECT n % 2 = 0 AS even, count(*) AS c FROM records GROUP BY n % 2 = 0",
    )  # fmt: skip

    def counts() -> list[Any]:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute("SELECT even, c FROM counts ORDER BY even").fetchall()

    for number in range(2):
        numbers.produce(*({"n": n, "text": "a"} for n in range(5)))
        query = started(spark, numbers, config)
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        assert counts() == [(0, 2 * (number + 1)), (1, 3 * (number + 1))]


@contextmanager
def worker(
    folder: Path, numbers: Numbers, config: dict[str, str], master: str = "local[2]", *conf: str
) -> Iterator[Run]:
    path = folder / "query.json"
    path.write_text(json.dumps({"name": config["name"], "config": config}))
    line = [
        sys.executable,
        "-m",
        "odradek.cli.main",
        "connect",
        "run",
        "--listen",
        "127.0.0.1:0",
        "--master",
        master,
        *(part for each in conf for part in ("--conf", each)),
    ]
    line += ["--conf", "spark.sql.shuffle.partitions=1", "--spark-log", str(folder / "spark.log"), str(path)]
    environment = {**os.environ, "ODRADEK_BOOTSTRAP_SERVER": numbers.bootstrap}
    with process_of(line, environment, log=folder / "connect.log") as run:
        status, offsets = (f"{run.url}connectors/{config['name']}/{each}" for each in ("status", "offsets"))
        with explained(folder, status, offsets):
            yield run


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("target", ["topic", "table"])
def test_query_writes_each_row_once_when_its_worker_is_killed(numbers: Numbers, tmp_path: Path, target: str) -> None:
    table = tmp_path / "table"
    result = {"topic": numbers.target} if target == "topic" else {"table_path": str(table)}
    config = config_of(numbers, tmp_path, **result, max_offsets_per_trigger="50")
    numbers.produce(*({"n": n, "text": "a"} for n in range(COUNT)))

    def found() -> list[int]:
        if target == "topic":
            return [each["n"] for each in numbers.written()]
        from deltalake import DeltaTable

        is_there = DeltaTable.is_deltatable(str(table))
        return DeltaTable(str(table)).to_pyarrow_table()["n"].to_pylist() if is_there else []

    for least in (1, COUNT // 4):
        with worker(tmp_path, numbers, config) as run:
            until(lambda least=least: len(found()) >= least, f"{least} rows")  # type: ignore[misc]
            run.process.kill()
    with worker(tmp_path, numbers, config) as run:
        until(lambda: len(found()) >= COUNT // 2, "all rows")
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(60) == 0
    assert sorted(found()) == list(range(0, COUNT, 2))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_query_on_a_cluster_writes_each_row_once_when_processes_die(
    numbers: Numbers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standalone master with two workers: the connectors' process is killed, then a worker with its executor."""
    monkeypatch.setenv("PYSPARK_PYTHON", launcher())
    config = config_of(numbers, tmp_path, topic=numbers.target, max_offsets_per_trigger="120")
    numbers.produce(*({"n": n, "text": "a"} for n in range(COUNT)))
    executors = ("spark.executor.memory=512m", "spark.driver.host=127.0.0.1", "spark.ui.enabled=false")
    with standalone_cluster(tmp_path, bare_environment()) as cluster:
        with worker(tmp_path, numbers, config, cluster.address, *executors) as run:
            until(lambda: bool(list(tmp_path.glob("worker-*/app-*"))), "executors", PATIENCE_S)
            until((tmp_path / "state" / "offsets" / "0").exists, "a first batch", PATIENCE_S)
            until(lambda: len(numbers.written()) > 0, "the first rows", PATIENCE_S)
            run.process.kill()
        with worker(tmp_path, numbers, config, cluster.address, *executors) as run:
            until(lambda: len(list(tmp_path.glob("worker-*/app-*"))) > WORKERS, "other executors", PATIENCE_S)
            until(lambda: len(numbers.written()) > COUNT // 6, "more rows", PATIENCE_S)
            cluster.workers[0].kill()
            until(lambda: len(numbers.written()) >= COUNT // 2, "all rows", PATIENCE_S)
            run.process.send_signal(signal.SIGTERM)
            assert run.process.wait(60) == 0
    assert sorted(each["n"] for each in numbers.written()) == list(range(0, COUNT, 2))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_two_queries_share_a_session_and_obey_the_rest_interface(numbers: Numbers, tmp_path: Path) -> None:
    numbers.produce(*({"n": n, "text": "a"} for n in range(10)))
    good = config_of(numbers, tmp_path, topic=numbers.target)
    bad = {**config_of(numbers, tmp_path, topic=f"{numbers.target}-odd"), "name": "odd", "sql": "SELECT m FROM records",
           "checkpoint.location": f"{tmp_path}/state2"}  # fmt: skip
    with worker(tmp_path, numbers, good) as run:

        def call(method: str, path: str, body: Any = None) -> Any:
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(
                f"{run.url}{path}", data, {"Content-Type": "application/json"}, method=method
            )
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or b"null")

        def state(name: str) -> str:
            return str(call("GET", f"connectors/{name}/status")["tasks"][0]["state"])

        def position_of_group() -> int:
            offsets = call("GET", f"connectors/{numbers.target}/offsets")["offsets"]
            return sum(each["offset"]["kafka_offset"] for each in offsets)

        call("PUT", "connectors/odd/config", bad)
        until(lambda: state("odd") == "FAILED", "Spark rejects the query")
        assert "UNRESOLVED_COLUMN" in call("GET", "connectors/odd/status")["tasks"][0]["trace"]
        until(lambda: len(numbers.written()) == 5, "the rows")
        until(lambda: position_of_group() == 10, "the group's offsets")
        call("PUT", f"connectors/{numbers.target}/pause")
        numbers.produce({"n": 10, "text": "a"})
        time.sleep(1)
        assert (state(numbers.target), len(numbers.written())) == ("PAUSED", 5)
        call("PUT", f"connectors/{numbers.target}/resume")
        until(lambda: len(numbers.written()) == 6, "the row after the pause")


def kill_children(process_id: int) -> None:
    """Kill the processes that the process has started."""
    for each in Path(f"/proc/{process_id}/task").glob("*/children"):
        for child in each.read_text().split():
            os.kill(int(child), signal.SIGKILL)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_query_continues_in_another_session_after_its_jvm_is_killed(numbers: Numbers, tmp_path: Path) -> None:
    numbers.produce(*({"n": n, "text": "a"} for n in range(10)))
    with worker(tmp_path, numbers, config_of(numbers, tmp_path, topic=numbers.target)) as run:
        until(lambda: len(numbers.written()) == 5, "the rows")
        kill_children(run.process.pid)
        numbers.produce({"n": 10, "text": "a"})
        until(lambda: len(numbers.written()) == 6, "the row after the JVM's end")
    assert sorted(each["n"] for each in numbers.written()) == [0, 2, 4, 6, 8, 10]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_pipeline_of_connectors_runs_queries_on_spark(numbers: Numbers, tmp_path: Path) -> None:
    numbers.produce(*({"n": n, "text": "a"} for n in range(10)))
    config = config_of(numbers, tmp_path, topic=numbers.target)
    path = tmp_path / "all.yml"
    path.write_text(json.dumps({"runner": "spark", "connectors": {config.pop("name"): config}}))
    line = [sys.executable, "-m", "odradek.cli.main", "pipeline", "run", "--master", "local[2]", "--log",
            str(tmp_path / "spark.log"), "--conf", "spark.sql.shuffle.partitions=1", str(path)]  # fmt: skip
    environment = {**os.environ, "ODRADEK_BOOTSTRAP_SERVER": numbers.bootstrap}
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("odradek pipeline ready ")
        until(lambda: len(numbers.written()) == 5, "the rows")
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
