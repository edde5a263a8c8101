"""`odradek delete-records`: Apache's kafka-delete-records (its DeleteRecordsCommand), also without a JSON file."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.names import topic_partitions
from odradek.cli.arguments.options import add_admin
from odradek.cli.session import run_admin
from odradek.cli.terminal.confirmation import add_confirmation, confirm
from odradek.cli.terminal.output import Column, show
from odradek.client.admin.requests import raise_first

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.records.topic_partition import TopicPartition
    from odradek.wire.errors import KafkaError

COLUMNS = (
    Column("TOPIC", "topic", 15),
    Column("PARTITION", "partition"),
    Column("LOW-WATERMARK", "low_watermark"),
    Column("ERROR", "error"),
)


PLAN_COLUMNS = (
    Column("TOPIC", "topic", 15),
    Column("PARTITION", "partition"),
    Column("FROM", "start"),
    Column("BEFORE", "before"),
    Column("OFFSETS", "count"),
)


EXAMPLES: Final = """
# show what would be deleted
odradek delete-records --topic greetings --before -1 --dry-run
# delete the first records of a partition
odradek delete-records --topic greetings:0 --before 100
# use a file of Apache's tool
odradek delete-records --offset-json-file offsets.json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options for partitions and offsets, or the JSON file with them."""
    parser.add_argument(
        "--offset-json-file",
        metavar="FILE",
        help='{"partitions": [{"topic": "t", "partition": 1, "offset": 10}], "version": 1}; - is standard input',
    )
    parser.add_argument(
        "-t", "--topic", action="append", default=[], metavar="NAME[:0,1]", help="topic, or some of its partitions"
    )
    parser.add_argument(
        "--before", type=int, metavar="OFFSET", help="with --topic: delete the records before this offset; -1: all"
    )
    parser.add_argument("--dry-run", action="store_true", help="show which offsets would be deleted")
    add_confirmation(parser)
    add_admin(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Delete records below the offsets after a confirmation; exit code 1 if a partition failed."""
    if (arguments.offset_json_file is None) == (not arguments.topic):
        raise UsageError("exactly one of --offset-json-file and --topic is needed")
    if arguments.before is not None and not arguments.topic:
        raise UsageError("--before goes with --topic: the file has the offsets")
    if arguments.topic and (arguments.before is None or arguments.before < -1):
        raise UsageError("--topic needs --before OFFSET (or -1 for all records)")
    if arguments.topic:
        offsets = named_offsets(arguments)
    else:
        offsets = read_offsets(arguments.offset_json_file)
    if arguments.dry_run:
        show([row for row in plan(arguments, offsets) if row["count"]], PLAN_COLUMNS, arguments.output)
        return 0
    if arguments.topic and len(offsets) > 1 and not arguments.yes:
        found = [row for row in plan(arguments, offsets) if row["count"]]
        things = [f"{row['topic']}-{row['partition']}: offsets {row['start']} to {row['before'] - 1}" for row in found]
        if len(found) > 1:
            confirm(arguments, f"delete records of {len(found)} partitions", things)

    async def work(admin: Admin) -> dict[TopicPartition, int | KafkaError]:
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


def named_offsets(arguments: argparse.Namespace) -> dict[TopicPartition, int]:
    """The partitions of `--topic` with the offset of `--before`. Raises CommandError for one that does not exist."""
    from odradek.cli.arguments.partition_selection import partitions_of

    topics = topic_partitions(arguments.topic)
    partitions = run_admin(arguments, lambda admin: partitions_of(admin, topics))
    return dict.fromkeys(partitions, arguments.before)


def plan(arguments: argparse.Namespace, offsets: dict[TopicPartition, int]) -> list[dict[str, Any]]:
    """The offsets that a deletion would remove from each partition."""
    from odradek.client.model import EARLIEST, LATEST

    async def work(admin: Admin) -> list[dict[str, Any]]:
        starts = raise_first(await admin.list_offsets(dict.fromkeys(offsets, EARLIEST)))
        ends = raise_first(await admin.list_offsets(dict.fromkeys(offsets, LATEST)))
        rows = []
        for key, offset in sorted(offsets.items()):
            start, end = starts[key].offset, ends[key].offset
            before = end if offset < 0 else min(offset, end)
            row = {"topic": key.topic, "partition": key.partition, "start": start, "before": before}
            rows.append({**row, "count": max(0, before - start)})
        return rows

    return run_admin(arguments, work)


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """Apache's JSON. Raises UsageError."""
    from odradek.records.topic_partition import TopicPartition

    try:
        if path == "-":
            document = json.load(sys.stdin)
        else:
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
    except OSError as error:
        raise UsageError(f"--offset-json-file {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--offset-json-file {path}: {error}") from error
    offsets: dict[TopicPartition, int] = {}
    try:
        if document.get("version", 1) != 1:
            raise UsageError(f"--offset-json-file {path}: version {document['version']} is not supported, only 1")
        for each in document["partitions"]:
            if any(type(each[name]) is not int for name in ("partition", "offset")):
                raise TypeError("a fraction or text would be another offset than the one that is meant")
            key = TopicPartition(str(each["topic"]), each["partition"])
            if key in offsets:
                raise UsageError(f"--offset-json-file {path}: {key} occurs twice")
            offsets[key] = each["offset"]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"--offset-json-file {path}: partitions with topic, partition and offset expected") from error
    if not offsets:
        raise CommandError(f"{path} contains no partitions")
    return offsets
