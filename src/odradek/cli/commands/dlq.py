"""`odradek dlq list|redrive`: dead letters, as `odradek.spark.dead_letters` and Kafka Connect write them.

`redrive` sends records back to the topics they came from, without the headers that describe the failure. A round of
records and the group's offsets are one transaction: an interrupted redrive skips no record and sends none twice.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from odradek.cli.arguments.errors import CommandError, UsageError, client_session
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import add_connection, add_output, client_settings, connect_ms, positive
from odradek.cli.terminal.confirmation import add_confirmation, confirm
from odradek.cli.terminal.output import Column, show

if TYPE_CHECKING:
    from odradek.client.consumer.consumer import Consumer
    from odradek.client.model import ConsumerRecord
    from odradek.client.producer.transactions import TransactionalProducer
    from odradek.records.topic_partition import TopicPartition

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
_ROUND: Final = 500
_POLL_MS: Final = 500


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


class Letter(NamedTuple):
    """A dead letter: the record, where it came from (None: its headers do not say), and how often it was sent again."""

    record: ConsumerRecord
    errors: dict[str, str]
    headers: tuple[tuple[str, bytes | None], ...]
    redrives: int

    @classmethod
    def of(cls, record: ConsumerRecord) -> Letter:
        """The dead letter in a record: its error headers apart from the other headers."""
        from odradek.spark.dead_letters import PREFIX, REDRIVES

        errors: dict[str, str] = {}
        kept: list[tuple[str, bytes | None]] = []
        for name, value in record.headers:
            if name.startswith(PREFIX):
                errors[name] = "" if value is None else bytes(value).decode(errors="replace")
            else:
                kept.append((name, value))
        count = errors.get(REDRIVES, "0")
        return cls(record, errors, tuple(kept), int(count) if count.isdecimal() else 0)

    @property
    def topic(self) -> str | None:
        """The topic that the record came from; None if no header names it."""
        from odradek.spark.dead_letters import TOPIC

        return self.errors.get(TOPIC)

    def row(self) -> dict[str, Any]:
        """The columns of `dlq list`."""
        from odradek.spark import dead_letters as names

        reason = (self.errors.get(names.CLASS), self.errors.get(names.MESSAGE))
        place = (self.topic or "?", self.errors.get(names.PARTITION, "?"), self.errors.get(names.OFFSET, "?"))
        return {
            "partition": self.record.partition,
            "offset": self.record.offset,
            "origin": "{}-{}@{}".format(*place),
            "redrives": self.redrives,
            "key": _text(self.record.key),
            "value": _text(self.record.value),
            "stack": self.errors.get(names.STACK),
            "error": ": ".join(each for each in reason if each),
        }


def _text(data: Any) -> str | None:
    return None if data is None else bytes(data).decode(errors="replace")


def _group(arguments: argparse.Namespace) -> str:
    return str(arguments.group or f"{arguments.topic}-redrive")


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

    group = _group(arguments)
    settings = {**client_settings(arguments, PRODUCER_DEFAULTS), "transactional_id": f"odradek-dlq-{group}"}
    counts: dict[str, int] = {}
    passed = 0
    async with _consumer(arguments) as consumer:
        await reach(consumer.cluster, connect_ms(arguments))
        # First the producer, then the offsets: an earlier redrive that is still about is fenced before they are read.
        async with TransactionalProducer(**settings) as producer:
            async for letters in _letters(consumer, arguments):
                limit = arguments.max_redrives
                wanted = [each for each in letters if limit is None or each.redrives < limit]
                passed += len(letters) - len(wanted)
                for topic, count in (await _send(producer, group, letters, wanted, arguments.to)).items():
                    counts[topic] = counts.get(topic, 0) + count
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

    counts: Counter[str] = Counter()
    async with _consumer(arguments) as consumer:
        await reach(consumer.cluster, connect_ms(arguments))
        async for letters in _letters(consumer, arguments):
            limit = arguments.max_redrives
            wanted = [each for each in letters if limit is None or each.redrives < limit]
            counts.update(arguments.to or each.topic or "?" for each in wanted)
    rows = [{"topic": topic, "records": count} for topic, count in sorted(counts.items())]
    show(rows, (Column("TOPIC", "topic"), Column("WOULD-REDRIVE", "records")), arguments.output)
    return 0


async def _send(
    producer: TransactionalProducer, group: str, letters: list[Letter], wanted: list[Letter], to: str | None
) -> dict[str, int]:
    """One transaction: the wanted ones, and the group's offsets behind all. The records by topic."""
    from odradek.records.topic_partition import TopicPartition
    from odradek.spark.dead_letters import REDRIVES

    counts: dict[str, int] = {}
    ends: dict[TopicPartition, int] = {}
    for each in letters:
        ends[TopicPartition(each.record.topic, each.record.partition)] = each.record.offset + 1
    async with producer.transaction():
        for each in wanted:
            topic = to or each.topic
            if topic is None:
                place = f"{each.record.topic}-{each.record.partition}@{each.record.offset}"
                raise CommandError(f"the headers of {place} do not name its topic: use --to")
            headers = [*each.headers, (REDRIVES, b"%d" % (each.redrives + 1))]
            record = each.record
            await producer.send(topic, record.value, record.key, headers, timestamp_ms=record.timestamp)
            counts[topic] = counts.get(topic, 0) + 1
        await producer.send_offsets(group, dict(ends))
    return counts


async def _letters(consumer: Consumer, arguments: argparse.Namespace) -> AsyncIterator[list[Letter]]:
    """Rounds of all dead letters from the group's offsets up to where the topic ends now."""
    from odradek.client.offsets import fetch_committed
    from odradek.records.topic_partition import TopicPartition

    cluster = consumer.cluster
    cluster.follow_topics([arguments.topic])
    errors = await cluster.refresh_metadata()
    info = cluster.metadata.topics.get(arguments.topic)
    if arguments.topic in errors or info is None:
        raise CommandError(f"there is no topic {arguments.topic}", "UNKNOWN_TOPIC_OR_PARTITION")
    keys = [TopicPartition(arguments.topic, each.partition) for each in info.partitions]
    ends = await consumer.end_offsets(keys)
    consumer.assign(keys)
    consumer.seek_to_beginning()
    if not arguments.from_beginning:
        committed = await fetch_committed(cluster, _group(arguments), keys, require_stable=True)
        starts = await consumer.beginning_offsets(keys)
        for key, at in committed.items():
            if at.offset >= starts[key]:
                consumer.seek(key, at.offset)
    left = arguments.max_records
    while left != 0 and any([await consumer.position(key) < ends[key] for key in keys]):
        found = await consumer.poll(_POLL_MS, max_records=_ROUND if left is None else min(left, _ROUND))
        letters = [Letter.of(each) for each in found if each.offset < ends[_place(each)]]
        if letters:
            yield letters
        if left is not None:
            left -= len(letters)


def _place(record: ConsumerRecord) -> TopicPartition:
    from odradek.records.topic_partition import TopicPartition

    return TopicPartition(record.topic, record.partition)
