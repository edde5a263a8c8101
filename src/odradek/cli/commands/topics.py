"""`odradek topics`: Apache's kafka-topics (its TopicCommand), with output for programs.

Unlike in Apache's tool, `--topic` takes literal names unless `--regex` is given: there, `--delete --topic a.b` deletes
`axb` as well. `--apache-compatible` restores its behaviour.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.names import literal_topics, topic_pattern
from odradek.cli.arguments.options import add_admin, adopt_positional, exactly_one, is_given, only_with, positive
from odradek.cli.arguments.topic_selection import is_regex, matching, matching_or_error
from odradek.cli.session import run_admin
from odradek.cli.terminal.confirmation import add_confirmation
from odradek.cli.terminal.output import Column, is_terminal, show, show_document
from odradek.cli.terminal.watching import add_watch, repeat

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.reports.topics import PartitionDetails, TopicDetails

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


EXAMPLES: Final = """
# list the names of topics
odradek topics
# describe a topic
odradek topics greetings
# show how large topics are and how fast they grow
odradek topics --describe --sizes
# create a topic
odradek topics --create --topic greetings --partitions 4 --config retention.ms=86400000
# add partitions
odradek topics --alter --topic greetings --partitions 8
# find partitions with replicas out of sync
odradek topics --describe --under-replicated-partitions
# list topics by a regular expression
odradek topics --list --topic 'test-.*' --regex
# delete them without a question
odradek topics --delete --topic 'test-.*' --regex --yes
# print the names for a program
odradek topics -o json | jq -r '.[].topic'
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the actions on topics and their options."""
    parser.add_argument("positional", nargs="?", metavar="TOPIC", help="the same as --topic TOPIC")
    actions = parser.add_argument_group("actions (default: --describe with a topic, --list without)")
    actions.add_argument("--list", action="store_true", help="list the names of topics")
    actions.add_argument("--describe", action="store_true", help="show topics with their partitions")
    actions.add_argument("--create", action="store_true", help="create a topic")
    actions.add_argument("--alter", action="store_true", help="add partitions to topics")
    actions.add_argument("--delete", action="store_true", help="delete topics")
    parser.add_argument("-t", "--topic", metavar="NAME,…", help="names of topics")
    parser.add_argument("--regex", action="store_true", help="--topic is a regular expression that matches whole names")
    parser.add_argument("--topic-id", metavar="ID", help="describe the topic with this id")
    parser.add_argument("--partitions", type=positive, metavar="N", help="number of partitions (--create, --alter)")
    parser.add_argument("--replication-factor", type=positive, metavar="N", help="number of replicas (--create)")
    parser.add_argument(
        "--replica-assignment",
        metavar="0:1,1:2",
        help="broker ids of each partition's replicas: partitions between commas, replicas between colons",
    )
    parser.add_argument(
        "--config", action="append", default=[], metavar="NAME=VALUE", help="setting of the new topic (repeatable)"
    )
    parser.add_argument("--if-exists", action="store_true", help="succeed if a topic does not exist")
    parser.add_argument("--if-not-exists", action="store_true", help="succeed if the topic exists")
    parser.add_argument("--exclude-internal", action="store_true", help="leave out topics such as __consumer_offsets")
    add_watch(parser, " (--list, --describe)")
    parser.add_argument(
        "--sizes", action="store_true", help="show records, bytes and rates instead of replicas (--describe)"
    )
    for report in REPORTS:
        parser.add_argument(f"--{report}", action="store_true", help="show only these (--describe)")
    parser.add_argument(
        "--partition-size-limit-per-response",
        type=positive,
        default=2000,
        metavar="N",
        help="partitions per response of the broker (--describe; default: 2000)",
    )
    add_confirmation(
        parser,
        compatible="behave like kafka-topics.sh: --topic is a regular expression, and no deletion is confirmed",
    )
    add_admin(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Execute the action; the exit code."""
    adopt_positional(arguments, "topic", ACTIONS)
    default = "describe" if arguments.topic or arguments.topic_id else "list"
    action = exactly_one(arguments, ACTIONS, default=default)
    check(arguments, action)
    if action in ("list", "describe"):
        if arguments.sizes:
            from odradek.cli.actions.topic_sizes import describe_sizes

            return describe_sizes(arguments)
        look = {"list": list_topics, "describe": describe}[action]
        return repeat(lambda: look(arguments)) if arguments.watch else look(arguments)
    from odradek.cli.actions import topic_changes

    changes = {"create": topic_changes.create, "alter": topic_changes.alter, "delete": topic_changes.delete}
    return changes[action](arguments)


def check(arguments: argparse.Namespace, action: str) -> None:
    """What goes with what, as TopicCommand has it. Raises UsageError."""
    if action in ("create", "alter", "delete") and not arguments.topic:
        raise UsageError(f"--{action} needs --topic")
    if action == "alter" and arguments.partitions is None and arguments.replica_assignment is None:
        raise UsageError("--alter needs --partitions (settings are altered by `odradek configs`)")
    only_with(arguments, action, ("config", "replication-factor", "if-not-exists"), ("create",))
    only_with(arguments, action, ("partitions", "replica-assignment"), ("create", "alter"))
    only_with(arguments, action, ("if-exists",), ("alter", "delete", "describe"))
    only_with(arguments, action, ("topic-id", "sizes", *REPORTS), ("describe",))
    only_with(arguments, action, ("exclude-internal", "watch"), ("list", "describe"))
    only_with(arguments, action, ("yes",), ("alter", "delete"))
    only_with(arguments, action, ("regex",), ("list", "describe", "alter", "delete"))
    if arguments.regex and not arguments.topic:
        raise UsageError("--regex needs --topic")
    if arguments.topic and action != "create":
        (topic_pattern if is_regex(arguments) else literal_topics)(arguments.topic)
    reports = [each for each in REPORTS if is_given(arguments, each)]
    if len(reports) > 1:
        raise UsageError(f"only one of {', '.join('--' + each for each in reports)} at a time")
    if arguments.sizes and (reports or arguments.topic_id):
        raise UsageError("--sizes does not go with --topic-id and reports of partitions")
    if reports and arguments.topic_id:
        raise UsageError(f"--{reports[0]} does not go with --topic-id")
    if action == "create" and arguments.replica_assignment and (arguments.partitions or arguments.replication_factor):
        raise UsageError("--replica-assignment excludes --partitions and --replication-factor")


def list_topics(arguments: argparse.Namespace) -> int:
    """Print the names of the topics; the exit code."""

    async def work(admin: Admin) -> list[str]:
        return await matching(admin, arguments)

    names = run_admin(arguments, work)
    show([{"topic": each} for each in names], (Column("TOPIC", "topic"),), arguments.output, heading=False)
    return 0


# --- describe ---


def describe(arguments: argparse.Namespace) -> int:
    """Print topics, partitions and overridden settings, or the partitions of a report; the exit code."""
    from odradek.client.reports.topics import describe_topics

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
    if output is None and is_terminal(sys.stdout) and not arguments.apache_compatible:
        show_described(topics, shown, report)
    elif output is None:
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
    """Whether the partition belongs in the report, such as `under-replicated-partitions`."""
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


def show_described(
    topics: Sequence[TopicDetails], shown: Mapping[str, Sequence[PartitionDetails]], report: str | None
) -> None:
    """Tables for people: one of topics, one of partitions."""
    if report is None or report == "topics-with-overrides":
        show([each.row() for each in topics], TOPIC_COLUMNS, None)
    if report is None:
        print()
    if report != "topics-with-overrides":
        show([{"topic": each.name, **p.row()} for each in topics for p in shown[each.name]], PARTITION_COLUMNS, None)


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
    """Broker ids separated by commas; N/A where the broker does not report them."""
    return "N/A" if ids is None else ",".join(map(str, ids))
