"""JSON files that name partitions, in the forms of Apache's kafka-leader-election and kafka-reassign-partitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from odradek.cli.arguments.errors import UsageError
from odradek.records.topic_partition import TopicPartition


def read_document(path: str, option: str) -> Any:
    """The JSON document in a file. Raises UsageError."""
    try:
        return json.loads(Path(path).read_text())
    except OSError as error:
        raise UsageError(f"--{option} {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--{option} {path}: this is not JSON: {error}") from error


def entries_of(document: Any, name: str, where: str) -> list[dict[str, Any]]:
    """The objects below `name` in a document of version 1, or of none. Raises UsageError."""
    if not isinstance(document, dict) or not isinstance(document.get(name), list):
        raise UsageError(f'{where}: {{"version": 1, "{name}": […]}} expected')
    if document.get("version", 1) != 1:
        raise UsageError(f"{where}: version {document['version']!r} is not supported, only 1")
    found: list[dict[str, Any]] = document[name]
    if not found:
        raise UsageError(f'{where}: "{name}" is empty')
    if not all(isinstance(each, dict) for each in found):
        raise UsageError(f'{where}: "{name}" lists objects')
    return found


def partition_of(entry: dict[str, Any], where: str) -> TopicPartition:
    """The `topic` and `partition` of an object. Raises UsageError."""
    topic, partition = entry.get("topic"), entry.get("partition")
    if not isinstance(topic, str) or not topic:
        raise UsageError(f'{where}: "topic" is missing in {json.dumps(entry)}')
    if type(partition) is not int or partition < 0:
        raise UsageError(f'{where}: "partition" of topic {topic} is not a number from 0 on')
    return TopicPartition(topic, partition)


def read_partitions(path: str, option: str) -> list[TopicPartition]:
    """The partitions of `{"partitions": [{"topic": …, "partition": …}]}`, each once. Raises UsageError."""
    where = f"--{option} {path}"
    found = [partition_of(each, where) for each in entries_of(read_document(path, option), "partitions", where)]
    unique(found, where)
    return found


def unique(partitions: list[TopicPartition], where: str) -> None:
    """Raise UsageError when a partition is named twice."""
    twice = sorted({each for each in partitions if partitions.count(each) > 1})
    if twice:
        raise UsageError(f"{where}: {twice[0]} is named twice")
