"""`odradek -C|-P|-L|-G …`: the options of kcat, which become those of consume, produce and cluster metadata.

An option keeps kcat's meaning: `-o` is an offset, `-c` a count, `-K` and `-D` are delimiters, `-q` is quiet. An option
that is not supported is an error that names what to use instead. Source: kcat's usage text and manual.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Final

from odradek.cli.arguments.errors import UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import Parser, or_unlimited, pairs, seconds
from odradek.cli.catalog import load, parser_of

ENDS_WITH_ITS_READER: Final = True
"""See `odradek.cli.main.execute`."""
MODES: Final = ("C", "P", "L", "G")
UNSUPPORTED: Final = {
    "Q": "use `odradek offsets --topic-partitions TOPIC:PARTITION --time MS`",
    "s": "use `odradek consume --value-deserializer CLASS` or -f with %v{unpack[…]}",
    "r": "schema registries are not supported",
    "M": "use `odradek serve --listen 127.0.0.1:0`",
    "T": "use tee",
    "l": "redirect the file to standard input",
    "O": "use -f with %o",
    "d": "there is no such trace",
}
"""Options of kcat that have no counterpart, and the way to do the same."""

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
OF_LIBRDKAFKA: Final = {
    "sasl.mechanisms": "sasl.mechanism", "sasl.username": "sasl.plain.username",
    "sasl.password": "sasl.plain.password",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "ssl.ca.location": "ssl.cafile", "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.certfile", "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keyfile", "ssl.key.pem": "ssl.keystore.key",
    "request.required.acks": "acks", "compression.codec": "compression.type",
    "message.timeout.ms": "delivery.timeout.ms", "queue.buffering.max.ms": "linger.ms",
    "message.max.bytes": "max.request.size",
}  # fmt: skip
"""Names of librdkafka's settings, which `-X` takes, and the client's own."""

_HARMLESS: Final = "uEv"
"""Output is flushed per poll, transient errors are retried, and there is no more to print."""


def separated(words: Sequence[str]) -> list[str]:
    """`-K=` as getopt reads it: the delimiter `=`, not an empty value."""
    return [part for word in words for part in ((word[:2], word[2:]) if re.match(r"-[A-Za-z]=", word) else (word,))]


EXAMPLES: Final = r"""
# list brokers, topics and partitions
odradek -L -b 127.0.0.1:9092
# produce keys and values
printf 'a:1\nb:2\n' | odradek -P -b 127.0.0.1:9092 -t greetings -K :
# print all records, then exit
odradek -C -b 127.0.0.1:9092 -t greetings -o beginning -e -f '%p %o %k=%s\n'
# consume ten records as a member of a group
odradek -G family greetings -b 127.0.0.1:9092 -c 10
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add kcat's options."""
    mode = parser.add_argument_group("mode (one of them)")
    mode.add_argument("-C", action="store_true", help="consume: print the records of a topic")
    mode.add_argument("-G", metavar="GROUP", help="consume TOPIC… as a member of a group")
    mode.add_argument("-P", action="store_true", help="produce: send records from standard input")
    mode.add_argument("-L", action="store_true", help="list brokers, topics and partitions")
    parser.add_argument("-b", metavar="HOST:PORT,…", help="brokers to connect to first")
    parser.add_argument("-t", metavar="TOPIC", help="topic to consume, to produce to, or to list")
    parser.add_argument("-p", type=int, metavar="N", help="partition")
    parser.add_argument("-K", metavar="DELIMITER", help="delimiter between key and value")
    parser.add_argument("-D", metavar="DELIMITER", help=r"delimiter between records (default: \n)")
    parser.add_argument("-c", type=or_unlimited, metavar="N", help="stop after N records")
    parser.add_argument("-q", action="store_true", help="do not print statistics")
    parser.add_argument("-X", action="append", default=[], metavar="NAME=VALUE", help="client setting")
    parser.add_argument("-F", metavar="FILE", help="client settings in a properties file")
    parser.add_argument("-m", type=seconds, metavar="SECONDS", help="time limit for the first connection")
    parser.add_argument(
        "-Z", action="store_true", help="-C: print NULL for null; -P: with -K, send empty parts as null"
    )
    consumer = parser.add_argument_group("with -C and -G")
    consumer.add_argument(
        "-o",
        action="append",
        default=[],
        metavar="OFFSET",
        help="beginning (the default of -C), end, 42, -10 (the last ten), s@MS (start), e@MS (stop)",
    )
    consumer.add_argument("-e", action="store_true", help="exit at the current end of the topic")
    consumer.add_argument(
        "-f", metavar="FORMAT", help="%%t topic, %%p, %%o, %%k, %%s value, %%T timestamp, %%h headers"
    )
    consumer.add_argument(
        "-J", action="store_true", help="print each record, or the list of -L, as JSON of kcat's form"
    )
    producer = parser.add_argument_group("with -P")
    producer.add_argument("-k", metavar="KEY", help="key of all records (of those without one, with -K)")
    producer.add_argument("-H", action="append", default=[], metavar="NAME=VALUE", help="header of every record")
    producer.add_argument("-z", choices=CODECS, help="compression codec")
    for option in _HARMLESS:
        parser.add_argument(f"-{option}", action="store_true", help=argparse.SUPPRESS)
    for option in UNSUPPORTED:
        parser.add_argument(f"-{option}", action="store_true", dest=f"no_{option}", help=argparse.SUPPRESS)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="topics of -G")
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Run the command that the mode stands for. Raises UsageError, CommandError."""
    for option, instead in UNSUPPORTED.items():
        if getattr(arguments, f"no_{option}"):
            raise UsageError(f"kcat's -{option} is not supported: {instead}")
    modes = [each for each in MODES if getattr(arguments, each)]
    if len(modes) != 1:
        raise UsageError("a COMMAND, or exactly one of kcat's -C, -G, -P, -L is needed (`odradek --help`)")
    if arguments.topics and modes != ["G"]:
        raise UsageError(f"{arguments.topics[0]}: files are not read; redirect standard input")
    if modes == ["L"]:
        from odradek.cli.kcat.metadata_list import list_metadata

        given = pairs(_properties(arguments), "X")
        return list_metadata(arguments.t, command_line("cluster", _connection(arguments)), given, as_json=arguments.J)
    return _produce(arguments) if modes == ["P"] else _consume(arguments)


def command_line(name: str, words: list[str]) -> argparse.Namespace:
    """The arguments of one of our commands."""
    parser: Parser = parser_of(name, load(name))
    return parser.parse(words)


def _connection(arguments: argparse.Namespace) -> list[str]:
    words = []
    if arguments.b is not None:
        words.append(f"--bootstrap-server={with_ports(arguments.b)}")
    if arguments.F is not None:
        words.append(f"--command-config={arguments.F}")
    if arguments.m is not None:
        words.append(f"--connect-timeout={int(arguments.m * 1000)}")
    return words


def with_ports(servers: str) -> str:
    """Servers with kcat's default port, 9092, where none is given."""
    entries = [each.strip() for each in servers.split(",") if each.strip()]
    return ",".join(each if re.search(r":\d+$", each) else f"{each}:9092" for each in entries)


def _properties(arguments: argparse.Namespace) -> list[str]:
    """The settings of `-X` by the names of this client."""
    found = []
    for each in arguments.X:
        name, equals, value = each.removeprefix("topic.").partition("=")
        found.append(f"{OF_LIBRDKAFKA.get(name, name)}{equals}{value}")
    return found


def _clients(arguments: argparse.Namespace) -> list[str]:
    """What producers and consumers share."""
    words = [*_connection(arguments), *(f"--command-property={each}" for each in _properties(arguments))]
    if arguments.K is not None:
        words.append(f"--key-delimiter={arguments.K}")
    if arguments.D is not None:
        words.append(f"--record-delimiter={arguments.D}")
    return words


def _produce(arguments: argparse.Namespace) -> int:
    from odradek.cli.commands import produce

    if arguments.t is None:
        raise UsageError("-P needs -t TOPIC")
    words = [*_clients(arguments), f"--topic={arguments.t}", *(f"--header={each}" for each in arguments.H)]
    if arguments.p is not None and arguments.p >= 0:
        words.append(f"--partition={arguments.p}")
    if arguments.z is not None:
        words.append(f"--compression-codec={arguments.z}")
    if arguments.K is not None:
        # A line without the delimiter has no key, or that of -k.
        words.append("--reader-property=ignore.error=true")
        if arguments.Z:
            words.append("--reader-property=null.marker=")
    target = command_line("produce", words)
    target.default_key = None if arguments.k is None else arguments.k.encode()
    target.skip_empty = True
    target.limit = -1 if arguments.c is None else arguments.c
    return produce.run(target)


def _consume(arguments: argparse.Namespace) -> int:
    from odradek.cli.commands import consume

    words = [*_clients(arguments), *_topics(arguments)]
    if arguments.G is not None:
        words.append(f"--group={arguments.G}")
    if arguments.p is not None:
        words.append(f"--partition={arguments.p}")
    if arguments.c is not None:
        words.append(f"--max-messages={arguments.c}")
    if arguments.e:
        words.append("--exit")
    if arguments.Z and not arguments.f and not arguments.J:
        words.append("--formatter-property=null.literal=NULL")
    elif not arguments.Z:
        words.append("--formatter-property=null.literal=")
    offset = offset_range(arguments.o)
    if arguments.G is None:
        words.append(f"--offset={offset or 'beginning'}")
    elif offset is not None:
        raise UsageError("-o and -G exclude each other: a group continues at its committed offsets")
    target = command_line("consume", words)
    target.quiet = True
    from odradek.cli.kcat.record_output import json_envelope, kcat_format

    if arguments.J:
        target.form = json_envelope
    elif arguments.f is not None:
        target.form = kcat_format(arguments.f, b"NULL" if arguments.Z else b"")
    return consume.run(target)


def _topics(arguments: argparse.Namespace) -> list[str]:
    if arguments.G is None:
        if arguments.t is None:
            raise UsageError("-C needs -t TOPIC")
        return [f"--topic={arguments.t}"]
    names = [*arguments.topics, *([arguments.t] if arguments.t else [])]
    if not names:
        raise UsageError("-G GROUP needs a TOPIC")
    # librdkafka takes a name that begins with ^ for a regular expression.
    patterns = [each[1:].removesuffix("$") if each.startswith("^") else re.escape(each) for each in names]
    return [f"--topic={names[0]}"] if patterns == [re.escape(names[0])] else [f"--include={'|'.join(patterns)}"]


def offset_range(given: Sequence[str]) -> str | None:
    """kcat's `-o` (twice for a start and a stop) as `consume --offset`. Raises UsageError."""
    start = stop = None
    for each in given:
        if each == "stored":
            raise UsageError("-o stored: use -G GROUP, which continues at its committed offsets")
        if each.startswith("e@"):
            stop = f"@{_milliseconds(each)}"
        elif each.startswith("s@"):
            start = f"@{_milliseconds(each)}"
        elif each in ("beginning", "end") or re.fullmatch(r"-?\d+", each):
            start = each
        else:
            raise UsageError(f"-o {each}: beginning, end, an offset, -N, s@MS or e@MS expected")
    if stop is None:
        return start
    return f"{start or ''}:{stop}"


def _milliseconds(text: str) -> int:
    if not text[2:].isdecimal():
        raise UsageError(f"-o {text}: milliseconds since 1970 expected")
    return int(text[2:])
