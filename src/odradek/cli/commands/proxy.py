"""`odradek proxy`: record what clients and a cluster say to each other, and send the requests again."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import add_admin, client_settings
from odradek.cli.session import run_admin
from odradek.client.config import ADMIN_DEFAULTS, parse_servers
from odradek.client.errors import ConfigError

if TYPE_CHECKING:
    from odradek.client.recording.replay import ReplayedRequest

DIFFERENT: Final = 3
"""Exit status of a replay whose answers differ."""

EXAMPLES: Final = """
# record an application that connects to 127.0.0.1:9192 instead of 127.0.0.1:9092
odradek proxy --record orders.jsonl --port 9192
# send its requests to another cluster, and show which answers differ
odradek proxy --replay orders.jsonl --bootstrap-server 127.0.0.1:9392
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--record", metavar="FILE", help="forward clients to the cluster, and record them into a new file"
    )
    what.add_argument("--replay", metavar="FILE", help="send the requests of a recording, and compare the answers")
    parser.add_argument(
        "--port", type=int, metavar="PORT", help="port on 127.0.0.1 for clients of --record (default: a free one)"
    )
    add_admin(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Record until SIGTERM or SIGINT, or replay. Raises UsageError, CommandError."""
    if arguments.replay is not None:
        if arguments.port is not None:
            raise UsageError("--port goes with --record")
        return _replay(arguments)
    if arguments.port is not None and not 0 <= arguments.port < 65536:
        raise UsageError(f"--port {arguments.port}: 0 to 65535 expected")
    settings = client_settings(arguments, ADMIN_DEFAULTS)
    protocol = str(settings.get("security_protocol") or "PLAINTEXT").upper()
    if protocol.endswith("SSL"):
        raise UsageError("--record works with listeners in plain text: the proxy cannot read TLS")
    try:
        upstream = parse_servers(settings.get("bootstrap_servers") or ADMIN_DEFAULTS["bootstrap_servers"])
    except ConfigError as error:
        raise UsageError(str(error)) from error
    return asyncio.run(_record(Path(arguments.record), upstream, arguments.port or 0))


async def _record(path: Path, upstream: Sequence[tuple[str, int]], port: int) -> int:
    from odradek.client.recording.exchanges import RecordingError, RecordingFile
    from odradek.client.recording.proxy import RecordingProxy

    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    try:
        with RecordingFile(path) as file:
            proxy = RecordingProxy(upstream, file.write, port=port)
            try:
                await proxy.start()
            except OSError as error:
                raise CommandError(f"cannot listen on 127.0.0.1:{port}: {error.strerror or error}") from error
            try:
                print(f"recording {proxy.bootstrap_servers} into {path}", flush=True)
                await ended.wait()
            finally:
                await proxy.close()
            print(f"{file.count} requests recorded", file=sys.stderr)
    except RecordingError as error:
        raise UsageError(str(error)) from error
    return 0


def _replay(arguments: argparse.Namespace) -> int:
    from odradek.client.recording.exchanges import RecordingError, read_exchanges
    from odradek.client.recording.replay import Replay

    try:
        exchanges = read_exchanges(Path(arguments.replay))
        outcomes = run_admin(arguments, lambda admin: Replay(admin.cluster).run(exchanges))
    except RecordingError as error:
        raise UsageError(str(error)) from error
    return _report(outcomes)


def _report(outcomes: Sequence[ReplayedRequest]) -> int:
    different = [each for each in outcomes if each.differences]
    skipped = sum(each.skipped is not None for each in outcomes)
    for exchange, found, _ in different:
        for line in found:
            print(f"{exchange.number} {exchange.api} v{exchange.version}: {line}")
    sent = len(outcomes) - skipped
    print(f"{sent} requests sent, {skipped} skipped, {len(different)} answered differently", file=sys.stderr)
    return DIFFERENT if different else 0
