"""`odradek consume`: Apache's console consumer (its ConsoleConsumer), with offsets and formats of rpk and kcat."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any, Final, cast

from odradek.cli.arguments.errors import CommandError, UsageError, client_session
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.names import topic_pattern
from odradek.cli.arguments.options import (
    add_connection,
    add_output,
    adopt_positional,
    client_settings,
    connect_ms,
    delimiter,
    milliseconds,
    or_unlimited,
    pairs,
    read_properties,
    renamed,
)
from odradek.cli.records.offset_spec import END, START, OffsetRange, parse_range, resolve
from odradek.cli.records.parquet_files import ParquetOutput, avro_values, below, offsets_behind, require_parquet
from odradek.cli.records.record_format import (
    DEFAULT_FORMATTERS,
    NO_OP_FORMATTERS,
    Format,
    default_format,
    json_format,
    table_format,
    template_format,
    tsv_format,
    yaml_format,
)
from odradek.cli.terminal.signals import OF_A_SIGNAL, end_on_signals
from odradek.cli.terminal.streams import write_bytes

if TYPE_CHECKING:
    from odradek.client.consumer.avro_columns import AvroValues
    from odradek.client.consumer.consumer import Consumer
    from odradek.client.model import ConsumerRecord
    from odradek.records.topic_partition import TopicPartition

ENDS_WITH_ITS_READER: Final = True
"""See `odradek.cli.main.execute`."""
_POLL_MS: Final = 1_000
_POLL_RECORDS: Final = 2_000
_NEW_TOPIC_SECONDS: Final = 1.0
"""How long a topic that was just created may be unknown to the broker that is asked."""


_OF_DEFAULT_FORMAT: Final = (
    "key_delimiter", "record_delimiter", "formatter_property", "property", "formatter_config", "formatter",
    "key_deserializer", "value_deserializer",
)  # fmt: skip
"""The options that say how Apache's formatters print a record."""

EXAMPLES: Final = r"""
# print the first ten records
odradek consume greetings --from-beginning -n 10
# print the last ten records of each partition, then exit
odradek consume greetings --offset -10 -e
# print the records of the last hour as JSON
odradek consume greetings --offset @-1h:end -o json
# read as a member of a group
odradek consume greetings --group family --from-beginning -n 2
# choose what is printed
odradek consume greetings --offset earliest -e -f '%t %p %o %k %v\n'
# write what a topic has to a Parquet file
odradek consume greetings --offset earliest -e --to-parquet greetings.parquet
# write Avro values as columns
odradek consume orders --offset earliest -e --to-parquet orders.parquet --value-schema order.avsc
# read all topics that match
odradek consume --include 'test-.*' --from-beginning -e
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options for subscription, start, end and format."""
    parser.add_argument("positional", nargs="?", metavar="TOPIC", help="the same as --topic TOPIC")
    what = parser.add_argument_group("what to read")
    what.add_argument("-t", "--topic", metavar="NAME", help="topic to read")
    what.add_argument("--include", metavar="REGEX", help="read all topics whose whole name matches")
    what.add_argument("-p", "--partition", type=int, metavar="N", help="read only this partition")
    what.add_argument(
        "--from-beginning", action="store_true", help="start at the first record without a committed offset"
    )
    what.add_argument(
        "--offset",
        metavar="WHERE",
        help="earliest, latest, 42, -10 (the last ten), +10, @TIME, FROM:TO; TIME is 2026-01-31T12:00, ms or -1h",
    )
    what.add_argument("-g", "--group", metavar="ID", help="read as a member of a group, which commits its offsets")
    what.add_argument(
        "--isolation-level", choices=("read_uncommitted", "read_committed"), help="default: read_uncommitted"
    )
    until = parser.add_argument_group("when to end")
    until.add_argument("-n", "--max-messages", type=or_unlimited, default=-1, metavar="N", help="after N records")
    until.add_argument("--timeout-ms", type=or_unlimited, metavar="MS", help="after MS without a record")
    until.add_argument("-e", "--exit", action="store_true", help="at the current end of the topic")
    _configure_output(parser.add_argument_group("how to print"))
    parser.add_argument("--property", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--command-property", action="append", default=[], metavar="NAME=VALUE", help="client setting")
    parser.add_argument("--consumer-property", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--consumer.config", dest="consumer_config", help=argparse.SUPPRESS)
    parser.add_argument("--request-timeout-ms", type=milliseconds, help=argparse.SUPPRESS)
    parser.set_defaults(form=None)
    add_connection(parser)
    add_output(parser, stream=True)
    add_examples(parser, EXAMPLES)


def _configure_output(shape: argparse._ArgumentGroup) -> None:
    shape.add_argument(
        "-f", "--format", metavar="TEMPLATE", help=r"such as '%%t %%p %%o %%k %%v\n'; %%v{hex}, %%d{strftime[%%F]}, …"
    )
    shape.add_argument(
        "-K",
        "--key-delimiter",
        type=delimiter,
        metavar="TEXT",
        help=r"print the key and this (\t, \x1f, …) before the value",
    )
    shape.add_argument(
        "-D", "--record-delimiter", type=delimiter, metavar="TEXT", help=r"print this after each record (default: \n)"
    )
    shape.add_argument(
        "--to-parquet",
        metavar="FILE",
        help="write the records to a new Parquet file instead of printing them",
    )
    shape.add_argument("--value-schema", metavar="FILE.avsc", help="with --to-parquet: write Avro values as columns")
    shape.add_argument(
        "--value-schema-id",
        action="append",
        default=[],
        metavar="ID=FILE.avsc",
        help="values begin with a schema id (Confluent's wire format); this is the schema of ID (repeatable)",
    )
    shape.add_argument("-q", "--quiet", action="store_true", help="do not print the number of records at the end")
    shape.add_argument(
        "--formatter-property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="print.timestamp, .key, .offset, .epoch, .partition, .headers, .value (true, false), key.separator, "
        "line.separator, headers.separator, null.literal, key.deserializer, value.deserializer, header.deserializer",
    )
    shape.add_argument("--formatter-config", metavar="FILE", help="formatter properties in a file")
    shape.add_argument("--formatter", metavar="CLASS", help="Apache's DefaultMessageFormatter or NoOpMessageFormatter")
    shape.add_argument("--key-deserializer", metavar="CLASS", help="Apache's String-, Long-, DoubleDeserializer, …")
    shape.add_argument("--value-deserializer", metavar="CLASS", help="the same for values")
    shape.add_argument("--skip-message-on-error", action="store_true", help="skip records that cannot be printed")


def run(arguments: argparse.Namespace) -> int:
    """Print records until the end, the limit or a signal; the exit code."""
    adopt_positional(arguments, "topic")
    check(arguments)
    arguments.command_config = renamed(arguments, "consumer.config", "command-config")
    form = chosen_format(arguments)
    span = None
    if arguments.offset is not None:
        span = parse_range(arguments.offset, time.time_ns() // 1_000_000)
    if span is None and arguments.partition is not None:
        span = OffsetRange(START if arguments.from_beginning else END, None)
    with client_session("consume"):
        return asyncio.run(consume(arguments, form, span))


def check(arguments: argparse.Namespace) -> None:
    """Raises UsageError."""
    if (arguments.topic is None) == (arguments.include is None):
        raise UsageError("name one topic (TOPIC or --topic), or topics by --include")
    if arguments.partition is not None and arguments.topic is None:
        raise UsageError("--partition goes with --topic only")
    if arguments.partition is not None and arguments.partition < 0:
        raise UsageError(f"--partition {arguments.partition} is negative")
    if arguments.from_beginning and arguments.offset is not None:
        raise UsageError("--from-beginning and --offset exclude each other")
    if arguments.to_parquet is not None and (arguments.output is not None or arguments.format is not None):
        raise UsageError("--to-parquet goes neither with --format nor with --output")
    if arguments.format is not None and arguments.output is not None:
        raise UsageError("--format and --output exclude each other")
    if arguments.value_schema is not None and arguments.to_parquet is None:
        raise UsageError("--value-schema goes with --to-parquet only")
    if arguments.value_schema_id and arguments.value_schema is None:
        raise UsageError("--value-schema-id goes with --value-schema only")
    for option in ("partition", "offset"):
        if arguments.group is not None and getattr(arguments, option) is not None:
            raise UsageError(f"--group and --{option} exclude each other: a group shares partitions and keeps offsets")


def chosen_format(arguments: argparse.Namespace) -> Format | None:
    """The format of records; None prints nothing. Raises UsageError."""
    if arguments.form is not None:
        return cast(Format, arguments.form)
    if arguments.to_parquet is not None or arguments.format is not None or arguments.output is not None:
        for option in _OF_DEFAULT_FORMAT:
            if getattr(arguments, option):
                name = option.replace("_", "-")
                raise UsageError(f"--{name} goes with none of --format, --output and --to-parquet")
    if arguments.to_parquet is not None:
        return None
    if arguments.format is not None:
        return template_format(arguments.format)
    if arguments.output is not None:
        formats = {"json": json_format, "jsonl": json_format, "yaml": yaml_format, "tsv": tsv_format}
        return formats.get(arguments.output, table_format)()
    properties = pairs(renamed(arguments, "property", "formatter-property"), "formatter-property")
    if arguments.formatter_config:
        properties = {**read_properties(arguments.formatter_config, "formatter-config"), **properties}
    for option in ("key", "value"):
        name = getattr(arguments, f"{option}_deserializer")
        if name is not None:
            properties[f"{option}.deserializer"] = name
    if arguments.key_delimiter is not None:
        properties.update({"print.key": "true", "key.separator": arguments.key_delimiter})
    if arguments.record_delimiter is not None:
        properties["line.separator"] = arguments.record_delimiter
    formatter = arguments.formatter
    if formatter in NO_OP_FORMATTERS:
        return None
    if formatter is not None and formatter not in DEFAULT_FORMATTERS:
        raise UsageError(f"--formatter {formatter}: unknown class")
    return default_format(properties)


def settings_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The consumer's settings: options go before properties, properties before the file. Raises UsageError."""
    from odradek.client.config import CONSUMER_DEFAULTS

    given = pairs(renamed(arguments, "consumer-property", "command-property"), "command-property")
    settings = client_settings(arguments, CONSUMER_DEFAULTS, given)
    group = settings.get("group_id")
    if arguments.group is not None:
        if group not in (None, arguments.group):
            raise UsageError(f"--group {arguments.group}, but group.id={group} in the properties")
        settings["group_id"] = arguments.group
    if settings.get("group_id") is None:
        settings.pop("enable_auto_commit", None)
    if arguments.isolation_level is not None:
        settings["isolation_level"] = arguments.isolation_level
    if arguments.from_beginning:
        if settings.get("auto_offset_reset", "earliest") not in ("earliest", "beginning"):
            raise UsageError(
                f"--from-beginning, but auto.offset.reset={settings['auto_offset_reset']} in the properties"
            )
        settings["auto_offset_reset"] = "earliest"
    elif arguments.offset is not None:
        # A deleted offset: start at the first record that is left, as Apache's tool does with its own reset.
        settings.setdefault("auto_offset_reset", "earliest")
    return settings


async def consume(arguments: argparse.Namespace, form: Format | None, span: OffsetRange | None) -> int:
    """Consume in the form; the exit code. Without `span` the group or --from-beginning decides where to start."""
    from odradek.cli.session import reach
    from odradek.client.consumer.consumer import Consumer

    settings = settings_of(arguments)
    if settings.get("group_id") is not None and span is not None:
        raise UsageError("--offset and --partition exclude group.id in the properties")
    if arguments.exit or (span is not None and span.end is not None):
        # Reading what there is must not create a topic; waiting for records does, as in Apache's tool.
        settings.setdefault("allow_auto_create_topics", False)
    printer = Printer(form, arguments.skip_message_on_error)
    parquet = values = None
    if arguments.to_parquet is not None:
        require_parquet()
        values = (
            None if arguments.value_schema is None else avro_values(arguments.value_schema, arguments.value_schema_id)
        )
        parquet = ParquetOutput(arguments.to_parquet)
    commits = parquet is not None and takes_over_commits(settings)
    ended = end_on_signals()
    try:
        async with Consumer(**settings) as consumer:
            await reach(consumer.cluster, connect_ms(arguments))
            ends = await begin(consumer, arguments, span)
            try:
                if parquet is None:
                    await read(consumer, arguments, printer, ends)
                else:
                    await write_parquet(consumer, arguments, parquet, ends, values, commits=commits)
            finally:
                if not arguments.quiet:
                    count = printer.count if parquet is None else parquet.count
                    print(f"Processed a total of {count} messages", file=sys.stderr)
    except asyncio.CancelledError:
        if not ended:
            raise
        return OF_A_SIGNAL + ended[0]
    return 0


def takes_over_commits(settings: dict[str, Any]) -> bool:
    """Disable automatic commits; whether they were enabled.

    They would cover rows of a file that is not complete, which cannot be read if it never is.
    """
    automatic = str(settings.get("enable_auto_commit", True)).strip().lower() == "true"
    if settings.get("group_id") is None or not automatic:
        return False
    settings["enable_auto_commit"] = False
    return True


async def begin(
    consumer: Consumer, arguments: argparse.Namespace, span: OffsetRange | None
) -> dict[TopicPartition, int] | None:
    """Subscribe or assign. Returns where to end in each partition, None for nowhere."""
    pattern = None if arguments.include is None else topic_pattern(arguments.include, "include")
    if pattern is None and not consumer.config["allow_auto_create_topics"]:
        await check_topic(consumer, arguments.topic)
    in_group = consumer.config["group_id"] is not None
    if in_group or (span is None and not arguments.exit):
        consumer.subscribe([arguments.topic] if pattern is None else [], pattern=pattern)
        return {} if arguments.exit else None
    from odradek.records.topic_partition import TopicPartition

    if pattern is None:
        names = [arguments.topic]
    else:
        consumer.cluster.follow_topics(None)
        await consumer.cluster.refresh_metadata()
        topics = consumer.cluster.metadata.topics
        names = sorted(n for n, info in topics.items() if pattern.fullmatch(n) and not info.is_internal)
    partitions = [
        TopicPartition(name, each.partition)
        for name in names
        for each in await consumer.partitions_for(name)
        if arguments.partition in (None, each.partition)
    ]
    if not partitions:
        missing = arguments.topic if arguments.partition is None else f"{arguments.topic}-{arguments.partition}"
        raise CommandError(f"there is no {missing or arguments.include}", "UNKNOWN_TOPIC_OR_PARTITION")
    consumer.assign(partitions)
    if span is None:
        span = OffsetRange(START if arguments.from_beginning else END, None)
    for key, offset in (await resolve(consumer, partitions, span.start)).items():
        consumer.seek(key, offset)
    if span.end is None and not arguments.exit:
        return None
    return await resolve(consumer, partitions, span.end or END)


async def check_topic(consumer: Consumer, topic: str) -> None:
    """Raises CommandError if the topic does not exist, also a moment later: brokers learn of new topics one by one."""
    from odradek.wire.errors import ErrorCode
    from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    deadline = time.monotonic() + _NEW_TOPIC_SECONDS
    while True:
        connection = await consumer.cluster.connections.any()
        response = await consumer.cluster.ask(connection, asked, MetadataResponse)
        if response.topics[0].error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return
        if time.monotonic() > deadline:
            raise CommandError(f"topic {topic} does not exist", "UNKNOWN_TOPIC_OR_PARTITION")
        await asyncio.sleep(_NEW_TOPIC_SECONDS / 5)


async def read(
    consumer: Consumer, arguments: argparse.Namespace, printer: Printer, ends: dict[TopicPartition, int] | None
) -> None:
    """Print records until one of the conditions to end holds."""
    limit, idle_ms = arguments.max_messages, arguments.timeout_ms
    bounded = ends is not None and consumer.config["group_id"] is None
    idle = IdleLimit(idle_ms)
    while limit < 0 or printer.count < limit:
        if ends is not None and await is_done(consumer, ends):
            return
        most = _POLL_RECORDS if limit < 0 else min(_POLL_RECORDS, limit - printer.count)
        records = await consumer.poll(idle.left_ms(_POLL_MS), most)
        if bounded and ends is not None:
            records = [each for each in records if each.offset < ends[each.topic_partition]]
        if records:
            write(consumer, printer, records)
            idle = IdleLimit(idle_ms)
        elif idle.is_over():
            return


def write(consumer: Consumer, printer: Printer, records: list[ConsumerRecord]) -> None:
    """Print records. What cannot be printed, and what follows, is not committed. Raises CommandError, OSError."""
    before = printer.count
    try:
        printer.write(records)
    except (CommandError, OSError):
        unprinted = records[printer.count - before :]
        for key, offset in {each.topic_partition: each.offset for each in reversed(unprinted)}.items():
            consumer.seek(key, offset)
        raise


async def write_parquet(
    consumer: Consumer,
    arguments: argparse.Namespace,
    output: ParquetOutput,
    ends: dict[TopicPartition, int] | None,
    values: AvroValues | None,
    *,
    commits: bool,
) -> None:
    """Write records to the file until one of the conditions to end holds, or a signal comes. It is complete then.

    With `commits`, the offsets behind its rows are committed once it is. Raises CommandError for a value that is not
    Avro of the schema.
    """
    from odradek.client.consumer.columns import table_schema

    limit = arguments.max_messages
    bounded = ends is not None and consumer.config["group_id"] is None
    idle = IdleLimit(arguments.timeout_ms)
    written: dict[TopicPartition, int] = {}
    try:
        while limit < 0 or output.count < limit:
            if ends is not None and await is_done(consumer, ends):
                break
            try:
                async with asyncio.timeout(idle.left_ms(_POLL_MS) / 1000):
                    table = await anext(consumer.arrow(include_headers=True, values=values))
            except TimeoutError:
                if idle.is_over():
                    break
                continue
            except ValueError as error:
                raise CommandError(str(error)) from error
            if bounded and ends is not None:
                table = below(table, ends)
            rows = table if limit < 0 else table.slice(0, limit - output.count)
            output.write(rows)
            if commits:
                written.update(offsets_behind(rows))
            idle = IdleLimit(arguments.timeout_ms)
    except asyncio.CancelledError:
        output.finish(table_schema(include_headers=True, values=values))
        await commit(consumer, written)
        raise
    except BaseException:
        output.abandon()
        raise
    output.finish(table_schema(include_headers=True, values=values))
    await commit(consumer, written)


async def commit(consumer: Consumer, offsets: dict[TopicPartition, int]) -> None:
    """Commit offsets, except of partitions that another member of the group has by now."""
    assigned = consumer.assignment()
    kept = {key: offset for key, offset in offsets.items() if key in assigned}
    if kept:
        await consumer.commit(kept)


class IdleLimit:
    """The time limit without a record."""

    __slots__ = ("_deadline",)

    def __init__(self, idle_ms: int | None) -> None:
        self._deadline = None if idle_ms is None or idle_ms < 0 else time.monotonic() + idle_ms / 1000

    def left_ms(self, most_ms: float) -> float:
        """Milliseconds until --timeout-ms without records is over, at most `most_ms`."""
        if self._deadline is None:
            return most_ms
        return max(0.0, min(most_ms, (self._deadline - time.monotonic()) * 1000))

    def is_over(self) -> bool:
        """Whether --timeout-ms has passed without records."""
        return self._deadline is not None and time.monotonic() >= self._deadline


async def is_done(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    """Whether all assigned partitions are read up to their ends; that of a newly assigned one is its end now."""
    assigned = consumer.assignment()
    fresh = assigned - ends.keys()
    if fresh:
        ends.update(await consumer.end_offsets(fresh))
    done = bool(assigned)
    paused = consumer.paused()
    for key in assigned - paused:
        if await consumer.position(key) < ends[key]:
            done = False
        elif consumer.config["group_id"] is None:
            consumer.pause([key])
    return done


class Printer:
    """Writes records to standard output and counts them."""

    __slots__ = ("_form", "_skip", "count")

    def __init__(self, form: Format | None, skip: bool) -> None:
        self._form = form
        self._skip = skip
        self.count = 0

    def write(self, records: list[ConsumerRecord]) -> None:
        """Raises CommandError for a record that cannot be printed, unless those are skipped."""
        if self._form is None:
            self.count += len(records)
            return
        try:
            text = b"".join(map(self._form, records))
        except (CommandError, ValueError):
            self._write_singly(records)
            return
        write_bytes(text)
        self.count += len(records)

    def _write_singly(self, records: list[ConsumerRecord]) -> None:
        for each in records:
            self._write_one(each)
            self.count += 1

    def _write_one(self, record: ConsumerRecord) -> None:
        assert self._form is not None
        try:
            write_bytes(self._form(record))
        except (CommandError, ValueError) as error:
            message = f"{record.topic_partition} offset {record.offset}: {error}"
            if not self._skip:
                raise CommandError(message) from error
            print(f"odradek consume: {message}", file=sys.stderr)
