"""`odradek topics`: Apache's kafka-topics (its TopicCommand), with output for programs, too."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from odradek.cli.errors import CommandError, UsageError
from odradek.cli.names import topic_pattern
from odradek.cli.options import add_admin, exactly_one, is_given, only_with, pairs, positive
from odradek.cli.output import Column, show, show_document
from odradek.cli.session import run_admin

if TYPE_CHECKING:
    from odradek.cli.topic_details import PartitionDetails, TopicDetails
    from odradek.client.admin import Admin

ACTIONS = ("list", "describe", "create", "alter", "delete")
REPORTS = (
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "topics-with-overrides",
)
TOPIC_COLUMNS = (
    Column("TOPIC", "topic", 15),
    Column("PARTITIONS", "partition_count"),
    Column("REPLICATION-FACTOR", "replication_factor"),
    Column("CONFIGS", "configs"),
    Column("TOPIC-ID", "topic_id", wide=True),
    Column("INTERNAL", "internal", wide=True),
)
PARTITION_COLUMNS = (
    Column("TOPIC", "topic", 15),
    Column("PARTITION", "partition"),
    Column("LEADER", "leader"),
    Column("REPLICAS", "replicas"),
    Column("ISR", "isr"),
    Column("LEADER-EPOCH", "leader_epoch", wide=True),
    Column("ELR", "elr", wide=True),
    Column("LAST-KNOWN-ELR", "last_known_elr", wide=True),
    Column("OFFLINE", "offline_replicas", wide=True),
)
DONE_COLUMNS = (Column("TOPIC", "topic", 15), Column("RESULT", "result"), Column("MESSAGE", "message"))


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_argument_group("actions (one of them)")
    actions.add_argument("--list", action="store_true", help="names of topics")
    actions.add_argument("--describe", action="store_true", help="topics with their partitions")
    actions.add_argument("--create", action="store_true", help="create a topic")
    actions.add_argument("--alter", action="store_true", help="give topics more partitions")
    actions.add_argument("--delete", action="store_true", help="delete topics")
    parser.add_argument("--topic", metavar="NAME", help="a topic, or (but for --create) a regular expression")
    parser.add_argument("--topic-id", metavar="ID", help="describe the topic with this id")
    parser.add_argument("--partitions", type=positive, metavar="N", help="with --create and --alter")
    parser.add_argument("--replication-factor", type=positive, metavar="N", help="with --create")
    parser.add_argument(
        "--replica-assignment",
        metavar="0:1,1:2",
        help="broker ids of each partition's replicas: partitions between commas, replicas between colons",
    )
    parser.add_argument("--config", action="append", default=[], metavar="NAME=VALUE", help="with --create")
    parser.add_argument("--if-exists", action="store_true", help="no error where the topic does not exist")
    parser.add_argument("--if-not-exists", action="store_true", help="no error where the topic exists")
    parser.add_argument("--exclude-internal", action="store_true", help="leave out topics such as __consumer_offsets")
    for report in REPORTS:
        parser.add_argument(f"--{report}", action="store_true", help="with --describe: show only these")
    parser.add_argument(
        "--partition-size-limit-per-response", type=positive, default=2000, metavar="N", help="with --describe"
    )
    add_admin(parser)


def run(arguments: argparse.Namespace) -> int:
    action = exactly_one(arguments, ACTIONS)
    check(arguments, action)
    if action == "list":
        return list_topics(arguments)
    if action == "describe":
        return describe(arguments)
    if action == "create":
        return create(arguments)
    return alter(arguments) if action == "alter" else delete(arguments)


def check(arguments: argparse.Namespace, action: str) -> None:
    """What goes with what, as TopicCommand has it. Raises UsageError."""
    if action in ("create", "alter", "delete") and not arguments.topic:
        raise UsageError(f"--{action} needs --topic")
    if action == "alter" and arguments.partitions is None and arguments.replica_assignment is None:
        raise UsageError("--alter needs --partitions (settings are altered by `odradek configs`)")
    only_with(arguments, action, ("config", "replication-factor", "if-not-exists"), ("create",))
    only_with(arguments, action, ("partitions", "replica-assignment"), ("create", "alter"))
    only_with(arguments, action, ("if-exists",), ("alter", "delete", "describe"))
    only_with(arguments, action, ("topic-id", *REPORTS), ("describe",))
    only_with(arguments, action, ("exclude-internal",), ("list", "describe"))
    reports = [each for each in REPORTS if is_given(arguments, each)]
    if len(reports) > 1:
        raise UsageError(f"only one of {', '.join('--' + each for each in reports)} at a time")
    if reports and arguments.topic_id:
        raise UsageError(f"--{reports[0]} does not go with --topic-id")
    if action == "create" and arguments.replica_assignment and (arguments.partitions or arguments.replication_factor):
        raise UsageError("--replica-assignment says already what --partitions and --replication-factor would")


def list_topics(arguments: argparse.Namespace) -> int:
    async def work(admin: Admin) -> list[str]:
        return await matching(admin, arguments)

    names = run_admin(arguments, work)
    show([{"topic": each} for each in names], (Column("TOPIC", "topic"),), arguments.output, heading=False)
    return 0


async def matching(admin: Admin, arguments: argparse.Namespace) -> list[str]:
    """Names of the topics that `--topic` and `--exclude-internal` choose, sorted."""
    names = await admin.list_topics(include_internal=not arguments.exclude_internal)
    if arguments.topic is None:
        return names
    pattern = topic_pattern(arguments.topic)
    return [each for each in names if pattern.fullmatch(each)]


async def matching_or_error(admin: Admin, arguments: argparse.Namespace) -> list[str]:
    names = await matching(admin, arguments)
    if not names and arguments.topic is not None and not arguments.if_exists:
        raise CommandError(f"topic {arguments.topic} does not exist", "UNKNOWN_TOPIC_OR_PARTITION")
    return names


# --- describe ---


def describe(arguments: argparse.Namespace) -> int:
    from odradek.cli.topic_details import describe_topics

    async def work(admin: Admin) -> list[TopicDetails]:
        names = await matching_or_error(admin, arguments)
        found = await describe_topics(admin, names, arguments.partition_size_limit_per_response)
        if arguments.topic_id is None:
            return found
        chosen = [each for each in found if each.topic_id == arguments.topic_id]
        if not chosen and not arguments.if_exists:
            raise CommandError(f"no topic has the id {arguments.topic_id}", "UNKNOWN_TOPIC_ID")
        return chosen

    topics = run_admin(arguments, work)
    report = next((each for each in REPORTS if is_given(arguments, each)), None)
    topics = [each for each in topics if report != "topics-with-overrides" or each.configs]
    shown = {each.name: [p for p in each.partitions if is_reported(p, each, report)] for each in topics}
    if report is not None and report != "topics-with-overrides":
        topics = [each for each in topics if shown[each.name]]
    output = arguments.output
    if output is None:
        for each in topics:
            print_described(each, shown[each.name], report)
    elif output in ("table", "wide", "tsv"):
        if report == "topics-with-overrides":
            show([each.row() for each in topics], TOPIC_COLUMNS, output)
        else:
            rows = [{"topic": each.name, **p.row()} for each in topics for p in shown[each.name]]
            show(rows, PARTITION_COLUMNS, output)
    else:
        show_document([{**each.row(), "partitions": [p.row() for p in shown[each.name]]} for each in topics], output)
    return 0


def is_reported(partition: PartitionDetails, topic: TopicDetails, report: str | None) -> bool:
    minimum = int(topic.min_insync_replicas or 1)
    if report == "under-replicated-partitions":
        return len(partition.isr) < len(partition.replicas)
    if report == "unavailable-partitions":
        return partition.leader < 0
    if report == "under-min-isr-partitions":
        return len(partition.isr) < minimum
    if report == "at-min-isr-partitions":
        return len(partition.isr) == minimum
    return True


def print_described(topic: TopicDetails, partitions: Sequence[PartitionDetails], report: str | None) -> None:
    """Line by line as Apache's tool prints it: much that reads its output relies on that."""
    if report is None or report == "topics-with-overrides":
        configs = ",".join(f"{name}={value}" for name, value in topic.configs.items())
        print(
            f"Topic: {topic.name}\tTopicId: {topic.topic_id}\tPartitionCount: {len(topic.partitions)}"
            f"\tReplicationFactor: {topic.replication_factor}\tConfigs: {configs}"
        )
    if report == "topics-with-overrides":
        return
    for each in partitions:
        leader = "none" if each.leader < 0 else each.leader
        print(
            f"\tTopic: {topic.name}\tPartition: {each.partition}\tLeader: {leader}\tReplicas: {listed(each.replicas)}"
            f"\tIsr: {listed(each.isr)}\tElr: {listed(each.elr)}\tLastKnownElr: {listed(each.last_known_elr)}"
        )


def listed(ids: Sequence[int] | None) -> str:
    return "N/A" if ids is None else ",".join(map(str, ids))


# --- changes ---


def create(arguments: argparse.Namespace) -> int:
    from odradek.cli.topic_details import id_text
    from odradek.client.admin import NewTopic, raise_first
    from odradek.wire.errors import ErrorCode, KafkaError

    name = arguments.topic
    configs = pairs(arguments.config, "config")
    assignments = {} if arguments.replica_assignment is None else assigned_replicas(arguments.replica_assignment)
    topic = NewTopic(name, arguments.partitions or -1, arguments.replication_factor or -1, configs, assignments)
    if "." in name or "_" in name:
        print(
            "periods and underscores in names can collide in metrics: better use only one of the two", file=sys.stderr
        )

    async def work(admin: Admin) -> bytes | None:
        done = await admin.create_topics([topic])
        failure = done[name]
        exists = isinstance(failure, KafkaError) and failure.code == ErrorCode.TOPIC_ALREADY_EXISTS
        if exists and arguments.if_not_exists:
            return None
        return raise_first(done)[name]

    topic_id = run_admin(arguments, work)
    if arguments.output is not None:
        result = "existed" if topic_id is None else "created"
        row = {"topic": name, "result": result, "topic_id": None if topic_id is None else id_text(topic_id)}
        show([row], (*DONE_COLUMNS[:2], Column("TOPIC-ID", "topic_id")), arguments.output)
    elif topic_id is not None:
        print(f"Created topic {name}.")
    return 0


def alter(arguments: argparse.Namespace) -> int:
    given = None if arguments.replica_assignment is None else assigned_replicas(arguments.replica_assignment)

    async def work(admin: Admin) -> dict[str, Any]:
        names = await matching_or_error(admin, arguments)
        if not names:
            return {}
        count = arguments.partitions or len(given or ())
        assignments = None
        if given is not None:
            described = await admin.describe_topics(names)
            assignments = {}
            for name in names:
                have = len(getattr(described[name], "partitions", ()))
                assignments[name] = [ids for number, ids in given.items() if number >= have]
        return await admin.create_partitions(dict.fromkeys(names, count), assignments=assignments)

    return report_done(run_admin(arguments, work), "altered", arguments.output)


def delete(arguments: argparse.Namespace) -> int:
    async def work(admin: Admin) -> dict[str, Any]:
        names = await matching_or_error(admin, arguments)
        return await admin.delete_topics(names) if names else {}

    return report_done(run_admin(arguments, work), "deleted", arguments.output)


def report_done(results: dict[str, Any], verb: str, output: str | None) -> int:
    """Print what became of each topic; 1 if anything failed."""
    failures = {name: each for name, each in results.items() if each is not None}
    if output is not None:
        rows = [
            {
                "topic": name,
                "result": verb if each is None else each.code.name,
                "message": None if each is None else each.message,
            }
            for name, each in results.items()
        ]
        show(rows, DONE_COLUMNS, output)
    else:
        for name in results:
            if name not in failures:
                print(f"{verb.capitalize()} topic {name}.")
    for name, each in failures.items():
        print(f"odradek topics: {name}: {each}", file=sys.stderr)
    return 1 if failures else 0


def assigned_replicas(text: str) -> dict[int, list[int]]:
    """`0:1,1:2` -> broker ids by partition. Raises UsageError."""
    found: dict[int, list[int]] = {}
    for number, part in enumerate(text.split(",")):
        try:
            ids = [int(each) for each in part.split(":")]
        except ValueError:
            raise UsageError(f"--replica-assignment {text}: broker ids expected, not {part!r}") from None
        if len(set(ids)) != len(ids):
            raise UsageError(f"--replica-assignment: partition {number} has a broker twice: {part}")
        if number and len(ids) != len(found[0]):
            raise UsageError(
                f"--replica-assignment: partition {number} has another number of replicas than partition 0"
            )
        found[number] = ids
    return found
