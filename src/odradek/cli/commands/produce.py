"""`odradek produce`: Apache's console producer (its ConsoleProducer), and lines of JSON."""

from __future__ import annotations

import argparse
import asyncio
import os
import stat
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.arguments.errors import CommandError, UsageError, client_session
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import (
    add_connection,
    add_output,
    adopt_positional,
    client_settings,
    connect_ms,
    delimiter,
    milliseconds,
    pairs,
    positive,
    read_properties,
    renamed,
)
from odradek.cli.records.line_reader import Headers, JsonReader, LineReader
from odradek.cli.records.parquet_files import open_parquet
from odradek.cli.terminal.signals import OF_A_SIGNAL, end_on_signals
from odradek.cli.terminal.streams import output_without_reader_dropped

if TYPE_CHECKING:
    from odradek.client.producer.accumulator import Delivery
    from odradek.client.producer.producer import Producer

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
READERS: Final = ("org.apache.kafka.tools.LineMessageReader", "kafka.tools.ConsoleProducer$LineMessageReader")
_CHUNK_BYTES: Final = 1 << 18
_UNREPORTED: Final = 10_000

TUNING: Final = (
    ("batch-size", "batch_size", "maximum size of a batch, in bytes"),
    ("max-partition-memory-bytes", "batch_size", argparse.SUPPRESS),
    ("max-memory-bytes", "buffer_memory", "memory for records that wait to be sent, in bytes"),
    ("max-block-ms", "max_block_ms", "time limit to wait for metadata and memory"),
    ("message-send-max-retries", "retries", "number of retries of a failed batch"),
    ("metadata-expiry-ms", "metadata_max_age_ms", "maximum age of metadata"),
    ("request-timeout-ms", "request_timeout_ms", "time limit for a response"),
    ("retry-backoff-ms", "retry_backoff_ms", "pause before a retry"),
    ("timeout", "linger_ms", "time that a batch waits for more records (linger.ms)"),
)
"""Option -> the producer's setting of the same meaning."""


EXAMPLES: Final = r"""
# send each line as a record
printf 'hello\nworld\n' | odradek produce greetings
# send keys and values
printf 'Gregor:hello\n' | odradek produce greetings -K :
# send lines with one key and a header
odradek produce greetings -k Grete -H source=cli < letters.txt
# send the rows of a Parquet file, as JSON of two columns, with a third one as the key
odradek produce flights --from-parquet flights.parquet --value-columns origin,delay --key-column carrier
# copy a topic
odradek consume greetings -e --offset earliest -o json | odradek produce copies -i json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options for topic, input format and producer."""
    parser.add_argument("positional", nargs="?", metavar="TOPIC", help="the same as --topic TOPIC")
    parser.add_argument("-t", "--topic", metavar="NAME", help="topic to send to")
    parser.add_argument("-p", "--partition", type=int, metavar="N", help="send all records to this partition")
    parser.add_argument("-k", "--key", metavar="TEXT", help="the key of every record")
    parser.add_argument(
        "-K",
        "--key-delimiter",
        type=delimiter,
        metavar="TEXT",
        help=r"each line is KEY, this text (\t, \x1f, …), VALUE",
    )
    parser.add_argument(
        "-D", "--record-delimiter", type=delimiter, metavar="TEXT", help=r"records end with this text (default: \n)"
    )
    parser.add_argument(
        "-H", "--header", action="append", default=[], metavar="NAME=VALUE", help="a header of every record"
    )
    parser.add_argument(
        "-i", "--input", choices=("lines", "json"), default="lines", help="json: lines as of `odradek consume -o json`"
    )
    parser.add_argument("--from-parquet", metavar="FILE", help="send the rows of a Parquet file, not lines")
    parser.add_argument(
        "--value-columns", metavar="NAMES", help="column of the values, or several, which make JSON (default: value)"
    )
    parser.add_argument("--key-column", metavar="NAME", help="column of the keys (default: key, if there is one)")
    parser.add_argument(
        "--reader-property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="parse.key, parse.headers, ignore.error (true, false), key.separator, headers.delimiter, "
        "headers.separator, headers.key.separator, null.marker",
    )
    parser.add_argument("--reader-config", metavar="FILE", help="reader properties in a file")
    parser.add_argument("--property", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--line-reader", choices=READERS, default=READERS[0], metavar="CLASS", help=argparse.SUPPRESS)
    parser.add_argument("--command-property", action="append", default=[], metavar="NAME=VALUE", help="client setting")
    parser.add_argument("--producer-property", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--producer.config", dest="producer_config", help=argparse.SUPPRESS)
    parser.add_argument("--sync", action="store_true", help="wait for the acknowledgement of each record")
    parser.add_argument(
        "-z",
        "--compression-codec",
        nargs="?",
        const="gzip",
        choices=CODECS,
        help="compression of batches (-z alone: gzip)",
    )
    parser.add_argument(
        "--request-required-acks", choices=("0", "1", "-1", "all"), help="acknowledgements to wait for (default: all)"
    )
    for option, setting, about in TUNING:
        kind = positive if option in ("batch-size", "max-partition-memory-bytes") else milliseconds
        parser.add_argument(f"--{option}", type=kind, dest=f"set_{setting}", metavar="N", help=about)
    parser.add_argument("--socket-buffer-size", type=int, metavar="N", help=argparse.SUPPRESS)
    parser.set_defaults(default_key=None, skip_empty=False, limit=-1)
    add_connection(parser)
    add_output(parser, stream=True)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Send the records of the input; exit code 1 if one was not acknowledged."""
    adopt_positional(arguments, "topic")
    if not arguments.topic:
        raise UsageError("--topic is needed")
    arguments.command_config = renamed(arguments, "producer.config", "command-config")
    properties = pairs(renamed(arguments, "property", "reader-property"), "reader-property")
    if arguments.reader_config:
        properties = {**read_properties(arguments.reader_config, "reader-config"), **properties}
    if arguments.key_delimiter is not None:
        if arguments.input == "json" or properties.keys() & {"parse.key", "key.separator"}:
            raise UsageError("--key-delimiter goes neither with -i json nor with parse.key and key.separator")
        properties.update({"parse.key": "true", "key.separator": arguments.key_delimiter})
    if properties and (arguments.input == "json" or arguments.from_parquet is not None):
        option = "-i json" if arguments.input == "json" else "--from-parquet"
        raise UsageError(f"--reader-property and --reader-config are for lines, not for {option}")
    reader = LineReader(properties) if arguments.input == "lines" else JsonReader()
    headers = headers_of(arguments.header)
    if arguments.partition is not None and arguments.partition < 0:
        raise UsageError(f"--partition {arguments.partition} is negative")
    check_parquet(arguments)
    # Where its reader has gone (`-o json | head`), the records are to be sent nevertheless.
    with client_session("produce"), output_without_reader_dropped():
        if arguments.from_parquet is not None:
            return asyncio.run(send_parquet(arguments))
        return asyncio.run(send_all(arguments, reader, headers))


def headers_of(texts: Sequence[str]) -> Headers:
    """`NAME=VALUE` texts in order; a name may repeat. Raises UsageError."""
    return [(name, value.encode()) for each in texts for name, value in pairs([each], "header").items()]


def settings_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The producer's settings: options go before properties, properties before the file."""
    from odradek.client.config import PRODUCER_DEFAULTS

    given = pairs(renamed(arguments, "producer-property", "command-property"), "command-property")
    settings = client_settings(arguments, PRODUCER_DEFAULTS, given)
    for _, setting, _ in TUNING:
        value = getattr(arguments, f"set_{setting}")
        if value is not None:
            settings[setting] = value
    if arguments.compression_codec is not None:
        settings["compression_type"] = arguments.compression_codec
    if arguments.request_required_acks is not None:
        settings["acks"] = arguments.request_required_acks
    return settings


async def send_all(arguments: argparse.Namespace, reader: LineReader | JsonReader, headers: Headers) -> int:
    """Send every line of standard input and wait until all are acknowledged; the exit code.

    What was read before a bad line, or before a signal, is sent, as by Apache's tool. Raises CommandError.
    """
    from odradek.cli.session import reach
    from odradek.client.errors import ClientError
    from odradek.client.producer.producer import Producer
    from odradek.wire.errors import KafkaError

    report = Report(arguments.topic, arguments.output)
    sent = 0
    ended, stop = end_on_signals(), asyncio.Event()
    try:
        async with Producer(**settings_of(arguments)) as producer:
            await reach(producer.cluster, connect_ms(arguments))
            ended = end_on_signals(stop)
            try:
                async for record in records(arguments, reader, headers, stop):
                    delivery = await producer.send(arguments.topic, *record)
                    sent += 1
                    if arguments.sync:
                        await delivery
                    await report.sent(delivery)
            except (CommandError, KafkaError, ClientError) as error:
                await finish(producer, sent, str(error))
                raise
            await finish(producer, sent)
            await report.close()
    except asyncio.CancelledError:
        if not ended:
            raise
    return OF_A_SIGNAL + ended[0] if ended else 0


async def records(
    arguments: argparse.Namespace, reader: LineReader | JsonReader, headers: Headers, stop: asyncio.Event
) -> AsyncIterator[tuple[bytes | None, bytes | None, Headers, int | None, int | None]]:
    """Value, key, headers, partition and timestamp of each line, as `Producer.send` takes them, until `stop`.

    Raises CommandError for a bad line.
    """
    key = None if arguments.key is None else arguments.key.encode()
    end = arguments.record_delimiter or "\n"
    number = 0
    async for line in lines(prompt=sys.stdout.isatty(), end=end.encode(), stop=stop):
        if number == arguments.limit:
            break
        if not line and arguments.skip_empty:
            continue
        number += 1
        record = reader.read(line, number)
        own_key = arguments.default_key if record.key is None else record.key
        yield (
            record.value,
            own_key if key is None else key,
            record.headers + headers,
            arguments.partition,
            record.timestamp_ms,
        )


def check_parquet(arguments: argparse.Namespace) -> None:
    """Raises UsageError for options that do not go together."""
    if arguments.from_parquet is None:
        for option in ("value_columns", "key_column"):
            if getattr(arguments, option) is not None:
                raise UsageError(f"--{option.replace('_', '-')} goes with --from-parquet only")
        return
    given = {
        "-K": arguments.key_delimiter, "-k": arguments.key, "-p": arguments.partition, "-H": arguments.header,
        "-D": arguments.record_delimiter, "--sync": arguments.sync, "-o": arguments.output,
        "-i": arguments.input == "json",
    }  # fmt: skip
    wrong = [option for option, value in given.items() if value not in (None, False, [])]
    if wrong:
        raise UsageError(f"--from-parquet does not go with {', '.join(wrong)}")


async def send_parquet(arguments: argparse.Namespace) -> int:
    """Send the rows of a file and wait until all are acknowledged. Raises CommandError."""
    import pyarrow as pa

    from odradek.cli.session import reach
    from odradek.client.consumer.columns import ROWS_AT_ONCE
    from odradek.client.producer.producer import Producer

    file = open_parquet(arguments.from_parquet)
    names = file.schema_arrow.names
    value = (arguments.value_columns or "value").split(",")
    key = arguments.key_column or ("key" if "key" in names else None)
    headers = "headers" if "headers" in names else None
    sent = 0
    async with Producer(**settings_of(arguments)) as producer:
        await reach(producer.cluster, connect_ms(arguments))
        try:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                table = pa.Table.from_batches([batch])
                columns = value[0] if len(value) == 1 else value
                sent += await producer.send_table(table, arguments.topic, value=columns, key=key, headers=headers)
        except ValueError as error:
            raise CommandError(f"{arguments.from_parquet}: {error}; {sent} rows were sent") from error
        await finish(producer, sent)
    print(f"{sent} rows were sent", file=sys.stderr)
    return 0


async def finish(producer: Producer, count: int, reason: str = "") -> None:
    """Wait for all acknowledgements. Raises CommandError if a record was lost; `reason` says why no more are sent."""
    from odradek.client.errors import ClientError
    from odradek.wire.errors import KafkaError

    before = f"{reason}; " if reason else ""
    try:
        await producer.flush()
    except (KafkaError, ClientError) as error:
        code = error.code.name if isinstance(error, KafkaError) else type(error).__name__
        raise CommandError(f"{before}not all of {count} records were delivered: {error}", code) from error


class Report:
    """Prints where each record went, in the order of the lines, if an output format asks for it."""

    __slots__ = ("_output", "_topic", "_waiting")

    def __init__(self, topic: str, output: str | None) -> None:
        self._topic = topic
        self._output = output
        self._waiting: deque[Delivery] = deque()

    async def sent(self, delivery: Delivery) -> None:
        """Queue a delivery, and print the oldest one when too many are unprinted."""
        if self._output is None:
            return
        self._waiting.append(delivery)
        if len(self._waiting) >= _UNREPORTED:
            await self._print()

    async def close(self) -> None:
        """Print the remaining deliveries once they are acknowledged. Raises the error of a failed one."""
        while self._waiting:
            await self._print()

    async def _print(self) -> None:
        from odradek.cli.terminal.output import show_document

        found = await self._waiting.popleft()
        if self._output in ("json", "jsonl"):
            show_document(found._asdict(), "jsonl")
        elif self._output == "yaml":
            show_document([found._asdict()], "yaml")
        else:
            print(f"{found.topic}\t{found.partition}\t{found.offset}\t{found.timestamp}")


async def lines(
    descriptor: int | None = None,
    *,
    prompt: bool = False,
    end: bytes = b"\n",
    stop: asyncio.Event | None = None,
) -> AsyncIterator[bytes]:
    """Records of standard input as they come, without their ends; a line may end with a carriage return, too.

    The input also ends at `stop`, with the last complete line.
    """
    fd = sys.stdin.fileno() if descriptor is None else descriptor
    ask = prompt and os.isatty(fd)
    stop = asyncio.Event() if stop is None else stop
    extra = b"\r" if end == b"\n" else b""
    rest = b""
    async for chunk in chunks(fd, ask, stop):
        # A record may come in many chunks: only the new one is searched, with an end that may have begun before it.
        kept = max(0, len(rest) - len(end) + 1)
        first, *others = (rest[kept:] + chunk).split(end)
        if not others:
            rest += chunk
            continue
        for line in (rest[:kept] + first, *others[:-1]):
            yield line.removesuffix(extra)
        rest = others[-1]
    if rest and not stop.is_set():
        yield rest.removesuffix(extra)


async def chunks(fd: int, ask: bool, stop: asyncio.Event) -> AsyncIterator[bytes]:
    """Input as it can be read, until its end or `stop`; the loop runs on while a terminal or pipe is empty."""
    waits = not stat.S_ISREG(os.fstat(fd).st_mode)
    while True:
        if ask:
            print(">", end="", flush=True)
        if waits:
            waits = await readable(fd, stop)
        if stop.is_set():
            return
        chunk = os.read(fd, _CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


async def readable(fd: int, stop: asyncio.Event) -> bool:
    """Wait for input or `stop`; False for a descriptor that cannot be waited for because it is always ready."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(fd, ready.set)
    except PermissionError:
        return False
    waiting = [asyncio.create_task(each.wait()) for each in (ready, stop)]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(fd)
        for each in waiting:
            each.cancel()
    return True
