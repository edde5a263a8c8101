"""`odradek elect`: have leaders elected (Apache's kafka-leader-election)."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.arguments.errors import UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.names import topic_partitions
from odradek.cli.arguments.options import add_admin, from_zero_whole
from odradek.cli.arguments.partition_files import read_partitions
from odradek.cli.session import run_admin
from odradek.cli.terminal.confirmation import add_confirmation, confirm
from odradek.cli.terminal.output import Column, show

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.records.topic_partition import TopicPartition
    from odradek.wire.errors import KafkaError

COLUMNS: Final = (
    Column("TOPIC", "topic", 20),
    Column("PARTITION", "partition"),
    Column("RESULT", "result", 10),
    Column("REASON", "reason"),
)
EXAMPLES: Final = """
# give all partitions back to their preferred leaders
odradek elect preferred --all
odradek elect preferred orders:0,1 payments
# partition 3 has lost all replicas in sync: lead with what is left, and lose the rest
odradek elect unclean orders:3 --yes
# as with kafka-leader-election.sh
odradek elect --election-type preferred --path-to-json-file partitions.json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "words",
        nargs="*",
        metavar="[preferred|unclean] TOPIC[:0,1]",
        help="the election, and topics, or some of their partitions; preferred elects the first replica in the list, "
        "unclean any live one where no replica in sync is alive, which loses the records that it lacks",
    )
    parser.add_argument("--election-type", choices=("preferred", "unclean"), type=str.lower, help=argparse.SUPPRESS)
    parser.add_argument("-t", "--topic", metavar="NAME", help="topic, with --partition")
    parser.add_argument("--partition", type=from_zero_whole, metavar="N", help="partition of --topic")
    parser.add_argument("--all", "--all-topic-partitions", action="store_true", help="all partitions of the cluster")
    parser.add_argument(
        "--path-to-json-file", metavar="FILE", help='{"partitions": [{"topic": "orders", "partition": 0}]}'
    )
    add_confirmation(parser)
    add_admin(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Elect, and print the outcome of each partition; 1 if one has failed."""
    kind, named = _kind(arguments)
    listed = _listed(arguments, named)
    if kind == "unclean":
        things = [str(each) for each in listed] if listed else list(named) or ["all partitions without a leader"]
        confirm(arguments, "elect unclean leaders, which loses the records that they lack", things)

    async def work(admin: Admin) -> dict[TopicPartition, KafkaError | None]:
        from odradek.cli.arguments.partition_selection import partitions_of
        from odradek.client.admin import ElectionType

        wanted = listed
        if wanted is None and not arguments.all:
            wanted = await partitions_of(admin, named)
        return await admin.replicas.elect(wanted, ElectionType[kind.upper()])

    return _show(arguments, kind, run_admin(arguments, work))


def _kind(arguments: argparse.Namespace) -> tuple[str, dict[str, list[int] | None]]:
    """The election and the topics among the words. Raises UsageError."""
    words = list(arguments.words)
    kind = arguments.election_type
    if words and words[0] in ("preferred", "unclean") and kind is None:
        kind = words.pop(0)
    if kind is None:
        raise UsageError("which election? `preferred` or `unclean`")
    return kind, topic_partitions(words)


def _listed(arguments: argparse.Namespace, named: dict[str, list[int] | None]) -> list[TopicPartition] | None:
    """The partitions that options name; None where words or `--all` do. Raises UsageError unless one way is used."""
    from odradek.records.topic_partition import TopicPartition

    ways = (bool(named), arguments.all, arguments.path_to_json_file is not None, arguments.topic is not None)
    if sum(ways) != 1:
        raise UsageError("exactly one is needed: TOPIC[:0,1], --topic with --partition, --all, --path-to-json-file")
    if (arguments.topic is None) != (arguments.partition is None):
        raise UsageError("--topic and --partition go together")
    if arguments.topic is not None:
        return [TopicPartition(arguments.topic, arguments.partition)]
    if arguments.path_to_json_file is not None:
        return read_partitions(arguments.path_to_json_file, "path-to-json-file")
    return None


def _show(arguments: argparse.Namespace, kind: str, found: dict[TopicPartition, KafkaError | None]) -> int:
    from odradek.wire.errors import ErrorCode

    rows: list[dict[str, Any]] = []
    for place, error in sorted(found.items()):
        needless = error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED
        result = "elected" if error is None else "not needed" if needless else "failed"
        reason = None if error is None or needless else str(error)
        rows.append({"topic": place.topic, "partition": place.partition, "result": result, "reason": reason})
    if arguments.output is not None:
        show(rows, COLUMNS, arguments.output)
        return 1 if any(each["result"] == "failed" for each in rows) else 0
    for result, heading in (
        ("elected", f"Successfully completed leader election ({kind.upper()}) for partitions"),
        ("not needed", "Valid replica already elected for partitions"),
    ):
        places = [f"{each['topic']}-{each['partition']}" for each in rows if each["result"] == result]
        if places:
            print(f"{heading} {', '.join(places)}")
    failed = [each for each in rows if each["result"] == "failed"]
    for each in failed:
        print(f"odradek elect: {each['topic']}-{each['partition']}: {each['reason']}", file=sys.stderr)
    if not rows:
        print("No partition needs an election.")
    return 1 if failed else 0
