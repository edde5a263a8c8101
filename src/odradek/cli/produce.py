"""`odradek produce`: Apache's console producer (its ConsoleProducer), and lines of JSON."""

from __future__ import annotations

import argparse
import asyncio
import os
import stat
import sys
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.errors import CommandError, UsageError, told
from odradek.cli.line_reader import Headers, JsonReader, LineReader
from odradek.cli.options import (
    add_connection,
    add_output,
    client_settings,
    connect_ms,
    milliseconds,
    pairs,
    positive,
    read_properties,
    renamed,
)
from odradek.cli.output import is_terminal

if TYPE_CHECKING:
    from odradek.client.accumulator import Delivery
    from odradek.client.producer import Producer

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
READERS: Final = ("org.apache.kafka.tools.LineMessageReader", "kafka.tools.ConsoleProducer$LineMessageReader")
_CHUNK_BYTES: Final = 1 << 18
_UNREPORTED: Final = 10_000

TUNING: Final = (
    ("batch-size", "batch_size", "bytes of a batch"),
    ("max-partition-memory-bytes", "batch_size", argparse.SUPPRESS),
    ("max-memory-bytes", "buffer_memory", "bytes of records that wait to be sent"),
    ("max-block-ms", "max_block_ms", "how long sending may wait for metadata and memory"),
    ("message-send-max-retries", "retries", "how often a failed batch is sent again"),
    ("metadata-expiry-ms", "metadata_max_age_ms", "when to refresh metadata without a need"),
    ("request-timeout-ms", "request_timeout_ms", "how long a broker may take for an answer"),
    ("retry-backoff-ms", "retry_backoff_ms", "pause before a batch is sent again"),
    ("timeout", "linger_ms", "how long a record may wait for others to make a batch (linger.ms)"),
)
"""Option -> the producer's setting of the same meaning."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", required=True, metavar="NAME", help="where the records go")
    parser.add_argument("--partition", type=int, metavar="N", help="send all to this partition")
    parser.add_argument("-k", "--key", metavar="TEXT", help="the key of every record")
    parser.add_argument(
        "-H", "--header", action="append", default=[], metavar="NAME=VALUE", help="a header of every record"
    )
    parser.add_argument(
        "-i", "--input", choices=("lines", "json"), default="lines", help="json: lines as of `odradek consume -o json`"
    )
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
    parser.add_argument("--sync", action="store_true", help="wait for each record before the next")
    parser.add_argument(
        "-z", "--compression-codec", nargs="?", const="gzip", choices=CODECS, help="gzip if no codec is named"
    )
    parser.add_argument(
        "--request-required-acks", choices=("0", "1", "-1", "all"), help="whom to wait for; default: all"
    )
    for option, setting, about in TUNING:
        kind = positive if option in ("batch-size", "max-partition-memory-bytes") else milliseconds
        parser.add_argument(f"--{option}", type=kind, dest=f"set_{setting}", metavar="N", help=about)
    parser.add_argument("--socket-buffer-size", type=int, metavar="N", help=argparse.SUPPRESS)
    add_connection(parser)
    add_output(parser, stream=True)


def run(arguments: argparse.Namespace) -> int:
    arguments.command_config = renamed(arguments, "producer.config", "command-config")
    properties = pairs(renamed(arguments, "property", "reader-property"), "reader-property")
    if arguments.reader_config:
        properties = {**read_properties(arguments.reader_config, "reader-config"), **properties}
    reader = LineReader(properties) if arguments.input == "lines" else JsonReader()
    headers: Headers = [(n, v.encode()) for n, v in pairs(arguments.header, "header").items()]
    if arguments.partition is not None and arguments.partition < 0:
        raise UsageError(f"--partition {arguments.partition} is negative")
    with told():
        return asyncio.run(send_all(arguments, reader, headers))


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
    """Send every line of standard input and wait until all are acknowledged."""
    from odradek.cli.session import reach
    from odradek.client.producer import Producer

    key = None if arguments.key is None else arguments.key.encode()
    report = Report(arguments.topic, arguments.output)
    number = 0
    async with Producer(**settings_of(arguments)) as producer:
        await reach(producer.cluster, connect_ms(arguments))
        async for line in lines(prompt=is_terminal(sys.stdout)):
            number += 1
            record = reader.read(line, number)
            delivery = await producer.send(
                arguments.topic,
                record.value,
                record.key if key is None else key,
                record.headers + headers,
                arguments.partition,
                record.timestamp_ms,
            )
            if arguments.sync:
                await delivery
            await report.sent(delivery)
        await finish(producer, number)
        await report.close()
    return 0


async def finish(producer: Producer, count: int) -> None:
    """Wait for all acknowledgements. Raises CommandError if a record was lost."""
    from odradek.client.errors import ClientError
    from odradek.wire.errors import KafkaError

    try:
        await producer.flush()
    except KafkaError as error:
        raise CommandError(f"not all of {count} records were delivered: {error}", error.code.name) from error
    except ClientError as error:
        raise CommandError(f"not all of {count} records were delivered: {error}", type(error).__name__) from error


class Report:
    """Prints where each record went, in the order of the lines, if an output format asks for it."""

    __slots__ = ("_output", "_topic", "_waiting")

    def __init__(self, topic: str, output: str | None) -> None:
        self._topic = topic
        self._output = output
        self._waiting: deque[Delivery] = deque()

    async def sent(self, delivery: Delivery) -> None:
        if self._output is None:
            return
        self._waiting.append(delivery)
        if len(self._waiting) >= _UNREPORTED:
            await self._print()

    async def close(self) -> None:
        while self._waiting:
            await self._print()

    async def _print(self) -> None:
        from odradek.cli.output import show_document

        found = await self._waiting.popleft()
        if self._output in ("json", "jsonl"):
            show_document(found._asdict(), "jsonl")
        elif self._output == "yaml":
            show_document([found._asdict()], "yaml")
        else:
            print(f"{found.topic}\t{found.partition}\t{found.offset}\t{found.timestamp}")


async def lines(descriptor: int | None = None, *, prompt: bool = False) -> AsyncIterator[bytes]:
    """Lines of standard input as they come, without their ends."""
    fd = sys.stdin.fileno() if descriptor is None else descriptor
    ask = prompt and os.isatty(fd)
    rest = b""
    async for chunk in chunks(fd, ask):
        # A line may come in many chunks: only the new one is searched.
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            rest += chunk
            continue
        for line in (rest + head).split(b"\n"):
            yield line.removesuffix(b"\r")
        rest = tail
    if rest:
        yield rest.removesuffix(b"\r")


async def chunks(fd: int, ask: bool) -> AsyncIterator[bytes]:
    """What can be read now, until the end; the loop goes on while a terminal or pipe has nothing."""
    waits = not stat.S_ISREG(os.fstat(fd).st_mode)
    while True:
        if ask:
            print(">", end="", flush=True)
        if waits:
            waits = await readable(fd)
        chunk = os.read(fd, _CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


async def readable(fd: int) -> bool:
    """Wait until there is something to read; False for what cannot be waited for, because it always is ready."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(fd, ready.set)
    except PermissionError:
        return False
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)
    return True
