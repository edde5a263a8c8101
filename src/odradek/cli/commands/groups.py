"""`odradek groups`: Apache's kafka-consumer-groups (its ConsumerGroupCommand)."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.arguments.errors import UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.group_selection import confirmed_groups
from odradek.cli.arguments.names import topic_partitions
from odradek.cli.arguments.options import add_admin, adopt_positional, exactly_one, is_given, only_with
from odradek.cli.arguments.partition_selection import partitions_of
from odradek.cli.session import run_admin
from odradek.cli.terminal.confirmation import add_confirmation
from odradek.cli.terminal.output import DOCUMENTS, Column, show
from odradek.cli.terminal.watching import add_watch

if TYPE_CHECKING:
    from odradek.client.admin import Admin, GroupListing
    from odradek.records.topic_partition import TopicPartition
    from odradek.wire.errors import KafkaError

ACTIONS: Final = ("list", "describe", "delete", "delete-offsets", "reset-offsets")
SCENARIOS: Final = (
    "to-earliest", "to-latest", "to-current", "to-offset", "to-datetime", "by-duration", "shift-by", "from-file",
)  # fmt: skip
STATES: Final = (
    "Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Dead", "Assigning", "Reconciling", "NotReady",
)  # fmt: skip
TYPES: Final = ("Classic", "Consumer", "Share", "Streams")

LIST_COLUMNS: Final = (
    Column("GROUP", "group", 25),
    Column("STATE", "state", 20),
    Column("TYPE", "type", 20),
    Column("PROTOCOL", "protocol_type"),
    Column("COORDINATOR", "coordinator_id"),
)
DELETED_COLUMNS: Final = (
    Column("TOPIC", "topic", 15),
    Column("PARTITION", "partition", 10),
    Column("STATUS", "status"),
)


EXAMPLES: Final = """
# list groups
odradek groups
# show offsets and lag of a group
odradek groups family
# follow the lag of a group
odradek groups --describe --group family --watch
# show members and their assignments
odradek groups --describe --group family --members --verbose
# show what a reset to the beginning would set
odradek groups --reset-offsets --group family --topic greetings --to-earliest
# go back one hour in two partitions
odradek groups --reset-offsets --group family --topic greetings:0,1 --by-duration PT1H --execute
# delete a group with its offsets
odradek groups --delete --group family
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the actions on groups and their options."""
    parser.add_argument("positional", nargs="?", metavar="GROUP", help="the same as --group GROUP")
    actions = parser.add_argument_group("actions (default: --describe with a group, --list without)")
    actions.add_argument("--list", action="store_true", help="list groups, with their states and types if asked for")
    actions.add_argument("--describe", action="store_true", help="show offsets and lag, --members or --state of groups")
    actions.add_argument("--delete", action="store_true", help="delete groups without members, with their offsets")
    actions.add_argument("--delete-offsets", action="store_true", help="delete committed offsets of topics")
    actions.add_argument("--reset-offsets", action="store_true", help="set offsets of a group without members")
    parser.add_argument("-g", "--group", action="append", default=[], metavar="ID", help="group id (repeatable)")
    parser.add_argument("--all-groups", action="store_true", help="all groups of consumers")
    parser.add_argument(
        "-t", "--topic", action="append", default=[], metavar="NAME[:0,1]", help="topic, or some of its partitions"
    )
    parser.add_argument("--all-topics", action="store_true", help="all topics with a committed offset of the group")
    describe = parser.add_argument_group("with --describe")
    describe.add_argument("--offsets", action="store_true", help="show offsets and lag of each partition (the default)")
    describe.add_argument("--members", action="store_true", help="show the members")
    describe.add_argument("--verbose", action="store_true", help="show more columns")
    add_watch(describe)
    parser.add_argument(
        "--state",
        nargs="?",
        const="",
        metavar="STATE,…",
        help="show the state of each group; with --list: only groups in these states",
    )
    parser.add_argument("--type", nargs="?", const="", metavar="TYPE,…", help="with --list: only groups of these types")
    reset = parser.add_argument_group("with --reset-offsets")
    reset.add_argument("--to-earliest", action="store_true", help="to the first record of each partition")
    reset.add_argument("--to-latest", action="store_true", help="to the end of each partition")
    reset.add_argument("--to-current", action="store_true", help="to the committed offset, else to the end")
    reset.add_argument("--to-offset", type=int, metavar="N", help="to this offset")
    reset.add_argument("--to-datetime", metavar="TIME", help="to the first record since 2026-01-31T12:00 (UTC)")
    reset.add_argument("--by-duration", metavar="DURATION", help="to the first record of the last PT1H30M or 1h30m")
    reset.add_argument("--shift-by", type=int, metavar="N", help="forward by N records, or back if N is negative")
    reset.add_argument("--from-file", metavar="CSV", help="to the offsets in a file that --export has printed")
    reset.add_argument("--dry-run", action="store_true", help="show the new offsets without setting them (the default)")
    reset.add_argument("--execute", action="store_true", help="set the new offsets")
    reset.add_argument("--export", action="store_true", help="print the new offsets as CSV")
    add_confirmation(parser, compatible="behave like kafka-consumer-groups.sh: no deletion or reset is confirmed")
    add_admin(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Execute the action; the exit code."""
    adopt_positional(arguments, "group", ACTIONS)
    action = exactly_one(arguments, ACTIONS, default="describe" if arguments.group or arguments.all_groups else "list")
    check(arguments, action)
    if action == "list":
        return list_groups(arguments)
    if action == "describe":
        from odradek.cli.actions.group_details import describe, watch

        return watch(arguments) if arguments.watch else describe(arguments)
    if action == "reset-offsets":
        from odradek.cli.actions.reset_offsets import reset

        return reset(arguments, exactly_one(arguments, SCENARIOS, "way to reset"))
    return delete(arguments) if action == "delete" else delete_offsets(arguments)


def check(arguments: argparse.Namespace, action: str) -> None:
    """What goes with what, as ConsumerGroupCommand has it. Raises UsageError."""
    if action != "list" and not arguments.group and not arguments.all_groups:
        raise UsageError(f"--{action} needs --group or --all-groups")
    if arguments.group and arguments.all_groups:
        raise UsageError("--group and --all-groups exclude each other")
    if action == "delete-offsets" and (len(arguments.group) != 1 or not arguments.topic):
        raise UsageError("--delete-offsets needs one --group, and --topic")
    only_with(arguments, action, ("yes",), ("delete", "reset-offsets"))
    only_with(arguments, action, ("members", "offsets", "verbose", "watch"), ("describe",))
    only_with(arguments, action, ("state",), ("list", "describe"))
    only_with(arguments, action, ("type",), ("list",))
    only_with(arguments, action, ("topic",), ("delete-offsets", "reset-offsets"))
    only_with(arguments, action, (*SCENARIOS, "dry-run", "execute", "export", "all-topics"), ("reset-offsets",))
    if action == "describe":
        views = [each for each in ("members", "offsets", "state") if is_given(arguments, each)]
        if len(views) > 1:
            raise UsageError(f"only one of {', '.join('--' + each for each in views)} at a time")
        if arguments.state:
            raise UsageError("--state takes names of states with --list only")


def one_of(text: str, known: tuple[str, ...], option: str) -> list[str]:
    """Names from a list with commas, in Kafka's spelling whatever the case. Raises UsageError."""
    spelling = {each.lower(): each for each in known}
    found = []
    for each in text.split(","):
        name = spelling.get(each.strip().lower().replace("_", ""))
        if name is None:
            raise UsageError(f"--{option} {text}: {each!r} is not one of {', '.join(known)}")
        found.append(name)
    return found


def list_groups(arguments: argparse.Namespace) -> int:
    """Print the groups that pass the filters of state and type; the exit code."""
    states = one_of(arguments.state, STATES, "state") if arguments.state else []
    types = one_of(arguments.type, TYPES, "type") if arguments.type else []

    async def work(admin: Admin) -> list[GroupListing]:
        return await admin.groups.list(states=states, types=types)

    rows = [
        {
            "group": each.group_id,
            "state": each.state,
            "type": each.type,
            "protocol_type": each.protocol_type,
            "coordinator_id": each.coordinator_id,
        }
        for each in run_admin(arguments, work)
        # Groups of other protocols (Connect's workers, ...) have no offsets; an empty name is that of offsets alone.
        if each.protocol_type in ("", "consumer") or types
    ]
    wanted = {"group"}
    if arguments.state is not None:
        wanted.add("state")
    if arguments.type is not None:
        wanted.add("type")
    if arguments.output in ("wide", "tsv", "table"):
        wanted.update(each.key for each in LIST_COLUMNS)
    columns = [each for each in LIST_COLUMNS if each.key in wanted]
    show(rows, columns, arguments.output, heading=len(columns) > 1)
    return 0


def delete(arguments: argparse.Namespace) -> int:
    """Delete groups; 1 if one could not be deleted."""
    groups = confirmed_groups(arguments, "delete")
    results = run_admin(arguments, lambda admin: admin.groups.delete(groups))
    failures = {group: error for group, error in results.items() if error is not None}
    if arguments.output is not None:
        rows = [
            {"group": group, "status": "Successful" if error is None else f"Error: {error}"}
            for group, error in results.items()
        ]
        show(rows, (LIST_COLUMNS[0], DELETED_COLUMNS[2]), arguments.output)
    else:
        deleted = [f"'{group}'" for group in results if group not in failures]
        if deleted:
            print(f"Deletion of requested consumer groups ({', '.join(deleted)}) was successful.")
    for group, error in failures.items():
        print(f"odradek groups: group {group} could not be deleted: {error}", file=sys.stderr)
    return 1 if failures else 0


def delete_offsets(arguments: argparse.Namespace) -> int:
    """Delete the group's committed offsets of the partitions; exit code 1 if one failed."""
    wanted = topic_partitions(arguments.topic)
    group = arguments.group[0]

    async def work(admin: Admin) -> dict[TopicPartition, KafkaError | None]:
        return await admin.groups.delete_offsets(group, await partitions_of(admin, wanted))

    results = run_admin(arguments, work)
    rows: list[dict[str, Any]] = [
        {"topic": key.topic, "partition": key.partition, "status": "Successful" if error is None else f"Error: {error}"}
        for key, error in sorted(results.items())
    ]
    failed = [error for error in results.values() if error is not None]
    show(rows, DELETED_COLUMNS, arguments.output)
    if failed and arguments.output not in DOCUMENTS:
        print(
            f"odradek groups: {len(failed)} offsets of group {group} could not be deleted: {failed[0]}", file=sys.stderr
        )
    return 1 if failed else 0
