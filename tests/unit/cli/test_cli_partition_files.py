"""JSON files of partitions and plans: every mistake names the file and the entry."""

import json
from pathlib import Path
from typing import Any

import pytest

from odradek.cli.actions.reassignment_plan import plan_text, read_plan
from odradek.cli.arguments.errors import UsageError
from odradek.cli.arguments.partition_files import read_partitions
from odradek.records.topic_partition import TopicPartition


def written(path: Path, document: Any) -> str:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "not JSON"),
        ([], "expected"),
        ({"partitions": []}, "empty"),
        ({"version": 2, "partitions": [{}]}, "version 2"),
        ({"partitions": [1]}, "objects"),
        ({"partitions": [{"partition": 0}]}, '"topic" is missing'),
        ({"partitions": [{"topic": "t", "partition": "0"}]}, "not a number"),
        ({"partitions": [{"topic": "t", "partition": True}]}, "not a number"),
        ({"partitions": [{"topic": "t", "partition": 0}] * 2}, "t-0 is named twice"),
    ],
)
def test_partition_file_with_a_mistake_is_rejected(tmp_path: Path, document: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_partitions(written(tmp_path / "p.json", document), "path-to-json-file")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, "not a list of broker ids"),
        ({"replicas": []}, "not a list of broker ids"),
        ({"replicas": ["1"]}, "not a list of broker ids"),
        ({"replicas": [1, 1]}, "a broker twice"),
        ({"replicas": [1, 2], "log_dirs": ["any"]}, "an entry for each replica"),
    ],
)
def test_plan_with_a_mistake_is_rejected(tmp_path: Path, entry: dict[str, Any], message: str) -> None:
    document = {"version": 1, "partitions": [{"topic": "t", "partition": 0, **entry}]}
    with pytest.raises(UsageError, match=message):
        read_plan(written(tmp_path / "plan.json", document))


def test_plan_keeps_directories_but_any(tmp_path: Path) -> None:
    entry = {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/disk2"]}
    plan = read_plan(written(tmp_path / "plan.json", {"version": 1, "partitions": [entry]}))
    assert plan.replicas == {TopicPartition("t", 0): (1, 2)}
    assert plan.log_dirs == {(TopicPartition("t", 0), 2): "/disk2"}


def test_printed_plan_is_read_again(tmp_path: Path) -> None:
    replicas = {TopicPartition("t", 0): (1, 2), TopicPartition("u", 3): (3,)}
    assert read_plan(written(tmp_path / "plan.json", plan_text(replicas))).replicas == replicas
