"""`odradek offsets`: Apache's kafka-get-offsets (its GetOffsetShell)."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.names import topic_pattern
from odradek.cli.arguments.options import add_admin
from odradek.cli.records.times import timestamp_ms
from odradek.cli.session import run_admin
from odradek.cli.terminal.output import Column, show
from odradek.client.admin.requests import raise_first

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.model import OffsetAndTimestamp
    from odradek.records.topic_partition import TopicPartition

TIMES: Final = {
    "latest": -1, "earliest": -2, "max-timestamp": -3, "earliest-local": -4, "latest-tiered": -5,
    "earliest-pending-upload": -6,
}  # fmt: skip
_SELECTION: Final = re.compile(r"(?P<topic>[^:,]*)(?::(?:(?P<one>\d+)|(?P<from>\d*)-(?P<to>\d*))?)?")

COLUMNS: Final = (
    Column("TOPIC", "topic", 15),
    Column("PARTITION", "partition"),
    Column("OFFSET", "offset"),
    Column("TIMESTAMP", "timestamp", wide=True),
    Column("LEADER-EPOCH", "leader_epoch", wide=True),
)
Selection = Callable[[str, int], bool]
"""Whether a partition of a topic is wanted."""


EXAMPLES: Final = """
# print the end offsets of a topic
odradek offsets --topic greetings
# print the start offsets
odradek offsets --topic greetings --time earliest
# print the offsets of an hour ago
odradek offsets --topic-partitions greetings:0-2 --time -1h
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options for partitions and times."""
    parser.add_argument("-t", "--topic", metavar="REGEX", help="topics whose whole name matches (default: all)")
    parser.add_argument("--partitions", metavar="0,1", help="partitions of these topics (default: all)")
    parser.add_argument(
        "--topic-partitions",
        metavar="T:1,T:0-3,…",
        help="topics (regular expressions) with a partition or a range without its end",
    )
    parser.add_argument(
        "--time",
        default="latest",
        metavar="WHEN",
        help="latest, earliest, max-timestamp, …, or a time: ms, 2026-01-31T12:00, -1h",
    )
    parser.add_argument(
        "--exclude-internal-topics", action="store_true", help="leave out topics such as __consumer_offsets"
    )
    add_admin(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Print one offset for each partition; exit code 1 if one has no leader."""
    if arguments.topic_partitions is not None and (arguments.topic is not None or arguments.partitions is not None):
        raise UsageError("--topic-partitions goes neither with --topic nor with --partitions")
    wanted = selection(arguments)
    moment = time_of(arguments.time, time.time_ns() // 1_000_000)

    async def work(admin: Admin) -> tuple[dict[TopicPartition, OffsetAndTimestamp], list[TopicPartition]]:
        from odradek.client.network.metadata import TopicInfo
        from odradek.records.topic_partition import TopicPartition

        there: list[TopicPartition] = []
        leaderless: list[TopicPartition] = []
        for name, info in (await admin.describe_topics(None)).items():
            if not isinstance(info, TopicInfo) or (info.is_internal and arguments.exclude_internal_topics):
                continue
            for each in info.partitions:
                if wanted(name, each.partition):
                    (leaderless if each.leader < 0 else there).append(TopicPartition(name, each.partition))
        if not there and not leaderless:
            raise CommandError("no partition matches", "UNKNOWN_TOPIC_OR_PARTITION")
        return raise_first(await admin.list_offsets(dict.fromkeys(there, moment))), leaderless

    found, leaderless = run_admin(arguments, work)
    for key in leaderless:
        print(f"odradek offsets: {key} has no leader", file=sys.stderr)
    # Where no record is that late, there is no offset.
    rows = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "offset": at.offset if at.offset >= 0 else None,
            "timestamp": at.timestamp if at.timestamp >= 0 else None,
            "leader_epoch": at.leader_epoch if at.leader_epoch >= 0 else None,
        }
        for key, at in sorted(found.items())
    ]
    if arguments.output is None:
        for row in rows:
            print(f"{row['topic']}:{row['partition']}:{'' if row['offset'] is None else row['offset']}")
    else:
        show(rows, COLUMNS, arguments.output)
    return 1 if leaderless else 0


def time_of(text: str, now_ms: int) -> int:
    """The timestamp of ListOffsets. Raises UsageError."""
    if text in TIMES:
        return TIMES[text]
    if re.fullmatch(r"-[1-6]|\d+", text):
        return int(text)
    return timestamp_ms(text, now_ms)


def selection(arguments: argparse.Namespace) -> Selection:
    """What the options choose. Raises UsageError."""
    if arguments.topic_partitions is not None:
        rules = [rule(each) for each in arguments.topic_partitions.split(",")]
        return lambda topic, partition: any(each(topic, partition) for each in rules)
    pattern = None if arguments.topic is None else topic_pattern(arguments.topic)
    numbers: Iterable[int] | None = None
    if arguments.partitions is not None:
        try:
            numbers = {int(each) for each in arguments.partitions.split(",")}
        except ValueError:
            raise UsageError(f"--partitions {arguments.partitions}: 0,1 expected") from None
    return lambda topic, partition: (
        (pattern is None or pattern.fullmatch(topic) is not None) and (numbers is None or partition in numbers)
    )


def rule(text: str) -> Selection:
    """`TOPIC`, `TOPIC:1`, `TOPIC:0-3` (without 3), `TOPIC:5-`, `:-3`: a name may be a pattern, or missing for all."""
    found = _SELECTION.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"--topic-partitions {text}: TOPIC:1 or TOPIC:0-3 expected")
    pattern = topic_pattern(found["topic"], "topic-partitions") if found["topic"] else None
    low, high = int(found["from"] or 0), int(found["to"]) if found["to"] else None
    if found["one"]:
        low, high = int(found["one"]), int(found["one"]) + 1
    return lambda topic, partition: (
        (pattern is None or pattern.fullmatch(topic) is not None)
        and partition >= low
        and (high is None or partition < high)
    )
