"""Names of datasets, and what a query reads and writes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.spark.datasets import Dataset, Written, path, read_topics, sink_topic, table, topic
from odradek.spark.options import SourceOptions
from odradek.spark.stores.databases import Postgres, Sqlite

CLIENT = (("bootstrap_servers", "one:9092, two:9092"),)


def test_first_server_stands_for_a_cluster() -> None:
    assert topic(CLIENT, "in") == Dataset("kafka://one:9092", "in")
    assert topic((("bootstrap_servers", "SSL://one:9093"),), "in") == Dataset("kafka://one:9093", "in")


@pytest.mark.parametrize(
    ("location", "wanted"),
    [
        ("s3a://bucket/lake/t/", ("s3a://bucket", "lake/t")),
        ("file:///lake/t", ("file", "/lake/t")),
        ("/lake/t", ("file", "/lake/t")),
    ],
)
def test_folders_have_the_names_of_their_stores(location: str, wanted: tuple[str, str]) -> None:
    assert path(location) == wanted


def test_relative_folder_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert path("t") == Dataset("file", str(tmp_path / "t"))


def test_tables_have_the_names_of_their_databases() -> None:
    there = Postgres("postgresql://me:secret@db:5433/shop")
    assert table(there, "views") == Dataset("postgres://db:5433", "shop.public.views")
    assert table(Postgres("host=db dbname=shop user=me"), "web.views") == Dataset(
        "postgres://db:5432", "shop.web.views"
    )
    assert table(Sqlite("/data/views.db"), "views") == Dataset("file", "/data/views.db/views")
    other: Any = SimpleNamespace(placeholder="?")
    assert table(other, "views") is None


def test_topics_that_were_read_are_those_with_offsets() -> None:
    options = SourceOptions.parse({"kafka.bootstrap.servers": "b:1", "subscribepattern": "i.*"}, streaming=True)
    source = {"endOffset": {"in": {"0": 3}, "also": {"0": 1}, "cluster.id:c": {}, "topic.id:in:x": {}}}
    report = {"sources": [source, {"endOffset": {"foreign": {"0": 1}}}, {"endOffset": 7}]}
    assert read_topics(report, [options, None, options]) == [
        Dataset("kafka://b:1", "in"),
        Dataset("kafka://b:1", "also"),
    ]
    assert read_topics({}, [options]) == []


def frame(query_id: str | None, *, is_connect: bool = False) -> Any:
    context = SimpleNamespace(getLocalProperty=lambda name: query_id if name == "sql.streaming.queryId" else None)
    return SimpleNamespace(sparkSession=SimpleNamespace() if is_connect else SimpleNamespace(_sc=context))


def test_batches_note_what_they_write_once() -> None:
    written, dataset = Written(), Dataset("file", "/lake/t")
    for _ in range(2):
        written.note(frame("q"), dataset)
    written.note(frame("q"), None)
    written.note(frame(None), dataset)
    written.note(frame("q", is_connect=True), Dataset("file", "/other"))
    assert written.of("q") == [dataset]
    assert written.of("other") == []


def plan(name: str = "odradek", kind: str = "WriteToMicroBatchDataSource", **options: str) -> Any:
    """As Java shows the plan of a query."""

    def get(key: str) -> Any:
        return SimpleNamespace(isDefined=lambda: key in options, get=lambda: options[key])

    shown = SimpleNamespace(
        getClass=lambda: SimpleNamespace(getSimpleName=lambda: kind),
        table=lambda: SimpleNamespace(name=lambda: name),
        writeOptions=lambda: SimpleNamespace(get=get),
    )
    return SimpleNamespace(logicalPlan=lambda: shown)


def test_topic_of_the_sink_is_in_the_plan() -> None:
    given = {"kafka.bootstrap.servers": "b:1", "topic": "out"}
    assert sink_topic(plan(**given)) == Dataset("kafka://b:1", "out")
    assert sink_topic(plan(**{"kafka.bootstrap.servers": "b:1"})) is None
    assert sink_topic(plan(name="console", **given)) is None
    assert sink_topic(plan(kind="WriteToMicroBatchDataSourceV1", **given)) is None
    assert sink_topic(SimpleNamespace()) is None
