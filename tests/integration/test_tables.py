"""Topics as Delta tables with a broker: the page, crashes, rivals, backfill."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from odradek.cli.main import main
from odradek.client.admin import Admin
from odradek.client.blocking_clients import BlockingProducer
from odradek.client.producer.producer import Producer
from odradek.client.producer.transactions import TransactionalProducer
from odradek.connect.errors import ConnectError
from odradek.records.topic_partition import TopicPartition
from odradek.tables.delta import DeltaStore
from odradek.tables.process import run_tables
from odradek.tables.specification import TableSpec, read, spec_of
from odradek.tables.store import Written
from odradek.testing.blocking import BlockingBroker
from tests.newcomer.pages import Page

KILLED = -9
CRASHING = """
import asyncio, glob, json, os, shutil, signal, sys
import deltalake
from odradek.tables.process import run_tables
from odradek.tables.specification import spec_of

step, servers, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
commit = deltalake.write_deltalake

def write(table, rows, **options):
    place = "bad" if table.table_uri.rstrip("/").endswith("_bad") else "table"
    if rows.num_rows and step == f"files of {place}":
        # what a crash after the data files and before the commit leaves in the folder
        commit(settings["path"] + ".scratch", rows)
        for file in glob.glob(settings["path"] + ".scratch/*.parquet"):
            shutil.copy(file, settings["path"])
        os.kill(os.getpid(), signal.SIGKILL)
    commit(table, rows, **options)
    if rows.num_rows and step == f"commit of {place}":
        os.kill(os.getpid(), signal.SIGKILL)

deltalake.write_deltalake = write
if settings.get("format") == "iceberg":
    from pyiceberg.table import Transaction

    commit_snapshots = Transaction.commit_transaction

    def commit_transaction(self):
        # the data files of the transaction are in the folder by now
        has_rows = any(glob.iglob(settings["catalog.warehouse"] + "/**/*.parquet", recursive=True))
        if has_rows and step == "files of iceberg":
            os.kill(os.getpid(), signal.SIGKILL)
        commit_snapshots(self)

    Transaction.commit_transaction = commit_transaction
clients = {"bootstrap_servers": servers}
asyncio.run(run_tables([spec_of("t", settings)], clients, asyncio.Event(), lambda *_: None, once=True))
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[BlockingBroker]:
    """The broker of this module."""
    with BlockingBroker() as started:
        yield started


@pytest.fixture
def topic(broker: BlockingBroker) -> str:
    """A topic of the test's own, with two partitions."""
    name = f"t-{uuid4().hex[:10]}"
    broker.topic(name, partitions=2)
    return name


def produce(broker: BlockingBroker, topic: str, values: list[Any], partition: int | None = None) -> None:
    with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number, value in enumerate(values):
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            producer.send(
                topic, data, key=str(number % 6).encode(), partition=number % 2 if partition is None else partition
            )
        producer.flush()


def settings_of(topic: str, folder: Path, **more: str) -> dict[str, str]:
    given = {name.replace("_", "."): text for name, text in more.items()}
    return {"topic": topic, "path": str(folder / "table"), **given}


def run_once(broker: BlockingBroker, *specs: TableSpec) -> dict[str, str]:
    """Write what the topics have; failures by table."""
    clients = {"bootstrap_servers": broker.bootstrap_servers}
    failures = asyncio.run(run_tables(specs, clients, asyncio.Event(), lambda *_: None, once=True))
    return {name: str(error) for name, error in failures.items()}


def killed_at(step: str, broker: BlockingBroker, settings: dict[str, str]) -> bool:
    """Write the table in a child process that kills itself at a step; whether it did."""
    words = [sys.executable, "-c", CRASHING, step, broker.bootstrap_servers, json.dumps(settings)]
    return subprocess.run(words, timeout=60).returncode == KILLED


def ids(path: str) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table(columns=["id"]).column("id").to_pylist())


@pytest.mark.parametrize("step", ["files of table", "commit of table", "commit of bad"])
def test_killed_runner_loses_and_repeats_nothing(broker: BlockingBroker, topic: str, tmp_path: Path, step: str) -> None:
    values = [b"bad" if number % 5 == 0 else {"id": number} for number in range(40)]
    produce(broker, topic, values)
    settings = settings_of(topic, tmp_path)
    assert killed_at(step, broker, settings)
    assert run_once(broker, spec_of("t", settings)) == {}
    assert ids(settings["path"]) == [each["id"] for each in values if isinstance(each, dict)]
    assert DeltaTable(f"{settings['path']}_bad").count() == 8


def iceberg_settings(topic: str, folder: Path, **more: str) -> dict[str, str]:
    catalog = {"catalog.uri": f"sqlite:///{folder}/catalog.db", "catalog.warehouse": f"{folder}/lake"}
    return {**settings_of(topic, folder, format="iceberg", **more), **catalog, "path": "lake.t"}


def iceberg_ids_and_operations(folder: Path) -> tuple[list[int], list[str]]:
    """The ids in the table of `iceberg_settings`, and the operations of its snapshots."""
    with load_catalog("default", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"{folder}/lake") as opened:
        table = opened.load_table("lake.t")
        found = table.scan(selected_fields=("id",)).to_arrow().column("id").to_pylist()
        operations = [each.summary.operation.value for each in table.snapshots() if each.summary is not None]
    return sorted(found), operations


def test_killed_runner_of_iceberg_loses_and_repeats_nothing(broker: BlockingBroker, topic: str, tmp_path: Path) -> None:
    produce(broker, topic, [{"id": number} for number in range(20)])
    settings = iceberg_settings(topic, tmp_path)
    assert killed_at("files of iceberg", broker, settings)
    assert run_once(broker, spec_of("t", settings)) == {}
    assert iceberg_ids_and_operations(tmp_path)[0] == list(range(20))


def test_two_runners_write_every_record_once(broker: BlockingBroker, topic: str, tmp_path: Path) -> None:
    produce(broker, topic, [b"bad", b"bad", *({"id": number} for number in range(12))])
    settings = settings_of(topic, tmp_path, commit_records="1", consumer_override_max_partition_fetch_bytes="200")
    spec = spec_of("t", settings)
    clients = {"bootstrap_servers": broker.bootstrap_servers}

    async def both() -> list[dict[str, Any]]:
        runs = (run_tables([spec], clients, asyncio.Event(), lambda *_: None, once=True) for _ in range(2))
        return await asyncio.gather(*runs)

    assert asyncio.run(both()) == [{}, {}]
    assert ids(settings["path"]) == list(range(12))
    assert DeltaTable(f"{settings['path']}_bad").count() == 2


@pytest.mark.parametrize(
    ("start", "found"), [("earliest", [0, 1, 2, 3]), ("0:1", [1, 2, 3]), ("latest", []), ("2100-01-01", [])]
)
def test_new_table_begins_where_the_specification_says(
    broker: BlockingBroker, topic: str, tmp_path: Path, start: str, found: list[int]
) -> None:
    """Also when no record came before the restart."""
    produce(broker, topic, [{"id": 0}, {"id": 2}, {"id": 1}, {"id": 3}])
    settings = settings_of(topic, tmp_path, start=start, columns="id bigint")
    assert run_once(broker, spec_of("t", settings)) == {}
    assert ids(settings["path"]) == found
    produce(broker, topic, [{"id": 4}])
    assert run_once(broker, spec_of("t", settings)) == {}
    assert ids(settings["path"]) == [*found, 4]


@pytest.mark.parametrize("make", ["delta", "iceberg"])
@pytest.mark.parametrize(("seconds", "first"), [(2, 2), (2.5, 3)])
def test_new_table_begins_at_a_past_time(
    broker: BlockingBroker, topic: str, tmp_path: Path, make: str, seconds: float, first: int
) -> None:
    """In each partition with the first record of that time or later."""
    begin = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    begin_ms = int(begin.timestamp() * 1000)
    with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(6):
            data = json.dumps({"id": number}).encode()
            producer.send(topic, data, partition=number % 2, timestamp_ms=begin_ms + number * 1_000)
        producer.flush()
    start = (begin + timedelta(seconds=seconds)).isoformat()
    settings = (settings_of if make == "delta" else iceberg_settings)(topic, tmp_path, start=start)
    for _ in range(2):
        assert run_once(broker, spec_of("t", settings)) == {}
    found = ids(settings["path"]) if make == "delta" else iceberg_ids_and_operations(tmp_path)[0]
    assert found == list(range(first, 6))


def test_start_outside_the_log_is_an_error(broker: BlockingBroker, topic: str, tmp_path: Path) -> None:
    failures = run_once(broker, spec_of("t", settings_of(topic, tmp_path, start="1:7")))
    assert f"start: {topic}-1 has the offsets 0 to 0, not 7" in failures["t"]


def test_aborted_records_are_not_in_the_table(broker: BlockingBroker, topic: str, tmp_path: Path) -> None:
    async def transactions() -> None:
        servers = broker.bootstrap_servers
        async with TransactionalProducer(bootstrap_servers=servers, transactional_id=topic) as producer:
            for number in range(3):
                producer.begin()
                await producer.send(topic, json.dumps({"id": number}).encode(), partition=0)
                await (producer.abort() if number == 1 else producer.commit())

    asyncio.run(transactions())
    settings = settings_of(topic, tmp_path)
    assert run_once(broker, spec_of("t", settings)) == {}
    assert ids(settings["path"]) == [0, 2]


@pytest.mark.parametrize(("data_loss", "found"), [("fail", [0]), ("skip", [0, 3])])
def test_records_deleted_before_they_were_read_are_noticed(
    broker: BlockingBroker, topic: str, tmp_path: Path, data_loss: str, found: list[int]
) -> None:
    settings = settings_of(topic, tmp_path, data_loss=data_loss)
    produce(broker, topic, [{"id": 0}], partition=0)
    assert run_once(broker, spec_of("t", settings)) == {}
    produce(broker, topic, [{"id": number} for number in (1, 2, 3)], partition=0)

    async def delete() -> None:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            await admin.delete_records({TopicPartition(topic, 0): 3})

    asyncio.run(delete())
    failures = run_once(broker, spec_of("t", settings))
    assert ("begins at 3, and records from 1 on were not read" in failures.get("t", "")) is (data_loss == "fail")
    assert ids(settings["path"]) == found


def test_failure_of_a_table_leaves_others_at_work(broker: BlockingBroker, topic: str, tmp_path: Path) -> None:
    produce(broker, topic, [{"id": 1}])
    missing = spec_of(
        "m",
        {
            **settings_of(f"{topic}-missing", tmp_path / "m"),
            "errors.retry.timeout": "0",
            "consumer.override.default.api.timeout.ms": "300",
        },
    )
    good = settings_of(topic, tmp_path)
    assert list(run_once(broker, missing, spec_of("t", good))) == ["m"]
    assert ids(good["path"]) == [1]


def test_page_is_followed_step_by_step(
    broker: BlockingBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands, the files and the programs of docs/TABLES.md."""
    guide = Page("docs/TABLES.md")
    specifications = re.findall(r"^```yaml\n(.*?)^```$", guide.text, re.MULTILINE | re.DOTALL)
    for name, text in zip(("tables.yml", "iceberg.yml", "avro.yml"), specifications, strict=True):
        (tmp_path / name).write_text(re.sub(r"\$\{file:.*\}", "me:secret", text))
    assert list(read([tmp_path / "avro.yml"], None)) == ["payments"]
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVER", broker.bootstrap_servers)
    monkeypatch.setattr("odradek.broker.log_output.configure_logging", lambda *_: None)
    monkeypatch.chdir(tmp_path)

    def run(command: str) -> str:
        if not command.startswith("odradek "):
            line = command.replace("| odradek ", f"| {sys.executable} -m odradek.cli.main ")
            subprocess.run(["bash", "-c", line], check=True, timeout=60)
        else:
            assert main(shlex.split(command)[1:]) == 0
        return capsys.readouterr().out

    shown = [run(command) for command in guide.commands("Try it")]
    assert "valid: orders (a new table)" in shown[1]
    assert "committed table=orders rows=2 deleted=0 bad=1 offsets=0:3" in shown[2]
    assert "bad_records: 1" in shown[3]
    assert "committed table=orders rows=2 deleted=0 bad=1 offsets=0:3" in run(guide.commands("Iceberg")[0])
    for example in guide.programs():
        if example.section == "Spark SQL":
            continue  # spark/test_tables_in_spark.py
        exec(example.code, {})
        assert capsys.readouterr().out == example.shown
    (offsets,) = guide.commands("Files and versions")
    assert re.search(r"orders +orders +0 +0$", run(offsets), re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["run"], "run needs either a file or --warehouse"),
        (["check", "no.yml"], "no.yml: No such file"),
        (["check", "t.yml", "--once"], "--once goes with run only"),
        (["check", "t.yml", "--table", "x"], "--table x: the files have t"),
        (["check", "wrong.yml"], "table t: topic is missing"),
    ],
)
def test_mistakes_are_one_line_and_status_two(
    words: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.yml").write_text("tables: {t: {topic: a, path: b}}")
    Path("wrong.yml").write_text("tables: {t: {path: b}}")
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        assert main(["tables", *words]) == 2
    assert line in errors.getvalue()
    assert errors.getvalue().count("\n") == 1


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_running_table_follows_its_topic(
    broker: BlockingBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Commits by time, small files, a partition that is added, and the end at a signal."""
    monkeypatch.setattr("odradek.tables.runner.NEW_PARTITIONS_S", 0.2)
    make = settings_of if kind == "delta" else iceberg_settings
    settings = make(topic, tmp_path, commit_interval_ms="1", compact_interval_ms="1")
    servers = broker.bootstrap_servers
    clients = {"bootstrap_servers": servers}

    async def follow() -> dict[str, Any]:
        commits: asyncio.Queue[int] = asyncio.Queue()
        stopping = asyncio.Event()
        running = asyncio.create_task(
            run_tables([spec_of("t", settings)], clients, stopping, lambda _, done, ends: commits.put_nowait(done.rows))
        )
        async with Producer(bootstrap_servers=servers) as producer, Admin(bootstrap_servers=servers) as admin:
            for number in range(4):
                await producer.send_and_wait(topic, json.dumps({"id": number}).encode(), partition=number % 2)
                assert await asyncio.wait_for(commits.get(), 60) == 1
            await admin.create_partitions({topic: 3})
            await producer.cluster.refresh_metadata()
            await producer.send_and_wait(topic, b'{"id": 4}', partition=2)
            assert await asyncio.wait_for(commits.get(), 60) == 1
        stopping.set()
        return await running

    assert asyncio.run(follow()) == {}
    if kind == "delta":
        found = ids(settings["path"])
        operations = [each["operation"] for each in DeltaTable(settings["path"]).history()]
    else:
        found, operations = iceberg_ids_and_operations(tmp_path)
    assert found == [0, 1, 2, 3, 4]
    assert "OPTIMIZE" in operations or "overwrite" in operations


def test_table_whose_files_cannot_be_joined_is_still_written(
    broker: BlockingBroker,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    attempts: list[None] = []

    def compact(_: DeltaStore) -> int:
        attempts.append(None)
        raise ConnectError("planted")

    monkeypatch.setattr(DeltaStore, "compact", compact)
    settings = settings_of(topic, tmp_path, commit_interval_ms="1", compact_interval_ms="1")
    clients = {"bootstrap_servers": broker.bootstrap_servers}

    async def follow() -> dict[str, Any]:
        stopping, rows = asyncio.Event(), 0

        def on_commit(_: str, written: Written, __: Mapping[int, int]) -> None:
            nonlocal rows
            rows += written.rows
            if rows == 4:
                stopping.set()

        running = asyncio.create_task(run_tables([spec_of("t", settings)], clients, stopping, on_commit))
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            while not attempts:
                await asyncio.sleep(0.01)
            for number in range(4):
                await producer.send_and_wait(topic, json.dumps({"id": number}).encode())
        return await asyncio.wait_for(running, 60)

    assert asyncio.run(follow()) == {}
    assert ids(settings["path"]) == [0, 1, 2, 3]
    assert "table t: files are not joined: planted" in caplog.messages


def test_terminated_command_loses_and_repeats_nothing(broker: BlockingBroker, topic: str, tmp_path: Path) -> None:
    """SIGTERM, as systemd and Kubernetes send it, while records are gathered for the next commit."""
    path = tmp_path / "table"
    (tmp_path / "t.yml").write_text(
        f"tables: {{t: {{topic: {topic}, path: {path}, commit.records: 10, commit.interval.ms: 3600000}}}}"
    )
    produce(broker, topic, [{"id": number} for number in range(10)])
    command = [sys.executable, "-m", "odradek.cli.main", "tables", "run", str(tmp_path / "t.yml")]
    with subprocess.Popen(
        [*command, "-b", broker.bootstrap_servers], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "odradek tables ready tables=t\n"
        assert process.stdout.readline().startswith("committed table=t rows=10 ")
        produce(broker, topic, [{"id": number} for number in range(10, 15)])
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=60)[0]
    assert process.returncode == 0, rest
    assert run_once(broker, spec_of("t", settings_of(topic, tmp_path))) == {}
    assert ids(str(path)) == list(range(15))
