"""`odradek connect`: connectors between topics and other systems, with Kafka Connect's settings and REST interface."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from odradek.cli.arguments.errors import CommandError, UsageError, client_log
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import add_connection, client_settings, pairs
from odradek.cli.commands.console import address_of
from odradek.client.config import ADMIN_DEFAULTS
from odradek.ports.hosts import is_loopback
from odradek.ports.installation import install_hint

DEFAULT_LISTEN: Final = "127.0.0.1:8083"
EXAMPLES: Final = """
# run the connectors of two files
odradek connect run orders-to-db.yml flights.properties
# run connectors that are created by REST, and kept in a topic
odradek connect run
# check the connectors of a file
odradek connect check orders-to-db.yml
# let configurations name files of passwords: ${file:/etc/odradek/secrets/db.properties:password}
odradek connect run orders-to-db.yml --secrets /etc/odradek/secrets
# run queries in Spark SQL on a cluster of Spark
odradek connect run big-orders.yml --master spark://spark:7077
# list the kinds of connectors and their settings
odradek connect plugins
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and options."""
    parser.add_argument(
        "action",
        choices=("run", "check", "plugins"),
        help="run connectors until a signal; check their configurations; list kinds of connectors with settings",
    )
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="configurations of connectors: .yml, .json or .properties"
    )
    parser.add_argument(
        "--listen",
        default=DEFAULT_LISTEN,
        metavar="HOST:PORT",
        help=f"address of the REST interface (default: {DEFAULT_LISTEN}); port 0 picks a free one",
    )
    parser.add_argument(
        "--allow-anonymous",
        action="store_true",
        help="serve an address beyond loopback: everyone who reaches it can read and change connectors",
    )
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="name by which clients may call the REST interface, beside its address (repeatable)",
    )
    parser.add_argument(
        "--offsets-topic",
        default="connect-offsets",
        metavar="NAME",
        help="compacted topic for offsets of sources (default: connect-offsets)",
    )
    parser.add_argument(
        "--configs-topic",
        default="connect-configs",
        metavar="NAME",
        help="compacted topic for connectors created by REST, without FILE (default: connect-configs)",
    )
    parser.add_argument(
        "--secrets", type=Path, metavar="DIR", help="folder whose files configurations may name as ${file:PATH:KEY}"
    )
    parser.add_argument(
        "--master", default="local[*]", metavar="URL", help="master of Spark for SparkSql (default: local[*])"
    )
    parser.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="setting of Spark for SparkSql (repeatable)"
    )
    parser.add_argument(
        "--spark-log",
        type=Path,
        metavar="FILE",
        help="file for Spark's messages (default: a temporary file, which is removed when the worker ends)",
    )
    add_connection(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Execute the action; the exit code. Raises UsageError, CommandError."""
    if arguments.action == "plugins":
        return _show_plugins()
    from odradek.connect.specification import SpecificationError, read

    if arguments.secrets is not None and not arguments.secrets.is_dir():
        raise UsageError(f"--secrets {arguments.secrets}: no such folder")
    try:
        connectors = read(arguments.files, runners=("local",))
    except SpecificationError as error:
        raise UsageError(str(error)) from error
    _check(connectors, arguments.secrets)
    if arguments.action == "check":
        if not connectors:
            raise UsageError("check needs a file")
        print(f"valid: {', '.join(connectors)}")
        return 0
    return _run(arguments, connectors)


def _check(connectors: dict[str, dict[str, str]], secrets: Path | None) -> None:
    """Check all configurations. Raises UsageError with the first thing that is wrong."""
    from odradek.connect.errors import ConnectError
    from odradek.connect.worker import Worker, WorkerSettings

    worker = Worker(WorkerSettings(clients={}, secrets=secrets))
    for name, config in connectors.items():
        try:
            worker.check(name, config)
        except ConnectError as error:
            raise UsageError(f"connector {name}: {error}") from error


def _run(arguments: argparse.Namespace, connectors: dict[str, dict[str, str]]) -> int:
    host, port = address_of(arguments.listen)
    if not is_loopback(host) and not arguments.allow_anonymous:
        raise UsageError(
            f"--listen {arguments.listen}: the REST interface has no login; use a loopback address behind a proxy, or "
            "--allow-anonymous"
        )
    try:
        from odradek.connect.server import serve
    except ImportError as error:
        raise CommandError(
            f"connectors need packages that are not installed ({error.name}): {install_hint('connect')}"
        ) from error
    from odradek.broker.log_output import configure_logging
    from odradek.client.errors import ClientError
    from odradek.connect.errors import ConnectError
    from odradek.connect.queries.shared_session import SparkSettings
    from odradek.connect.worker import WorkerSettings
    from odradek.wire.errors import KafkaError

    configure_logging("info", "text")
    settings = WorkerSettings(
        clients=client_settings(arguments, ADMIN_DEFAULTS),
        offsets_topic=arguments.offsets_topic,
        configs_topic=None if connectors else arguments.configs_topic,
        secrets=arguments.secrets,
        spark=SparkSettings(arguments.master, pairs(arguments.conf, "conf"), arguments.spark_log),
    )
    hosts = frozenset({host.lower(), *(each.lower() for each in arguments.allowed_host)})
    try:
        with client_log("connect"):
            serve(settings, connectors, (host, port), hosts, _show_ready)
    except OSError as error:
        raise CommandError(f"--listen {arguments.listen}: {error.strerror or error}") from error
    except (ConnectError, KafkaError, ClientError) as error:
        raise CommandError(str(error)) from error
    return 0


def _show_ready(url: str) -> None:
    print(f"odradek connect ready url={url}", flush=True)


def _show_plugins() -> int:
    from odradek.connect.plugins import PLUGINS
    from odradek.connect.settings import described

    for plugin in PLUGINS:
        print(f"{plugin.name} ({plugin.kind}): {plugin.summary}")
        for line in described(plugin.settings):
            print(f"  {line}")
    sys.stdout.flush()
    return 0
