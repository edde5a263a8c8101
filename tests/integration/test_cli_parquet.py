"""`odradek consume --to-parquet` and `odradek produce --from-parquet`."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from pyarrow import parquet

from odradek.client.framing import framed
from odradek.testing import BlockingBroker


@pytest.fixture(scope="module")
def kafka() -> Iterator[BlockingBroker]:
    with BlockingBroker() as broker:
        yield broker


def odradek(kafka: BlockingBroker, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "odradek.cli.main", *map(str, arguments), "-b", kafka.bootstrap_servers]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL)


def test_topic_is_written_and_sent_again(kafka: BlockingBroker, tmp_path: Path) -> None:
    source, copy, file = kafka.topic(partitions=2), kafka.topic(), tmp_path / "records.parquet"
    kafka.produce(source, "1", None, b"\xff", key="k")
    kafka.produce(source, "2", key="other")
    done = odradek(kafka, "consume", source, "--offset", "earliest", "-e", "--to-parquet", file)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "Processed a total of 4 messages\n")
    table = parquet.read_table(file)
    assert table.schema.names == ["topic", "partition", "key", "value", "offset", "timestamp", "headers"]
    assert os.listdir(tmp_path) == ["records.parquet"]
    done = odradek(kafka, "produce", copy, "--from-parquet", file)
    assert (done.returncode, done.stderr) == (0, "4 rows were sent\n")
    copied = [(record.key, record.value) for record in kafka.records(copy)]
    assert sorted(copied, key=repr) == sorted([(b"k", b"1"), (b"k", None), (b"k", b"\xff"), (b"other", b"2")], key=repr)


def test_columns_become_json(kafka: BlockingBroker, tmp_path: Path) -> None:
    topic, file = kafka.topic(), tmp_path / "flights.parquet"
    parquet.write_table(pa.table({"carrier": ["UA"], "origin": ["JFK"], "delay": [4]}), file)
    arguments = ("--value-columns", "origin,delay", "--key-column", "carrier")
    assert odradek(kafka, "produce", topic, "--from-parquet", file, *arguments).returncode == 0
    (record,) = kafka.records(topic)
    assert (record.key, record.value) == (b"UA", b'{"origin":"JFK","delay":4}')


AVRO = {"type": "record", "name": "Row", "fields": [{"name": "number", "type": "long"}]}


def avro(number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), {"number": number})
    return out.getvalue()


def test_avro_values_become_columns_of_the_file(kafka: BlockingBroker, tmp_path: Path) -> None:
    topic, schema, file = kafka.topic(), tmp_path / "row.avsc", tmp_path / "rows.parquet"
    schema.write_text(json.dumps(AVRO))
    kafka.produce(topic, framed(7, avro(1)), None, framed(8, avro(2)))
    options = ("--value-schema", schema, "--value-schema-id", f"7={schema}", "--value-schema-id", f"8={schema}")
    done = odradek(kafka, "consume", topic, "--offset", "earliest", "-e", "--to-parquet", file, *options)
    assert (done.returncode, done.stderr) == (0, "Processed a total of 3 messages\n")
    assert parquet.read_table(file)["value"].to_pylist() == [{"number": 1}, None, {"number": 2}]


def test_value_that_is_not_avro_leaves_no_file(kafka: BlockingBroker, tmp_path: Path) -> None:
    topic, schema, file = kafka.topic(), tmp_path / "row.avsc", tmp_path / "rows.parquet"
    schema.write_text(json.dumps(AVRO))
    kafka.produce(topic, "text")
    done = odradek(
        kafka, "consume", topic, "--offset", "earliest", "-eq", "--to-parquet", file, "--value-schema", schema
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"{topic}-0: a value is not Avro of this schema" in done.stderr
    assert os.listdir(tmp_path) == ["row.avsc"]


def test_limit_bounds_the_rows_and_an_empty_topic_gives_a_file(kafka: BlockingBroker, tmp_path: Path) -> None:
    topic = kafka.topic()
    everything = ("--from-beginning", "-e", "--to-parquet")
    assert odradek(kafka, "consume", topic, *everything, tmp_path / "empty.parquet").returncode == 0
    assert parquet.read_table(tmp_path / "empty.parquet").num_rows == 0
    kafka.produce(topic, "1", "2", "3")
    assert odradek(kafka, "consume", topic, "-n", 2, *everything, tmp_path / "two.parquet").returncode == 0
    assert parquet.read_table(tmp_path / "two.parquet")["value"].to_pylist() == [b"1", b"2"]


def test_signal_completes_the_file(kafka: BlockingBroker, tmp_path: Path) -> None:
    topic, file = kafka.topic(), tmp_path / "live.parquet"
    kafka.produce(topic, "1")
    command = [
        sys.executable,
        "-m",
        "odradek.cli.main",
        "consume",
        topic,
        "--from-beginning",
        "--to-parquet",
        str(file),
    ]
    with subprocess.Popen([*command, "-b", kafka.bootstrap_servers], stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 30
        while not file.with_suffix(".parquet.part").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    assert parquet.read_table(file)["value"].to_pylist() == [b"1"]


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("consume", "t", "-e", "--to-parquet", "THERE"), 1, "exists already"),
        (("consume", "t", "-o", "json", "--to-parquet", "new"), 2, "--to-parquet goes neither with"),
        (("consume", "t", "--value-schema", "s"), 2, "--value-schema goes with --to-parquet only"),
        (("consume", "t", "--to-parquet", "f", "--value-schema", "missing"), 2, "--value-schema missing: No such file"),
        (("consume", "t", "--to-parquet", "f", "--value-schema", "THERE"), 2, "not an Avro schema"),
        (("produce", "t", "--from-parquet", "THERE"), 1, "is not a Parquet file"),
        (("produce", "t", "--from-parquet", "missing"), 1, "missing: "),
        (("produce", "t", "--key-column", "k"), 2, "--key-column goes with --from-parquet only"),
        (("produce", "t", "--from-parquet", "THERE", "-k", "k"), 2, "--from-parquet does not go with -k"),
    ],
)
def test_what_does_not_go_is_an_error(
    kafka: BlockingBroker, tmp_path: Path, arguments: tuple[str, ...], status: int, text: str
) -> None:
    there = tmp_path / "there"
    there.write_text("something else")
    done = odradek(kafka, *(str(there) if each == "THERE" else each for each in arguments))
    assert done.returncode == status, done.stderr
    assert text in done.stderr
    assert done.stderr.count("\n") == 1
    assert there.read_text() == "something else"


def test_missing_column_is_an_error(kafka: BlockingBroker, tmp_path: Path) -> None:
    topic, file = kafka.topic(), tmp_path / "numbers.parquet"
    parquet.write_table(pa.table({"number": [1]}), file)
    done = odradek(kafka, "produce", topic, "--from-parquet", file)
    assert done.returncode == 1
    assert "the table has no column value for the value (columns: number); 0 rows were sent" in done.stderr


def committed(kafka: BlockingBroker, group: str) -> list[int]:
    """The offsets of a group in the partitions that have one."""
    done = odradek(kafka, "groups", "--describe", "--group", group, "-o", "json")
    return [each["current_offset"] for each in json.loads(done.stdout) if each["current_offset"] is not None]


def test_group_commits_the_rows_of_a_complete_file(kafka: BlockingBroker, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.produce(topic, "1", "2", "3")
    arguments = ("consume", topic, "--group", topic, "--from-beginning", "--to-parquet")
    assert odradek(kafka, *arguments, tmp_path / "two.parquet", "-n", 2).returncode == 0
    assert committed(kafka, topic) == [2]
    assert odradek(kafka, *arguments, tmp_path / "rest.parquet", "-e").returncode == 0
    assert parquet.read_table(tmp_path / "rest.parquet")["value"].to_pylist() == [b"3"]


def test_group_commits_no_rows_of_an_abandoned_file(kafka: BlockingBroker, tmp_path: Path) -> None:
    topic, schema, file = kafka.topic(), tmp_path / "row.avsc", tmp_path / "rows.parquet"
    schema.write_text(json.dumps(AVRO))
    kafka.produce(topic, avro(1))
    read = ("consume", topic, "--group", topic, "--from-beginning", "--timeout-ms", 20_000, "--to-parquet", file)
    command = [sys.executable, "-m", "odradek.cli.main", *map(str, read), "--value-schema", str(schema)]
    with subprocess.Popen([*command, "-b", kafka.bootstrap_servers], stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 30
        while not file.with_suffix(".parquet.part").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        kafka.produce(topic, "text")
        assert process.wait(30) == 1
    assert committed(kafka, topic) == []
    assert os.listdir(tmp_path) == ["row.avsc"]


def test_file_that_another_command_writes_is_left_alone(kafka: BlockingBroker, tmp_path: Path) -> None:
    part = tmp_path / "rows.parquet.part"
    part.write_text("of another command")
    done = odradek(kafka, "consume", kafka.topic(), "-e", "--to-parquet", tmp_path / "rows.parquet")
    assert (done.returncode, "exists already" in done.stderr) == (1, True)
    assert part.read_text() == "of another command"
