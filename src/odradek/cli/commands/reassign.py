"""`odradek reassign`: move partitions to other brokers (Apache's kafka-reassign-partitions)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.actions.reassignment_plan import Plan, current_of, document_of, plan_text, read_plan
from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.names import topic_partitions
from odradek.cli.arguments.options import add_admin, broker_ids, exactly_one, is_given, positive
from odradek.cli.arguments.partition_files import entries_of, read_document
from odradek.cli.session import run_admin
from odradek.cli.terminal.output import DOCUMENTS, Column, show, show_document
from odradek.records.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.client.admin import Admin

ACTIONS: Final = ("generate", "execute", "verify", "cancel", "list")
OPTIONS: Final = {
    "topics-to-move-json-file": ("generate",),
    "broker-list": ("generate",),
    "disable-rack-aware": ("generate",),
    "replication-factor": ("generate",),
    "write": ("generate",),
    "topic": ("generate", "execute", "cancel"),
    "to": ("execute",),
    "throttle": ("execute",),
    "replica-alter-log-dirs-throttle": ("execute",),
    "additional": ("execute",),
    "wait": ("execute",),
    "preserve-throttles": ("verify", "cancel"),
    "all": ("cancel",),
    "reassignment-json-file": ("execute", "verify", "cancel"),
}
"""Option -> the actions that it goes with."""
LIST_COLUMNS: Final = (
    Column("TOPIC", "topic", 20),
    Column("PARTITION", "partition"),
    Column("REPLICAS", "replicas", 12),
    Column("ADDING", "adding"),
    Column("REMOVING", "removing"),
)
EXAMPLES: Final = """
# propose even assignments of two topics to brokers 1, 2 and 3; carry them out with 10 MB/s; wait, remove the throttle
odradek reassign generate --topic orders --topic payments --broker-list 1,2,3 --write plan.json
odradek reassign execute plan.json --throttle 10000000
odradek reassign verify plan.json
# one partition, at once
odradek reassign execute --topic orders:0 --to 2,3,1 --wait
odradek reassign list
odradek reassign cancel --all
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("action", nargs="?", choices=ACTIONS, help="what to do")
    parser.add_argument("file", nargs="?", metavar="PLAN", help="JSON file for execute, verify and cancel")
    for each in ACTIONS:
        parser.add_argument(f"--{each}", action="store_true", dest=f"action_{each}", help=argparse.SUPPRESS)
    parser.add_argument("--reassignment-json-file", metavar="FILE", help="the same as PLAN")
    parser.add_argument(
        "-t", "--topic", action="append", default=[], metavar="NAME[:0,1]", help="topic or partitions (repeatable)"
    )
    group = parser.add_argument_group("generate")
    group.add_argument("--topics-to-move-json-file", metavar="FILE", help='{"topics": [{"topic": "orders"}]}')
    group.add_argument("--broker-list", type=broker_ids, metavar="ID,…", help="brokers to use (default: all live ones)")
    group.add_argument("--replication-factor", type=positive, metavar="N", help="replicas (default: as many as now)")
    group.add_argument("--disable-rack-aware", action="store_true", help="ignore the brokers' racks")
    group.add_argument("--write", metavar="FILE", help="write the plan to a file, too")
    group = parser.add_argument_group("execute")
    group.add_argument("--to", type=broker_ids, metavar="ID,…", help="replicas of --topic, the preferred leader first")
    group.add_argument("--throttle", type=positive, metavar="B/S", help="bytes per second of each broker")
    group.add_argument(
        "--replica-alter-log-dirs-throttle", type=positive, metavar="B/S", help="the same for moves between directories"
    )
    group.add_argument("--additional", action="store_true", help="even if other reassignments run")
    group.add_argument("--wait", action="store_true", help="return when it is complete, and remove the throttles")
    group = parser.add_argument_group("verify, cancel")
    group.add_argument("--preserve-throttles", action="store_true", help="leave throttles as they are")
    group.add_argument("--all", action="store_true", help="cancel all reassignments that run")
    add_admin(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Check which options go together, and run the action; the exit status."""
    action = _action(arguments)
    for option, actions in OPTIONS.items():
        if is_given(arguments, option) and action not in actions:
            raise UsageError(f"--{option} goes with {' or '.join(actions)} only")
    if arguments.file is not None:
        if action not in OPTIONS["reassignment-json-file"]:
            raise UsageError(f"{action} takes no file")
        if arguments.reassignment_json_file is not None:
            raise UsageError("PLAN and --reassignment-json-file are the same: give one of them")
        arguments.reassignment_json_file = arguments.file
    if action == "generate":
        return generate(arguments)
    if action == "list":
        return list_moves(arguments)
    from odradek.cli.actions import reassign_actions

    if action == "execute":
        return reassign_actions.execute(arguments, _plan(arguments))
    if action == "verify":
        if arguments.reassignment_json_file is None:
            raise UsageError("verify needs a PLAN")
        return reassign_actions.verify(arguments, read_plan(arguments.reassignment_json_file))
    exactly_one(arguments, ("reassignment-json-file", "topic", "all"), "of these")
    return reassign_actions.cancel(arguments)


def _action(arguments: argparse.Namespace) -> str:
    """The action, as a word or as Apache's option. Raises UsageError."""
    flags = [each for each in ACTIONS if getattr(arguments, f"action_{each}")]
    words = [arguments.action] if arguments.action is not None else []
    if len(flags) + len(words) != 1:
        raise UsageError(f"which action? one of {', '.join(ACTIONS)}")
    return str((flags + words)[0])


def _plan(arguments: argparse.Namespace) -> Plan:
    """What `execute` is to carry out. Raises UsageError."""
    if arguments.reassignment_json_file is not None:
        if arguments.topic or arguments.to:
            raise UsageError("a PLAN and --topic with --to exclude each other")
        return read_plan(arguments.reassignment_json_file)
    if not arguments.topic or not arguments.to:
        raise UsageError("execute needs a PLAN, or --topic NAME:0,1 and --to ID,…")
    replicas = {}
    for topic, partitions in topic_partitions(arguments.topic).items():
        if partitions is None:
            raise UsageError(f"--topic {topic}: --to is for partitions, {topic}:0,1; `generate` plans whole topics")
        replicas.update({TopicPartition(topic, each): tuple(arguments.to) for each in partitions})
    return Plan(replicas, {})


# --- generate, list ---


def generate(arguments: argparse.Namespace) -> int:
    """Print the current assignment and an even one over the brokers."""
    named = _topics(arguments)

    async def work(admin: Admin) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[TopicPartition, tuple[int, ...]]]:
        from odradek.cli.arguments.partition_selection import partitions_of
        from odradek.client.reports.reassignment import spread

        current = await current_of(admin, await partitions_of(admin, named))
        brokers = arguments.broker_list or sorted(current.racks)
        for each in brokers:
            if each not in current.racks:
                raise CommandError(f"there is no broker {each} now", "BROKER_NOT_AVAILABLE")
        before = {place: replicas for place, replicas in current.replicas.items() if replicas is not None}
        factors = {place: arguments.replication_factor or len(replicas) for place, replicas in before.items()}
        racks = {each: current.racks[each] for each in brokers}
        try:
            return before, spread(factors, racks, rack_aware=not arguments.disable_rack_aware)
        except ValueError as error:
            raise CommandError(str(error), "INVALID_REPLICATION_FACTOR") from error

    before, after = run_admin(arguments, work)
    if arguments.write is not None:
        _write(arguments.write, plan_text(after))
    if arguments.output in DOCUMENTS:
        show_document({"current": document_of(before), "proposed": document_of(after)}, arguments.output)
    else:
        print(f"Current partition replica assignment\n{plan_text(before)}\n")
        print(f"Proposed partition reassignment configuration\n{plan_text(after)}")
    return 0


def _write(path: str, text: str) -> None:
    """Raises UsageError."""
    try:
        with open(path, "x") as file:
            file.write(text + "\n")
    except FileExistsError:
        raise UsageError(f"--write {path}: the file exists, and is not overwritten") from None
    except OSError as error:
        raise UsageError(f"--write {path}: {error.strerror or error}") from error


def _topics(arguments: argparse.Namespace) -> dict[str, list[int] | None]:
    """Raises UsageError."""
    if bool(arguments.topic) == (arguments.topics_to_move_json_file is not None):
        raise UsageError("generate needs --topic, or --topics-to-move-json-file")
    if arguments.topic:
        return topic_partitions(arguments.topic)
    path = arguments.topics_to_move_json_file
    where = f"--topics-to-move-json-file {path}"
    named: dict[str, list[int] | None] = {}
    for entry in entries_of(read_document(path, "topics-to-move-json-file"), "topics", where):
        name = entry.get("topic")
        if not isinstance(name, str) or not name:
            raise UsageError(f'{where}: {{"topics": [{{"topic": "orders"}}]}} expected')
        named[name] = None
    return named


def list_moves(arguments: argparse.Namespace) -> int:
    """Print the reassignments that run."""

    async def work(admin: Admin) -> list[dict[str, Any]]:
        return [
            {
                **place._asdict(),
                "replicas": list(each.replicas),
                "adding": list(each.adding_replicas),
                "removing": list(each.removing_replicas),
            }
            for place, each in sorted((await admin.replicas.reassignments()).items())
        ]

    rows = run_admin(arguments, work)
    if not rows and arguments.output is None:
        print("No partition reassignments run.")
    else:
        show(rows, LIST_COLUMNS, arguments.output)
    return 0
