"""`odradek serve [server.properties] [--data-dir D] [--listen HOST:PORT] [--set name=value …]`."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys

from odradek.broker.config import BrokerConfig, ConfigError
from odradek.broker.lifecycle import Broker, StartError
from odradek.broker.logs import configure_logging
from odradek.cli.errors import UsageError
from odradek.ports.clock import process_age

LEVELS = ("debug", "info", "warning", "error")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("properties", nargs="?", metavar="server.properties", help="a Kafka configuration file")
    parser.add_argument("--data-dir", metavar="DIR", help="where the data lives (log.dirs); default ./odradek-data")
    parser.add_argument("--listen", metavar="HOST:PORT", help="address to serve on; port 0 picks a free one")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="settings", help="a setting by Kafka's name"
    )
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="of the log on standard error")
    parser.add_argument("--log-format", choices=("text", "json"), default="text")


def settings_of(arguments: argparse.Namespace) -> dict[str, str]:
    """What the command line sets on top of the file. Raises UsageError."""
    settings: dict[str, str] = {}
    if arguments.data_dir:
        settings["log.dirs"] = arguments.data_dir
    if arguments.listen:
        _, colon, port = arguments.listen.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:
            raise UsageError(f"--listen {arguments.listen}: HOST:PORT expected")
        settings["listeners"] = f"PLAINTEXT://{arguments.listen}"
        if arguments.properties:
            # What the file advertises belongs to the listeners that this one takes the place of.
            settings["advertised.listeners"] = ""
    for setting in arguments.settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise UsageError(f"--set {setting}: NAME=VALUE expected")
        settings[name.strip()] = value.strip()
    return settings


def run(arguments: argparse.Namespace) -> int:
    configure_logging(arguments.log_level, arguments.log_format)
    try:
        config = BrokerConfig.load(arguments.properties, settings_of(arguments))
    except ConfigError as error:
        raise UsageError(str(error)) from error
    try:
        import uvloop
    except ImportError:
        runner = asyncio.Runner()
    else:
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    with runner:
        return runner.run(_serve(config))


async def _serve(config: BrokerConfig) -> int:
    broker = Broker(config)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await broker.start()
    except StartError as error:
        print(f"odradek serve: {error}", file=sys.stderr)
        return 2 if error.misconfigured else 1
    ready = f"odradek ready bootstrap={broker.bootstrap} pid={os.getpid()} seconds={process_age():.2f}"
    print(ready, flush=True)
    await stop.wait()
    await broker.stop()
    return 0
