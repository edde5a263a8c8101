"""`odradek transactions`: what is open, what hangs, and how to end it (Apache's kafka-transactions, KIP-664)."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import add_admin, from_zero_whole, is_given, milliseconds, positive
from odradek.cli.session import run_admin
from odradek.cli.terminal.confirmation import add_confirmation, confirm
from odradek.cli.terminal.output import DOCUMENTS, Column, show, show_document

if TYPE_CHECKING:
    from odradek.client.admin import Admin, TransactionState
    from odradek.client.admin.transactions import OpenTransaction, ProducerState, TransactionDescription
    from odradek.records.topic_partition import TopicPartition

ACTIONS: Final = ("list", "describe", "describe-producers", "find-hanging", "abort", "force-terminate")
OPTIONS: Final = {
    "state": ("list",),
    "producer-id": ("list", "abort"),
    "duration-filter": ("list",),
    "transactional-id-pattern": ("list",),
    "transactional-id": ("describe", "force-terminate"),
    "topic": ("describe-producers", "find-hanging", "abort"),
    "partition": ("describe-producers", "find-hanging", "abort"),
    "broker-id": ("describe-producers", "find-hanging"),
    "max-transaction-timeout": ("find-hanging",),
    "start-offset": ("abort",),
    "producer-epoch": ("abort",),
    "coordinator-epoch": ("abort",),
    "yes": ("abort", "force-terminate"),
}
"""Option -> the actions that it goes with."""
LIST_COLUMNS: Final = (
    Column("TRANSACTIONAL-ID", "transactional_id", 20),
    Column("COORDINATOR", "coordinator_id"),
    Column("PRODUCER-ID", "producer_id"),
    Column("STATE", "state"),
)
DESCRIBE_COLUMNS: Final = (
    Column("TRANSACTIONAL-ID", "transactional_id", 20),
    Column("COORDINATOR", "coordinator_id"),
    Column("PRODUCER-ID", "producer_id"),
    Column("EPOCH", "producer_epoch"),
    Column("STATE", "state", 14),
    Column("TIMEOUT-MS", "timeout_ms"),
    Column("START-MS", "start_time_ms", 13),
    Column("OPEN-MS", "open_ms"),
    Column("PARTITIONS", "partitions"),
)
PRODUCER_COLUMNS: Final = (
    Column("PRODUCER-ID", "producer_id"),
    Column("EPOCH", "producer_epoch"),
    Column("COORDINATOR-EPOCH", "coordinator_epoch"),
    Column("LAST-SEQUENCE", "last_sequence"),
    Column("LAST-TIMESTAMP", "last_timestamp_ms", 14),
    Column("START-OFFSET", "transaction_start_offset"),
)
HANGING_COLUMNS: Final = (
    Column("TOPIC", "topic", 20),
    Column("PARTITION", "partition"),
    *PRODUCER_COLUMNS[:3],
    Column("START-OFFSET", "transaction_start_offset"),
    Column("LAST-TIMESTAMP", "last_timestamp_ms", 14),
    Column("OPEN-MIN", "open_minutes"),
)
EXAMPLES: Final = """
odradek transactions list --state Ongoing --duration-filter 60000
odradek transactions describe --transactional-id orders-copier
odradek transactions find-hanging --broker-id 1
odradek transactions abort --topic orders --partition 3 --start-offset 1042
odradek transactions force-terminate --transactional-id orders-copier
"""
DEFAULT_MAX_TIMEOUT_MINUTES: Final = 15


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("action", choices=ACTIONS, help="what to do")
    group = parser.add_argument_group("list")
    group.add_argument(
        "--state", action="append", default=[], metavar="STATE", help="for instance Ongoing (repeatable)"
    )
    group.add_argument("--duration-filter", type=milliseconds, metavar="MS", help="transactions that are open longer")
    group.add_argument("--transactional-id-pattern", metavar="REGEX", help="a regular expression for whole ids")
    group = parser.add_argument_group("describe, force-terminate")
    group.add_argument("--transactional-id", metavar="ID", help="transactional id of a producer")
    group = parser.add_argument_group("describe-producers, find-hanging, abort")
    group.add_argument("-t", "--topic", metavar="NAME", help="topic; find-hanging looks at all its partitions")
    group.add_argument("--partition", type=from_zero_whole, metavar="N", help="partition of --topic")
    group.add_argument("--broker-id", type=from_zero_whole, metavar="ID", help="the replicas of this broker")
    group.add_argument(
        "--max-transaction-timeout", type=positive, metavar="MINUTES",
        help=f"longest transaction timeout in use (default: {DEFAULT_MAX_TIMEOUT_MINUTES})",
    )  # fmt: skip
    group = parser.add_argument_group("abort: --start-offset, or all three others (also list --producer-id)")
    group.add_argument("--start-offset", type=from_zero_whole, metavar="N", help="first offset of the transaction")
    group.add_argument("--producer-id", type=from_zero_whole, metavar="ID", help="producer id of the transaction")
    group.add_argument("--producer-epoch", type=from_zero_whole, metavar="N", help="its producer epoch")
    group.add_argument("--coordinator-epoch", type=from_zero_whole, metavar="N", help="epoch of its last marker")
    add_confirmation(parser)
    add_admin(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Check which options go together, and run the action; the exit status."""
    for option, actions in OPTIONS.items():
        if is_given(arguments, option) and arguments.action not in actions:
            raise UsageError(f"--{option} goes with {' or '.join(actions)} only")
    action = {
        "list": list_transactions,
        "describe": describe,
        "describe-producers": describe_producers,
        "find-hanging": find_hanging,
        "abort": abort,
        "force-terminate": force_terminate,
    }[arguments.action]
    return action(arguments)


# --- list, describe ---


def list_transactions(arguments: argparse.Namespace) -> int:
    """Print the transactional ids of all coordinators that match the filters."""
    states = [_state(each) for each in arguments.state]

    async def work(admin: Admin) -> list[dict[str, Any]]:
        found = await admin.transactions.list(
            states=states,
            producer_ids=[] if arguments.producer_id is None else [arguments.producer_id],
            longer_than_ms=arguments.duration_filter,
            transactional_id_pattern=arguments.transactional_id_pattern,
        )
        return [each._asdict() for each in found]

    show(run_admin(arguments, work), LIST_COLUMNS, arguments.output)
    return 0


def _state(text: str) -> TransactionState:
    """Raises UsageError."""
    from odradek.client.admin import TransactionState

    known = {each.lower(): each for each in TransactionState if each is not TransactionState.UNKNOWN}
    found = known.get(text.strip().lower().replace("_", ""))
    if found is None:
        raise UsageError(f"--state {text}: one of {', '.join(known.values())} expected")
    return found


def describe(arguments: argparse.Namespace) -> int:
    """Print a transactional id as its coordinator knows it."""
    name = _transactional_id(arguments)

    async def work(admin: Admin) -> TransactionDescription:
        from odradek.client.admin import raise_first

        return raise_first(await admin.transactions.describe([name]))[name]

    found = run_admin(arguments, work)
    row = found._asdict()
    row["open_ms"] = None if found.start_time_ms is None else max(0, _now_ms() - found.start_time_ms)
    if arguments.output in DOCUMENTS:
        row["partitions"] = [each._asdict() for each in found.partitions]
        show_document(row, arguments.output)
    else:
        row["partitions"] = [str(each) for each in found.partitions]
        show([row], DESCRIBE_COLUMNS, arguments.output)
    return 0


def describe_producers(arguments: argparse.Namespace) -> int:
    """Print the producers that a partition has seen lately."""
    place = _place(arguments)

    async def work(admin: Admin) -> list[dict[str, Any]]:
        return [each._asdict() for each in await _producers(admin, place, arguments.broker_id)]

    show(run_admin(arguments, work), PRODUCER_COLUMNS, arguments.output)
    return 0


async def _producers(admin: Admin, place: TopicPartition, broker_id: int | None) -> list[ProducerState]:
    from odradek.cli.arguments.partition_selection import partitions_of
    from odradek.client.admin import raise_first

    await partitions_of(admin, {place.topic: [place.partition]})
    return raise_first(await admin.transactions.describe_producers([place], broker_id=broker_id))[place]


# --- find-hanging ---


def find_hanging(arguments: argparse.Namespace) -> int:
    """Print the open transactions that no coordinator will end."""
    if arguments.topic is None and arguments.broker_id is None:
        raise UsageError("find-hanging needs --topic or --broker-id")
    if arguments.partition is not None and arguments.topic is None:
        raise UsageError("--partition needs --topic")
    minutes = arguments.max_transaction_timeout or DEFAULT_MAX_TIMEOUT_MINUTES

    async def work(admin: Admin) -> list[dict[str, Any]]:
        from odradek.client.reports.hanging import find_hanging

        partitions = await _searched(admin, arguments)
        found = await find_hanging(
            admin, partitions, now_ms=_now_ms(), max_timeout_ms=minutes * 60_000, broker_id=arguments.broker_id
        )
        return [
            {
                **each.topic_partition._asdict(),
                **each.producer._asdict(),
                "open_minutes": each.open_ms // 60_000,
            }
            for each in found
        ]

    show(run_admin(arguments, work), HANGING_COLUMNS, arguments.output)
    return 0


async def _searched(admin: Admin, arguments: argparse.Namespace) -> list[TopicPartition]:
    """Partitions of the topic, or all; with a broker those that it has a replica of."""
    from odradek.cli.arguments.partition_selection import partitions_of
    from odradek.client.network.metadata import TopicInfo
    from odradek.records.topic_partition import TopicPartition

    if arguments.topic is not None:
        wanted = None if arguments.partition is None else [arguments.partition]
        named = set(await partitions_of(admin, {arguments.topic: wanted}))
    described = await admin.describe_topics(None if arguments.topic is None else [arguments.topic])
    found = []
    for topic in described.values():
        if isinstance(topic, TopicInfo):
            for each in topic.partitions:
                place = TopicPartition(topic.name, each.partition)
                held = arguments.broker_id is None or arguments.broker_id in each.replicas
                if held and (arguments.topic is None or place in named):
                    found.append(place)
    return found


# --- abort ---


def abort(arguments: argparse.Namespace) -> int:
    """Write an abort marker into one partition, past the coordinator."""
    place = _place(arguments)
    ids = (arguments.producer_id, arguments.producer_epoch, arguments.coordinator_epoch)
    by_offset = arguments.start_offset is not None
    if by_offset == any(each is not None for each in ids) or (not by_offset and None in ids):
        raise UsageError("abort needs --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch")
    confirm(arguments, "abort a transaction past its coordinator", [str(place)])

    async def work(admin: Admin) -> OpenTransaction:
        from odradek.client.admin.transactions import OpenTransaction

        if by_offset:
            chosen = await _transaction_at(admin, place, arguments.start_offset)
        else:
            chosen = OpenTransaction(place, *ids)
        await admin.transactions.abort(chosen)
        return chosen

    done = run_admin(arguments, work)
    if arguments.output in DOCUMENTS:
        show_document({**done._asdict(), "topic_partition": place._asdict()}, arguments.output)
    else:
        print(f"Aborted the transaction of producer {done.producer_id} in {place}.")
    return 0


async def _transaction_at(admin: Admin, place: TopicPartition, start_offset: int) -> OpenTransaction:
    """The open transaction that begins at an offset. Raises CommandError."""
    from odradek.client.admin.transactions import OpenTransaction

    for each in await _producers(admin, place, None):
        if each.transaction_start_offset == start_offset:
            # Without a marker yet the leader has no epoch to compare with.
            return OpenTransaction(place, each.producer_id, each.producer_epoch, each.coordinator_epoch or 0)
    raise CommandError(f"no open transaction begins at offset {start_offset} of {place}", "NOT_FOUND")


def force_terminate(arguments: argparse.Namespace) -> int:
    """Fence the producer of a transactional id, which aborts its open transaction."""
    name = _transactional_id(arguments)
    confirm(arguments, "fence the producer and abort its open transaction", [name])

    async def work(admin: Admin) -> None:
        from odradek.client.admin import raise_first

        # Fencing creates a transactional id that does not exist.
        raise_first(await admin.transactions.describe([name]))
        await admin.transactions.force_terminate(name)

    run_admin(arguments, work)
    if arguments.output in DOCUMENTS:
        show_document({"transactional_id": name, "terminated": True}, arguments.output)
    else:
        print(f"Terminated the transaction of {name}; its producer is fenced.")
    return 0


def _transactional_id(arguments: argparse.Namespace) -> str:
    """Raises UsageError."""
    if not arguments.transactional_id:
        raise UsageError(f"{arguments.action} needs --transactional-id")
    return str(arguments.transactional_id)


def _place(arguments: argparse.Namespace) -> TopicPartition:
    """Raises UsageError."""
    from odradek.records.topic_partition import TopicPartition

    if arguments.topic is None or arguments.partition is None:
        raise UsageError(f"{arguments.action} needs --topic and --partition")
    return TopicPartition(arguments.topic, arguments.partition)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
