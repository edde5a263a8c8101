"""`odradek perf-test`: what a producer and a consumer achieve, and how long a record takes from one to the other.

Prints the figures as Apache's kafka-producer-perf-test, kafka-consumer-perf-test and kafka-e2e-latency do.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING, Final, cast

from odradek.cli.arguments.errors import CommandError, UsageError, client_session
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import (
    add_connection,
    add_output,
    client_settings,
    connect_ms,
    is_given,
    milliseconds,
    or_unlimited,
    pairs,
    positive,
)
from odradek.cli.terminal.output import DOCUMENTS, show_document

if TYPE_CHECKING:
    from odradek.cli.actions.perf_figures import ProducerFigures
    from odradek.client.producer.producer import Producer

ACTIONS: Final = ("produce", "consume", "end-to-end")
OPTIONS: Final = {
    "throughput": ("produce",),
    "warmup-records": ("produce",),
    "record-size": ("produce", "end-to-end"),
    "producer-acks": ("end-to-end",),
    "group": ("consume",),
    "from-latest": ("consume",),
    "hide-header": ("consume",),
    "timeout": ("consume", "end-to-end"),
}
"""Option -> the tests that it goes with."""
RECORD_SIZE: Final = 100
TIMEOUT_MS: Final = 10_000
WINDOW_S: Final = 5.0
_LOOK_RECORDS: Final = 100
_POLL_MS: Final = 100
_E2E_PERCENTILES: Final = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
_REPORTED: Final = 1_000
EXAMPLES: Final = """
odradek perf-test produce --topic load --num-records 1000000 --record-size 100
odradek perf-test produce --topic load --num-records 60000 --throughput 1000 --command-property acks=1
odradek perf-test consume --topic load --num-records 1000000 -o json
odradek perf-test end-to-end --topic load --num-records 1000 --producer-acks all
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("test", choices=ACTIONS, help="what to measure")
    parser.add_argument("-t", "--topic", metavar="NAME", help="topic to send to or to read; it gets test records")
    parser.add_argument("--num-records", type=positive, metavar="N", help="number of records")
    parser.add_argument("--record-size", type=positive, metavar="BYTES", help=f"of a value (default: {RECORD_SIZE})")
    parser.add_argument(
        "--command-property", action="append", default=[], metavar="NAME=VALUE", help="setting of the client"
    )
    group = parser.add_argument_group("produce")
    group.add_argument("--throughput", type=or_unlimited, metavar="N", help="records per second (default -1: no limit)")
    group.add_argument("--warmup-records", type=positive, metavar="N", help="first records that are not counted")
    group = parser.add_argument_group("consume, end-to-end")
    group.add_argument("--group", metavar="ID", help="consumer group (default: one of its own)")
    group.add_argument("--from-latest", action="store_true", help="read what arrives from now on")
    group.add_argument("--hide-header", action="store_true", help="print the figures without their names")
    group.add_argument(
        "--timeout",
        type=milliseconds,
        metavar="MS",
        help=f"end after this time without a record (default: {TIMEOUT_MS})",
    )
    group.add_argument("--producer-acks", choices=("1", "all"), help="acknowledgements of end-to-end (default: all)")
    add_connection(parser)
    add_output(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Check which options go together, and run the action; the exit status."""
    for option, tests in OPTIONS.items():
        if is_given(arguments, option) and arguments.test not in tests:
            raise UsageError(f"--{option} goes with {' or '.join(tests)} only")
    for option in ("topic", "num-records"):
        if not is_given(arguments, option):
            raise UsageError(f"{arguments.test} needs --{option}")
    test = {"produce": produce, "consume": consume, "end-to-end": end_to_end}[arguments.test]
    with client_session():
        return asyncio.run(test(arguments))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# --- produce ---


async def produce(arguments: argparse.Namespace) -> int:
    """Send records as fast as `--throughput` permits; 1 if some were lost."""
    from odradek.cli.actions.perf_figures import ProducerFigures
    from odradek.cli.session import reach
    from odradek.client.config import PRODUCER_DEFAULTS
    from odradek.client.producer.producer import Producer

    size = arguments.record_size or RECORD_SIZE
    warmup = arguments.warmup_records or 0
    if warmup >= arguments.num_records:
        raise UsageError(f"--warmup-records {warmup}: fewer than --num-records expected")
    settings = client_settings(arguments, PRODUCER_DEFAULTS, pairs(arguments.command_property, "command-property"))
    quiet = arguments.output in DOCUMENTS
    figures = ProducerFigures(size, _now_ms)
    async with Producer(interceptors=[figures], **settings) as producer:
        await reach(producer.cluster, connect_ms(arguments))
        await producer.partitions_for(arguments.topic)
        if warmup:
            await _send(producer, arguments, warmup, None)
            await _flush(producer)
        figures.restart()
        await _send(producer, arguments, arguments.num_records - warmup, None if quiet else figures)
        await _flush(producer)
        document, line = figures.document(), figures.total_line()
    if quiet:
        show_document(document, arguments.output)
    else:
        print(line)
    if figures.failures:
        _complain(f"{len(figures.failures)} records were not delivered: {figures.failures[0]}")
    return 1 if figures.failures else 0


async def _send(producer: Producer, arguments: argparse.Namespace, count: int, figures: ProducerFigures | None) -> None:
    """Queue records; with figures print a line of them every five seconds."""
    topic, rate = arguments.topic, arguments.throughput or -1
    value = os.urandom(arguments.record_size or RECORD_SIZE)
    started = reported = time.monotonic()
    for number in range(1, count + 1):
        await producer.send(topic, value)
        if rate > 0:
            ahead = number / rate - (time.monotonic() - started)
            if ahead > 0:
                await asyncio.sleep(ahead)
        if figures is not None and number % _LOOK_RECORDS == 0 and time.monotonic() - reported >= WINDOW_S:
            reported = time.monotonic()
            print(figures.window_line(), flush=True)


async def _flush(producer: Producer) -> None:
    """Wait for all acknowledgements; the figures have counted what failed."""
    from odradek.client.errors import ClientError
    from odradek.wire.errors import KafkaError

    with contextlib.suppress(KafkaError, ClientError):
        await producer.flush()


# --- consume ---


async def consume(arguments: argparse.Namespace) -> int:
    """Read records in a group; 1 if fewer than `--num-records` arrive in time."""
    from odradek.cli.actions.perf_figures import ConsumerFigures
    from odradek.cli.session import reach
    from odradek.client.config import CONSUMER_DEFAULTS
    from odradek.client.consumer.consumer import Consumer

    settings = client_settings(arguments, CONSUMER_DEFAULTS, pairs(arguments.command_property, "command-property"))
    settings["group_id"] = arguments.group or settings.get("group_id") or f"perf-consumer-{os.urandom(4).hex()}"
    settings["auto_offset_reset"] = "latest" if arguments.from_latest else "earliest"
    timeout_s = (TIMEOUT_MS if arguments.timeout is None else arguments.timeout) / 1000
    async with Consumer(**settings) as consumer:
        await reach(consumer.cluster, connect_ms(arguments))
        await _check_topic(arguments)
        figures = ConsumerFigures(_now_ms())
        consumer.subscribe([arguments.topic])
        last = time.monotonic()
        while figures.records < arguments.num_records and time.monotonic() - last < timeout_s:
            records = await consumer.poll(_POLL_MS)
            if figures.joined_ms is None and consumer.assignment():
                figures.joined_ms = _now_ms()
            if records:
                last = time.monotonic()
                size = sum(
                    len(cast("bytes", each.value) or b"") + len(cast("bytes", each.key) or b"") for each in records
                )
                figures.add(len(records), size, _now_ms())
    if arguments.output in DOCUMENTS:
        show_document(figures.document(), arguments.output)
    else:
        if not arguments.hide_header:
            print(figures.HEADER)
        print(figures.line())
    missing = figures.records < arguments.num_records
    if missing:
        wanted = f"{figures.records} of {arguments.num_records} records arrived"
        _complain(f"{wanted}; none came for {timeout_s:g} s (--timeout)")
    return 1 if missing else 0


def _complain(message: str) -> None:
    """Report what is wrong with figures that were printed."""
    print(f"odradek perf-test: {message}", file=sys.stderr)


async def _check_topic(arguments: argparse.Namespace) -> None:
    """Raises KafkaError for a topic that does not exist: a test must not wait for it."""
    from odradek.client.admin import Admin, raise_first
    from odradek.client.config import ADMIN_DEFAULTS

    async with Admin(**client_settings(arguments, ADMIN_DEFAULTS)) as admin:
        raise_first(await admin.describe_topics([arguments.topic]))


# --- end-to-end ---


async def end_to_end(arguments: argparse.Namespace) -> int:
    """Send records one by one and wait for each at a consumer."""
    from odradek.cli.actions.perf_figures import Latencies
    from odradek.cli.session import reach
    from odradek.client.config import CONSUMER_DEFAULTS, PRODUCER_DEFAULTS
    from odradek.client.consumer.consumer import Consumer
    from odradek.client.producer.producer import Producer
    from odradek.records.topic_partition import TopicPartition

    given = pairs(arguments.command_property, "command-property")
    for_producer, for_consumer = {"linger.ms": "0", **given}, {"fetch.max.wait.ms": "0", **given}
    for_producer["acks"] = arguments.producer_acks or given.get("acks", "all")
    size, quiet = arguments.record_size or RECORD_SIZE, arguments.output in DOCUMENTS
    timeout_ms = TIMEOUT_MS if arguments.timeout is None else arguments.timeout
    latencies = Latencies()
    async with (
        Producer(**client_settings(arguments, PRODUCER_DEFAULTS, for_producer)) as producer,
        Consumer(**client_settings(arguments, CONSUMER_DEFAULTS, for_consumer)) as consumer,
    ):
        await reach(producer.cluster, connect_ms(arguments))
        await _check_topic(arguments)
        places = [TopicPartition(arguments.topic, e.partition) for e in await producer.partitions_for(arguments.topic)]
        consumer.assign(places)
        for place, offset in (await consumer.end_offsets(places)).items():
            consumer.seek(place, offset)
        for number in range(arguments.num_records):
            value = os.urandom(size)
            started = time.perf_counter_ns()
            await producer.send_and_wait(arguments.topic, value)
            records = await consumer.poll(timeout_ms)
            elapsed_us = (time.perf_counter_ns() - started) // 1_000
            if not records:
                raise CommandError(f"record {number} did not arrive within {timeout_ms} ms (--timeout)")
            if len(records) > 1 or records[0].value != value:
                raise CommandError(f"another record arrived: is {arguments.topic} used by other producers?")
            if number % _REPORTED == 0 and not quiet:
                print(f"{number}\t{elapsed_us / 1000}", flush=True)
            latencies.add(elapsed_us)
    found = {
        "records": latencies.number,
        "average_ms": latencies.average / 1000,
        **{name: latencies.percentile(part) / 1000 for name, part in _E2E_PERCENTILES.items()},
    }
    if quiet:
        show_document(found, arguments.output)
    else:
        print(f"Avg latency: {found['average_ms']:.4f} ms\n")
        print(
            f"Percentiles: 50th = {found['p50_ms']:.3f}, 99th = {found['p99_ms']:.3f}, 99.9th = {found['p999_ms']:.3f}"
        )
    return 0
