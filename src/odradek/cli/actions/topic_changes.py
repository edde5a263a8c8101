"""What `odradek topics --create`, `--alter` and `--delete` do."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.actions.effects import warn_without_effect, without_effect
from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.options import pairs
from odradek.cli.arguments.topic_selection import matching_or_error
from odradek.cli.session import run_admin
from odradek.cli.terminal.confirmation import confirm
from odradek.cli.terminal.output import Column, show

if TYPE_CHECKING:
    from odradek.client.admin import Admin

COLUMNS: Final = (Column("TOPIC", "topic", 15), Column("RESULT", "result"), Column("MESSAGE", "message"))


def create(arguments: argparse.Namespace) -> int:
    """Create the topic."""
    from odradek.client.admin import NewTopic, raise_first
    from odradek.client.reports.topics import id_text
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
        warn_without_effect("topics", await without_effect(admin, "topics", configs))
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
        show([row], (*COLUMNS[:2], Column("TOPIC-ID", "topic_id")), arguments.output)
    elif topic_id is not None:
        print(f"Created topic {name}.")
    return 0


def chosen(arguments: argparse.Namespace, action: str) -> list[str]:
    """The topics to change, confirmed if there are several or if one is internal.

    A regular expression never chooses internal topics: their loss is that of all committed offsets or transactions.
    Raises UsageError, CommandError.
    """

    async def work(admin: Admin) -> tuple[list[str], frozenset[str]]:
        return await matching_or_error(admin, arguments), frozenset(await admin.list_topics())

    names, ordinary = run_admin(arguments, work)
    if arguments.regex:
        found, names = names, [each for each in names if each in ordinary]
        if found and not names:
            raise CommandError(f"{arguments.topic} matches internal topics only: name them without --regex")
    if len(names) > 1 or not ordinary.issuperset(names):
        confirm(arguments, f"{action} {len(names)} topic{'s' if len(names) > 1 else ''}", names)
    return names


def alter(arguments: argparse.Namespace) -> int:
    """Add partitions."""
    given = None if arguments.replica_assignment is None else assigned_replicas(arguments.replica_assignment)
    names = chosen(arguments, "add partitions to")

    async def work(admin: Admin) -> dict[str, Any]:
        count = arguments.partitions or len(given or ())
        assignments = None
        if given is not None:
            described = await admin.describe_topics(names)
            assignments = {}
            for name in names:
                have = len(getattr(described[name], "partitions", ()))
                assignments[name] = [ids for number, ids in given.items() if number >= have]
        return await admin.create_partitions(dict.fromkeys(names, count), assignments=assignments)

    return report_done(run_admin(arguments, work) if names else {}, "altered", arguments.output)


def delete(arguments: argparse.Namespace) -> int:
    """Delete the topics."""
    names = chosen(arguments, "delete")
    results = run_admin(arguments, lambda admin: admin.delete_topics(names)) if names else {}
    return report_done(results, "deleted", arguments.output)


def report_done(results: dict[str, Any], verb: str, output: str | None) -> int:
    """Print the result for each topic; 1 if one failed."""
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
        show(rows, COLUMNS, output)
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
            raise UsageError(f"--replica-assignment: partitions {number} and 0 have different numbers of replicas")
        found[number] = ids
    return found
