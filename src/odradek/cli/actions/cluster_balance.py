"""`odradek cluster balance`: propose moves that even out bytes and leaders, and `--execute` them."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import TYPE_CHECKING, Final

from odradek.cli.actions.reassignment_plan import begin_moves, current_of
from odradek.cli.arguments.errors import CommandError
from odradek.cli.session import run_admin
from odradek.cli.terminal.output import DOCUMENTS, Column, show
from odradek.client.reports.balance import sized_replicas
from odradek.client.reports.balance_plan import Proposal, Replica, applied, loads, propose
from odradek.client.reports.moves import listed
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.client.admin import Admin

COLUMNS: Final = (
    Column("TOPIC", "topic", 20),
    Column("PARTITION", "partition"),
    Column("FROM", "from", 10),
    Column("TO", "to", 10),
    Column("BYTES", "bytes"),
)
LOAD_COLUMNS: Final = (
    Column("BROKER", "broker"),
    Column("BYTES", "bytes", 12),
    Column("AFTER", "bytes_after", 12),
    Column("REPLICAS", "replicas"),
    Column("AFTER", "replicas_after"),
    Column("PREFERRED", "preferred"),
    Column("AFTER", "preferred_after"),
)
_LOOK_SECONDS: Final = 0.5
TOLERANCE: Final = 0.1
MOST_MOVES: Final = 1000


def balance(arguments: argparse.Namespace) -> int:
    """Print moves that even out replicas and sizes, and begin them with --execute; the exit code."""
    leaving = set(arguments.decommission or ())
    tolerance = TOLERANCE if arguments.tolerance is None else arguments.tolerance
    most_moves = arguments.max_moves or MOST_MOVES

    async def work(admin: Admin) -> tuple[dict[TopicPartition, Replica], list[Proposal], list[int]]:
        brokers = (await admin.describe_cluster()).brokers
        partitions = await replicas_to_balance(admin, execute=arguments.execute)
        racks = {each.node_id: each.rack for each in brokers}
        known = {*racks, *(broker for each in partitions.values() for broker in each.replicas)}
        for broker in leaving - known:
            raise CommandError(f"--decommission {broker}: there is no such broker", "NO_BROKER")
        try:
            proposals = propose(partitions, racks, leaving=leaving, tolerance=tolerance, most_moves=most_moves)
        except ValueError as error:
            raise CommandError(str(error), "NO_BROKER") from error
        if arguments.execute and proposals:
            await execute(admin, proposals)
        return partitions, proposals, sorted({*racks, *leaving})

    partitions, proposals, brokers = run_admin(arguments, work)
    _show(arguments, partitions, proposals, brokers)
    return 0


async def replicas_to_balance(admin: Admin, *, execute: bool) -> dict[TopicPartition, Replica]:
    """All partitions, those in reassignment as they will be. Raises CommandError to execute moves beside such ones."""
    running = await admin.replicas.reassignments()
    if running and execute:
        raise CommandError(
            f"{len(running)} reassignments run: wait for their end, or cancel them first", "REASSIGNMENT_IN_PROGRESS"
        )
    partitions = await sized_replicas(admin)
    for place in running.keys() & partitions.keys():
        partitions[place] = partitions[place]._replace(replicas=tuple(running[place].target))
    return partitions


async def execute(admin: Admin, proposals: list[Proposal]) -> None:
    """Move, wait for it, and give leadership to whom it belongs. Raises CommandError, KafkaError, ClientError."""
    targets = {each.place: each.after for each in proposals}
    await begin_moves(admin, targets)
    while targets.keys() & (await admin.replicas.reassignments()).keys():  # noqa: ASYNC110 - brokers send no notice
        await asyncio.sleep(_LOOK_SECONDS)
    current = await current_of(admin, targets)
    other = [place for place, after in targets.items() if current.replicas[place] not in (after, None)]
    if other:
        raise CommandError(f"{len(other)} moves were cancelled meanwhile: {', '.join(map(str, sorted(other)))}")
    elections = await admin.replicas.elect([place for place in targets if current.replicas[place] is not None])
    failed = {
        place: error
        for place, error in elections.items()
        if error is not None and error.code is not ErrorCode.ELECTION_NOT_NEEDED
    }
    if failed:
        raise CommandError(
            f"all moves are complete, but {len(failed)} partitions are not led by their preferred replica: "
            f"{listed(failed)}",
            next(iter(failed.values())).code.name,
        )


def _show(
    arguments: argparse.Namespace,
    partitions: dict[TopicPartition, Replica],
    proposals: list[Proposal],
    brokers: list[int],
) -> None:
    if arguments.output in DOCUMENTS:
        # The form that Apache's kafka-reassign-partitions takes.
        moves = [
            {"topic": each.place.topic, "partition": each.place.partition, "replicas": list(each.after)}
            for each in proposals
        ]
        print(json.dumps({"version": 1, "partitions": moves}))
        return
    if not proposals:
        print("The cluster is balanced.")
        return
    rows = [
        {
            "topic": each.place.topic,
            "partition": each.place.partition,
            "from": each.before,
            "to": each.after,
            "bytes": each.moved_bytes,
        }
        for each in proposals
    ]
    show(rows, COLUMNS, arguments.output)
    if arguments.output == "tsv":
        return
    before, after = loads(partitions, brokers), loads(applied(partitions, proposals), brokers)
    print()
    names = ("bytes", "replicas", "preferred")
    show(
        [
            {"broker": broker}
            | dict(zip(names, before[broker], strict=True))
            | dict(zip((f"{name}_after" for name in names), after[broker], strict=True))
            for broker in brokers
        ],
        LOAD_COLUMNS,
        None,
    )
    if not arguments.execute:
        print("\nNothing was moved: --execute does it.")
