"""`odradek delete-records`: Apache's kafka-delete-records (its DeleteRecordsCommand), without JSON, too."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from odradek.cli.errors import CommandError, UsageError
from odradek.cli.names import topic_partitions
from odradek.cli.options import add_admin
from odradek.cli.output import Column, show
from odradek.cli.session import run_admin

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.model import TopicPartition
    from odradek.wire.errors import KafkaError

COLUMNS = (
    Column("TOPIC", "topic", 15),
    Column("PARTITION", "partition"),
    Column("LOW-WATERMARK", "low_watermark"),
    Column("ERROR", "error"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--offset-json-file",
        metavar="FILE",
        help='{"partitions": [{"topic": "t", "partition": 1, "offset": 10}], "version": 1}; - is standard input',
    )
    parser.add_argument("--topic", action="append", default=[], metavar="NAME[:0,1]", help="topic, or some partitions")
    parser.add_argument("--before", type=int, metavar="OFFSET", help="with --topic: delete what lies before; -1: all")
    add_admin(parser)


def run(arguments: argparse.Namespace) -> int:
    if (arguments.offset_json_file is None) == (not arguments.topic):
        raise UsageError("exactly one of --offset-json-file and --topic is needed")
    if arguments.topic and (arguments.before is None or arguments.before < -1):
        raise UsageError("--topic needs --before OFFSET (or -1 for everything)")
    given = None if arguments.offset_json_file is None else read_offsets(arguments.offset_json_file)
    topics = topic_partitions(arguments.topic)

    async def work(admin: Admin) -> dict[TopicPartition, int | KafkaError]:
        from odradek.cli.groups import partitions_of

        offsets = given
        if offsets is None:
            offsets = dict.fromkeys(await partitions_of(admin, topics), arguments.before)
        return await admin.delete_records(offsets)

    results = run_admin(arguments, work)
    rows: list[dict[str, Any]] = []
    failures = []
    for key, result in sorted(results.items(), key=lambda each: each[0]):
        row: dict[str, Any] = {"topic": key.topic, "partition": key.partition, "low_watermark": None, "error": None}
        if isinstance(result, int):
            row["low_watermark"] = result
        else:
            row["error"] = result.code.name
            failures.append(f"{key}: {result}")
        rows.append(row)
    shown = COLUMNS if failures or arguments.output == "tsv" else COLUMNS[:3]
    show(rows, shown, arguments.output)
    for failure in failures:
        print(f"odradek delete-records: {failure}", file=sys.stderr)
    return 1 if failures else 0


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """Apache's JSON. Raises UsageError."""
    from odradek.client.model import TopicPartition

    try:
        if path == "-":
            document = json.load(sys.stdin)
        else:
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
    except OSError as error:
        raise UsageError(f"--offset-json-file {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"--offset-json-file {path}: {error}") from error
    offsets: dict[TopicPartition, int] = {}
    try:
        if document.get("version", 1) != 1:
            raise UsageError(f"--offset-json-file {path}: version {document['version']} is not known")
        for each in document["partitions"]:
            key = TopicPartition(str(each["topic"]), int(each["partition"]))
            if key in offsets:
                raise UsageError(f"--offset-json-file {path}: {key} occurs twice")
            offsets[key] = int(each["offset"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"--offset-json-file {path}: partitions with topic, partition and offset expected") from error
    if not offsets:
        raise CommandError(f"{path} names no partitions")
    return offsets
