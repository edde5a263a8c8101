"""FilesSink and DirectorySource on S3, which moto serves."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import boto3
import pytest
from pyarrow import parquet

from odradek.connect.errors import ConnectError, PositionMoved, TargetAway
from odradek.connect.model import Batch
from odradek.connect.object_folder import ObjectFolder
from odradek.connect.plugins import check_config, find
from odradek.connect.sinks.objects import object_name
from odradek.connect.sources.source import StoredOffsets
from odradek.records.topic_partition import TopicPartition
from tests.s3 import BUCKET, S3, s3_server
from tests.unit.connect.test_connect_sinks import batch, record, sink_of, used
from tests.unit.connect.test_connect_sources import polled, source_of, values

ORDERS = TopicPartition("orders", 0)
BOTO = {"aws_access_key_id": "user", "aws_secret_access_key": "secret", "region_name": "us-east-1"}


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    """The server of this module."""
    with s3_server() as started:
        yield started


@pytest.fixture
def s3(server: S3) -> S3:
    """A folder of the test's own."""
    return server._replace(url=f"{server.url}/{uuid4().hex[:8]}/in")


def folder(s3: S3) -> ObjectFolder:
    return ObjectFolder(s3.url, s3.options)


def content(s3: S3) -> dict[str, bytes]:
    """The sink's objects by name."""
    found = ObjectFolder(f"{s3.url}/orders/partition=0", s3.options)
    return {f"orders/partition=0/{each.name}": found.read(each, 0, each.size) for each in found.objects()}


def files_sink(s3: S3, **more: str) -> Any:
    return sink_of("FilesSink", {"directory": s3.url, **s3.settings, **more})


def test_objects_are_named_by_positions_and_have_the_next_one(s3: S3) -> None:
    used(files_sink(s3), batch(record(3, {"a": 1}), record(7, "x", key="k")), batch(record(9, 2)))
    found = content(s3)
    assert list(found) == [object_name(ORDERS, 0, ".jsonl"), object_name(ORDERS, 8, ".jsonl")]
    lines = [json.loads(line) for line in found[object_name(ORDERS, 0, ".jsonl")].splitlines()]
    assert [(each["offset"], each["key"], each["value"]) for each in lines] == [(3, None, {"a": 1}), (7, "k", "x")]
    used(files_sink(s3), batch(record(12, 3)))
    assert list(content(s3))[2:] == [object_name(ORDERS, 10, ".jsonl")]


def csv_rows(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode(), newline="")))


def parquet_rows(data: bytes) -> list[dict[str, Any]]:
    return [row["value"] for row in parquet.read_table(io.BytesIO(data)).to_pylist()]


@pytest.mark.parametrize(
    ("kind", "rows_of", "rows"),
    [
        ("csv", csv_rows, [[{"a": "1", "b": "x,y"}, {"a": "2", "b": "z"}], [{"a": "3", "b": ""}]]),
        ("parquet", parquet_rows, [[{"a": 1, "b": "x,y"}, {"a": 2, "b": "z"}], [{"a": 3}]]),
    ],
)
def test_objects_in_csv_and_parquet_are_continued_by_the_next_task(
    s3: S3, kind: str, rows_of: Callable[[bytes], list[Any]], rows: list[list[Any]]
) -> None:
    used(files_sink(s3, format=kind), batch(record(3, {"a": 1, "b": "x,y"}), record(7, {"a": 2, "b": "z"})))
    last = {"a": 3, "b": ""} if kind == "csv" else {"a": 3}
    used(files_sink(s3, format=kind), batch(record(9, last)))
    found = content(s3)
    assert list(found) == [object_name(ORDERS, 0, f".{kind}"), object_name(ORDERS, 8, f".{kind}")]
    assert [rows_of(data) for data in found.values()] == rows


def test_replaced_task_writes_nothing(s3: S3) -> None:
    """Both at the first object and later, whatever offsets the tasks have gathered."""

    async def run() -> None:
        old, new = files_sink(s3), files_sink(s3)
        for each in (old, new):
            assert await each.positions([ORDERS]) == {}
        await new.write(batch(record(0, 1), record(1, 2)))
        with pytest.raises(PositionMoved, match="another task has written"):
            await old.write(batch(record(1, 2), record(2, 3)))
        for each in (old, new):
            assert await each.positions([ORDERS]) == {ORDERS: 2}
        await old.write(batch(record(2, 3)))
        await old.write(batch(record(3, 4)))
        with pytest.raises(PositionMoved):
            await new.write(batch(record(2, 3), record(3, 4), record(4, 5)))
        for each in (old, new):
            await each.close()

    asyncio.run(run())
    written = [json.loads(line)["offset"] for data in content(s3).values() for line in data.splitlines()]
    assert written == [0, 1, 2, 3]


def test_objects_of_a_topic_that_was_created_again_fail_the_task(s3: S3) -> None:
    """Its records are not those of the objects, and must not be taken for them."""

    async def run(again: Batch) -> None:
        sink = files_sink(s3)
        try:
            await sink.positions([ORDERS])
            await sink.write(again)
        finally:
            await sink.close()

    asyncio.run(run(batch(record(0, 1), record(1, 2))))
    for again in (batch(record(0, 3)), batch(record(0, 3), record(1, 4)), batch(record(1, 4), record(2, 5))):
        with pytest.raises(ConnectError, match="created again"):
            asyncio.run(run(again))


def test_object_of_another_writer_is_an_error(s3: S3) -> None:
    folder(s3).create(object_name(ORDERS, 0, ".jsonl"), b"", {})
    with pytest.raises(ConnectError, match="has no odradek-next-offset"):
        used(files_sink(s3))


def test_lines_of_objects_are_read_once_and_replaced_objects_again(s3: S3) -> None:
    settings = {
        "directory": s3.url,
        "topic": "t",
        "pattern": "*.csv",
        "format": "csv",
        "batch.size": "2",
        **s3.settings,
    }
    files = folder(s3)
    files.create("b.csv", b"n\n4", {})
    files.create("a.csv", b"n\n1\n2\n3\n", {})
    files.create("a.txt", b"n\n0\n", {})
    files.create("old/a.csv", b"n\n0\n", {})
    offsets = StoredOffsets()
    assert values(polled(source_of("DirectorySource", settings), offsets, polls=2)) == [
        {"n": "1"},
        {"n": "2"},
        {"n": "3"},
    ]
    assert values(polled(source_of("DirectorySource", settings), offsets, polls=3)) == [{"n": "4"}]
    files.create("c.csv", b"n\n5\n", {})
    replaced(s3, "b.csv", b"n\n6")
    assert values(polled(source_of("DirectorySource", settings), offsets, polls=3)) == [{"n": "6"}, {"n": "5"}]


def replaced(s3: S3, name: str, data: bytes) -> None:
    client = boto3.client("s3", endpoint_url=s3.endpoint, **BOTO)
    client.put_object(Bucket=BUCKET, Key=f"{s3.url.removeprefix(f's3://{BUCKET}/')}/{name}", Body=data)


def test_object_that_is_replaced_while_it_is_read_is_read_again(s3: S3) -> None:
    files = folder(s3)
    files.create("a", b"1\n2\n", {})
    (at,) = files.objects()
    replaced(s3, "a", b"3\n4\n")
    with pytest.raises(TargetAway, match="replaced while it was read"):
        files.open(at).readline()


def test_bucket_that_is_missing_fails_the_task(s3: S3) -> None:
    with pytest.raises(ConnectError, match="NoSuchBucket") as caught:
        used(sink_of("FilesSink", {"directory": "s3://none/x", **s3.settings}), batch(record(0, 1)))
    assert type(caught.value) is ConnectError


def test_store_that_does_not_listen_is_away(s3: S3) -> None:
    settings = {**s3.settings, "storage.AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    with pytest.raises(TargetAway):
        used(sink_of("FilesSink", {"directory": s3.url, **settings}), batch(record(0, 1)))


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"directory": "ftp://host/x"}, r"a folder or s3://BUCKET/PREFIX expected"),
        ({"directory": "s3://"}, r"s3://BUCKET/PREFIX expected"),
        ({"storage.AWS_REGIO": "x"}, "aws_regio"),
        ({"directory": "/tmp", "storage.AWS_REGION": "x"}, "storage.AWS_REGION needs s3://"),
    ],
)
def test_wrong_folder_or_option_is_named(change: dict[str, str], part: str) -> None:
    plugin = find("FilesSink")
    assert plugin is not None
    config = {"name": "c", "connector.class": "FilesSink", "topics": "orders", "directory": "s3://b/x", **change}
    (line,) = check_config(plugin, config).errors["directory"]
    assert part in line


def test_position_of_a_former_topic_is_an_error_on_s3(s3: S3) -> None:
    sink = files_sink(s3)
    sink.note_topics({"orders": b"\1" * 16})
    used(sink, batch(record(0, {"a": 1})))
    same, other = files_sink(s3), files_sink(s3)
    same.note_topics({"orders": b"\1" * 16})
    used(same, batch(record(1, {"a": 2})))
    other.note_topics({"orders": b"\2" * 16})
    with pytest.raises(ConnectError, match="created again"):
        used(other, batch(record(0, {"a": 3})))
