"""`odradek log-dirs`: what lies in the brokers' log directories, and moves between them (Apache's kafka-log-dirs)."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.names import literal_topics, topic_partitions
from odradek.cli.arguments.options import add_admin, broker_ids, from_zero_whole, is_given
from odradek.cli.session import run_admin
from odradek.cli.terminal.output import DOCUMENTS, Column, show, show_document

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.admin.log_dirs import LogDirDescription
    from odradek.wire.errors import KafkaError

ACTIONS: Final = ("describe", "move")
DIRECTORY_COLUMNS: Final = (
    Column("BROKER", "broker"),
    Column("DIRECTORY", "log_dir", 20),
    Column("STATE", "state", 7),
    Column("REPLICAS", "replica_count"),
    Column("BYTES", "size_bytes", 10),
    Column("MAX-LAG", "max_lag"),
    Column("FUTURE", "future_count"),
    Column("USABLE", "usable_bytes", 10),
    Column("TOTAL", "total_bytes"),
)
REPLICA_COLUMNS: Final = (
    Column("BROKER", "broker"),
    Column("DIRECTORY", "log_dir", 20),
    Column("TOPIC", "topic", 20),
    Column("PARTITION", "partition"),
    Column("BYTES", "size_bytes", 10),
    Column("LAG", "offset_lag"),
    Column("FUTURE", "is_future"),
)
EXAMPLES: Final = """
odradek log-dirs
odradek log-dirs --broker-list 1,2 --topic-list orders --replicas
odradek log-dirs move --broker 1 --topic orders:0,1 --to /disk2/odradek --wait
"""
_LOOK_SECONDS: Final = 0.2


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="describe", help="describe is the default")
    parser.add_argument("--describe", action="store_true", help=argparse.SUPPRESS)
    group = parser.add_argument_group("describe")
    group.add_argument("--broker-list", type=broker_ids, metavar="ID,…", help="brokers to include (default: all)")
    group.add_argument("--topic-list", metavar="NAME,…", help="topics to include (default: all)")
    group.add_argument("--replicas", action="store_true", help="a row for each replica: size, lag, future or not")
    group = parser.add_argument_group("move")
    group.add_argument("--broker", type=from_zero_whole, metavar="ID", help="broker whose replicas move")
    group.add_argument(
        "-t", "--topic", action="append", default=[], metavar="NAME[:0,1]", help="replicas to move (repeatable)"
    )
    group.add_argument("--to", metavar="DIR", help="log directory of that broker, as an absolute path")
    group.add_argument("--wait", action="store_true", help="return when the replicas have moved")
    add_admin(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Check which options go together, and run the action; the exit status."""
    of_describe, of_move = ("broker-list", "topic-list", "replicas"), ("broker", "topic", "to", "wait")
    for option in of_describe if arguments.action == "move" else of_move:
        if is_given(arguments, option):
            raise UsageError(f"--{option} does not go with {arguments.action}")
    return move(arguments) if arguments.action == "move" else describe(arguments)


def describe(arguments: argparse.Namespace) -> int:
    """Print directories, or replicas; 1 if a directory is offline or a broker cannot report."""
    topics = None if arguments.topic_list is None else literal_topics(arguments.topic_list, "topic-list")

    async def work(admin: Admin) -> dict[int, dict[str, LogDirDescription] | KafkaError]:
        from odradek.cli.arguments.partition_selection import partitions_of

        live = [each.node_id for each in (await admin.describe_cluster()).brokers]
        for broker in arguments.broker_list or ():
            if broker not in live:
                raise CommandError(f"there is no broker {broker} now", "BROKER_NOT_AVAILABLE")
        partitions = None if topics is None else await partitions_of(admin, dict.fromkeys(topics))
        return await admin.log_dirs.describe(arguments.broker_list, partitions)

    from odradek.wire.errors import KafkaError

    directories: list[dict[str, Any]] = []
    for broker, found in sorted(run_admin(arguments, work).items()):
        if isinstance(found, KafkaError):
            raise CommandError(f"broker {broker}: {found}", found.code.name)
        directories += [_directory(broker, path, each) for path, each in sorted(found.items())]
    if arguments.replicas:
        rows = [
            {"broker": each["broker"], "log_dir": each["log_dir"], **replica}
            for each in directories
            for replica in each["replicas"]
        ]
        show(rows, REPLICA_COLUMNS, arguments.output)
    elif arguments.output in DOCUMENTS:
        show_document(directories, arguments.output)
    else:
        show(directories, DIRECTORY_COLUMNS, arguments.output)
    return 1 if any(each["error"] for each in directories) else 0


def _directory(broker: int, path: str, found: LogDirDescription) -> dict[str, Any]:
    replicas = [
        {
            "topic": place.topic,
            "partition": place.partition,
            "size_bytes": each.size_bytes,
            "offset_lag": each.offset_lag,
            "is_future": each.is_future,
        }
        for place, each in sorted(found.replicas.items())
    ]
    return {
        "broker": broker,
        "log_dir": path,
        "state": "offline" if found.error else "online",
        "error": None if found.error is None else str(found.error),
        "size_bytes": sum(each.size_bytes for each in found.replicas.values()),
        "total_bytes": found.total_bytes,
        "usable_bytes": found.usable_bytes,
        "max_lag": max((each.offset_lag for each in found.replicas.values()), default=0),
        "replica_count": len(replicas),
        "future_count": sum(each.is_future for each in found.replicas.values()),
        "replicas": replicas,
    }


def move(arguments: argparse.Namespace) -> int:
    """Start moves of replicas to another directory of their broker; 1 if one was rejected."""
    for option in ("broker", "topic", "to"):
        if not is_given(arguments, option):
            raise UsageError(f"move needs --{option}")
    if not arguments.to.startswith("/"):
        raise UsageError(f"--to {arguments.to}: an absolute path expected")
    named = topic_partitions(arguments.topic)

    async def work(admin: Admin) -> int:
        from odradek.cli.arguments.partition_selection import partitions_of
        from odradek.client.admin import raise_first
        from odradek.client.admin.log_dirs import TopicPartitionReplica
        from odradek.client.reports.reassignment import is_in_directory

        wanted = [TopicPartitionReplica(*place, arguments.broker) for place in await partitions_of(admin, named)]
        live = [each.node_id for each in (await admin.describe_cluster()).brokers]
        if arguments.broker not in live:
            raise CommandError(f"there is no broker {arguments.broker} now", "BROKER_NOT_AVAILABLE")
        outcome = await admin.log_dirs.alter(dict.fromkeys(wanted, arguments.to))
        for replica, error in outcome.items():
            if error is not None:
                raise CommandError(f"{replica.topic_partition}: {error}", error.code.name)
        while arguments.wait:
            found = await admin.log_dirs.describe_replicas(wanted)
            moving = [
                each
                for each, at in raise_first(found).items()
                if at.future is not None or not is_in_directory(at.current, arguments.to)
            ]
            if not moving:
                break
            for each in moving:
                if raise_first(found)[each].future is None:
                    raise CommandError(f"{each.topic_partition}: the broker has given the move up", "NOT_MOVED")
            await asyncio.sleep(_LOOK_SECONDS)
        return len(wanted)

    count = run_admin(arguments, work)
    if arguments.output in DOCUMENTS:
        show_document({"moved" if arguments.wait else "moving": count, "log_dir": arguments.to}, arguments.output)
    else:
        state = "moved" if arguments.wait else "are moving"
        print(f"{count} replicas {state} to {arguments.to} on broker {arguments.broker}.")
    return 0
