"""`odradek dlq list|redrive`: dead letters, as `odradek.spark.dead_letters` and Kafka Connect write them.

`redrive` sends records back to the topics they came from, without the headers that describe the failure. A round of
records and the group's offsets are one transaction: an interrupted redrive skips no record and sends none twice.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from odradek.cli.arguments.errors import CommandError, UsageError, client_session
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import add_connection, add_output, client_settings, connect_ms, positive
from odradek.cli.terminal.confirmation import add_confirmation, confirm
from odradek.cli.terminal.output import Column, show

if TYPE_CHECKING:
    from odradek.client.consumer.consumer import Consumer
    from odradek.client.reports.dead_letters import Letter

ACTIONS: Final = ("list", "redrive")
COLUMNS: Final = (
    Column("PARTITION", "partition"),
    Column("OFFSET", "offset"),
    Column("ORIGIN", "origin"),
    Column("REDRIVES", "redrives"),
    Column("KEY", "key", wide=True),
    Column("VALUE", "value", wide=True),
    Column("STACK", "stack", wide=True),
    Column("ERROR", "error"),
)
EXAMPLES: Final = """
# list dead letters and their errors
odradek dlq list --topic payments-dlq
# count the records of each topic
odradek dlq redrive --topic payments-dlq --dry-run
# send them back to their topics
odradek dlq redrive --topic payments-dlq --max-redrives 3
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the actions list and redrive and their options."""
    parser.add_argument("action", choices=ACTIONS, help="list: show dead letters; redrive: send them to their topics")
    parser.add_argument("-t", "--topic", required=True, metavar="NAME", help="the topic of dead letters")
    parser.add_argument("--group", metavar="NAME", help="group that keeps the redriven offsets; default: NAME-redrive")
    parser.add_argument("--to", metavar="NAME", help="redrive to this topic instead of the topic of each record")
    parser.add_argument("--from-beginning", action="store_true", help="include records that were redriven before")
    parser.add_argument("--max-records", type=positive, metavar="N", help="stop after N records")
    parser.add_argument("--max-redrives", type=positive, metavar="N", help="skip records that were redriven N times")
    parser.add_argument("--dry-run", action="store_true", help="with redrive: count the records without sending them")
    add_confirmation(parser)
    add_connection(parser)
    add_output(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Execute the action; the exit code."""
    if arguments.action == "list" and (arguments.to or arguments.max_redrives or arguments.dry_run or arguments.yes):
        raise UsageError("--to, --max-redrives, --dry-run and --yes go with redrive only")
    if arguments.action == "redrive" and arguments.from_beginning and not arguments.dry_run:
        confirm(arguments, "redrive records a second time", [f"all records of {arguments.topic}"])
    actions = {"list": _list, "redrive": _count if arguments.dry_run else _redrive}
    with client_session():
        return asyncio.run(actions[arguments.action](arguments))


def _group(arguments: argparse.Namespace) -> str:
    from odradek.client.reports.dead_letters import redrive_group

    return str(arguments.group or redrive_group(arguments.topic))


async def _list(arguments: argparse.Namespace) -> int:
    from odradek.cli.session import reach

    found: list[Letter] = []
    async with _consumer(arguments) as consumer:
        await reach(consumer.cluster, connect_ms(arguments))
        async for letters in _letters(consumer, arguments):
            found += letters
    found.sort(key=lambda each: (each.record.partition, each.record.offset))
    show([each.row() for each in found], COLUMNS, arguments.output)
    return 0


def _consumer(arguments: argparse.Namespace) -> Consumer:
    from odradek.client.config import CONSUMER_DEFAULTS
    from odradek.client.consumer.consumer import Consumer

    settings = client_settings(arguments, CONSUMER_DEFAULTS)
    return Consumer(**{**settings, "isolation_level": "read_committed", "allow_auto_create_topics": False})


async def _redrive(arguments: argparse.Namespace) -> int:
    from odradek.cli.session import reach
    from odradek.client.config import PRODUCER_DEFAULTS
    from odradek.client.producer.transactions import TransactionalProducer
    from odradek.client.reports.dead_letters import UnknownOrigin, redrive_id, send_again, wanted_of

    group = _group(arguments)
    settings = {**client_settings(arguments, PRODUCER_DEFAULTS), "transactional_id": redrive_id(group)}
    counts: Counter[str] = Counter()
    passed = 0
    async with _consumer(arguments) as consumer:
        await reach(consumer.cluster, connect_ms(arguments))
        # First the producer, then the offsets: an earlier redrive that is still about is fenced before they are read.
        async with TransactionalProducer(**settings) as producer:
            async for letters in _letters(consumer, arguments):
                wanted = wanted_of(letters, arguments.max_redrives)
                passed += len(letters) - len(wanted)
                try:
                    counts += await send_again(producer, group, letters, wanted, arguments.to)
                except UnknownOrigin as error:
                    raise CommandError(f"the headers of {error} do not name its topic: use --to") from error
    rows = [{"topic": topic, "records": count} for topic, count in sorted(counts.items())]
    if rows or arguments.output:
        show(rows, (Column("TOPIC", "topic"), Column("REDRIVEN", "records")), arguments.output)
    else:
        print(f"nothing to redrive in {arguments.topic} for group {group}")
    if passed and not arguments.output:
        print(f"{passed} records were skipped: they were redriven {arguments.max_redrives} times or more")
    return 0


async def _count(arguments: argparse.Namespace) -> int:
    """Show how many records a redrive would send to each topic."""
    from odradek.cli.session import reach
    from odradek.client.reports.dead_letters import wanted_of

    counts: Counter[str] = Counter()
    async with _consumer(arguments) as consumer:
        await reach(consumer.cluster, connect_ms(arguments))
        async for letters in _letters(consumer, arguments):
            counts.update(arguments.to or each.topic or "?" for each in wanted_of(letters, arguments.max_redrives))
    rows = [{"topic": topic, "records": count} for topic, count in sorted(counts.items())]
    show(rows, (Column("TOPIC", "topic"), Column("WOULD-REDRIVE", "records")), arguments.output)
    return 0


async def _letters(consumer: Consumer, arguments: argparse.Namespace) -> AsyncIterator[list[Letter]]:
    """Rounds of dead letters. Raises CommandError."""
    from odradek.client.reports.dead_letters import OffsetBeyondEnd, UnknownTopic, read_letters

    rounds = read_letters(
        consumer,
        arguments.topic,
        _group(arguments),
        from_beginning=arguments.from_beginning,
        max_records=arguments.max_records,
    )
    try:
        async for letters in rounds:
            yield letters
    except UnknownTopic as error:
        raise CommandError(str(error), "UNKNOWN_TOPIC_OR_PARTITION") from error
    except OffsetBeyondEnd as error:
        raise CommandError(str(error)) from error
