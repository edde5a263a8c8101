"""`odradek serve [server.properties] [--data-dir D] [--listen HOST:PORT] [--set name=value …] [--brokers N]`."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from odradek.broker.configuration.broker_config import BrokerConfig, is_secret
from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.configuration.refusals import is_controller_only
from odradek.broker.lifecycle import Broker
from odradek.broker.log_output import configure_logging
from odradek.broker.start_error import StartError
from odradek.cli.arguments.errors import UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.serving.console_process import ConsoleProcess, check_console
from odradek.cli.serving.data_directories import reject_broker_directory, reject_cluster_directory
from odradek.cli.serving.garbage import LateCollections, collect_in_small_steps
from odradek.cli.serving.process_life import allow_most_files, end, until_end, until_stop
from odradek.cli.serving.service_manager import ServiceManager
from odradek.ports.clock import process_age

DEFAULT_LISTEN: Final = "127.0.0.1:9092"
_START_SECONDS: Final = 10.0
"""A start that is to stop may come to its end first, so that the logs are closed; it may as well wait for others."""
_LAST_ID: Final = 2**31 - 1
LEVELS = ("debug", "info", "warning", "error")


EXAMPLES: Final = """
# run a broker on 127.0.0.1:9092
odradek serve --data-dir ./data
# use a configuration file of Kafka
odradek serve server.properties --set log.retention.hours=24
# run a cluster of three brokers on this machine
odradek serve --brokers 3 --data-dir ./three
# run a cluster of three machines: the same command on each of them
odradek serve --quorum kafka1,kafka2,kafka3 --data-dir ./data
# run a broker, and look into it at http://127.0.0.1:8080/
odradek serve --data-dir ./data --console 127.0.0.1:8080
# try out TLS, users and ACLs
odradek serve --security
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a broker, or of several on this machine."""
    parser.add_argument("properties", nargs="?", metavar="server.properties", help="a Kafka configuration file")
    parser.add_argument("--data-dir", metavar="DIR", help="data folder, log.dirs (default: ./odradek-data)")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="address to serve (default: 127.0.0.1:9092); port 0 picks a free one, 0.0.0.0 means all interfaces",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="settings",
        help="setting by Kafka's name (repeatable)",
    )
    parser.add_argument(
        "--brokers", type=int, default=1, metavar="N", help="run a cluster of N processes with consecutive ports"
    )
    parser.add_argument(
        "--quorum",
        metavar="HOST,HOST,…",
        help="run a node of a cluster of these machines, broker and controller in one process, without ZooKeeper: the "
        "same list on each of them; HOST:PORT for another port than 9092, the controller has the next one",
    )
    parser.add_argument(
        "--first-id",
        type=int,
        metavar="ID",
        help="with --brokers: id of the first broker (default: 1); each machine of a cluster needs ids of its own",
    )
    parser.add_argument(
        "--bootstrap-port",
        type=int,
        metavar="PORT",
        help="with --brokers: a port that all of them share, for the first connection of clients (0 picks a free one)",
    )
    parser.add_argument(
        "--security",
        action="store_true",
        help="try out a secured broker or cluster: make an authority, certificates, a user admin and ACLs, in a folder "
        "beside the data",
    )
    parser.add_argument(
        "--console", metavar="HOST:PORT", help="serve the web console at this address, in a process of its own"
    )
    # Of a supervisor for its brokers: their settings are the first line of the input, and they end when it does.
    parser.add_argument("--until-input-ends", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--accept-from", type=int, help=argparse.SUPPRESS)
    parser.add_argument(
        "--log-level",
        choices=LEVELS,
        default="info",
        help="least severe messages of the log on standard error (default: info)",
    )
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="form of the log (default: text)"
    )
    add_examples(parser, EXAMPLES)


def settings_of(arguments: argparse.Namespace) -> dict[str, str]:
    """What the command line sets on top of the file. Raises UsageError."""
    settings: dict[str, str] = {}
    for option, given in (("--data-dir", arguments.data_dir), ("--listen", arguments.listen)):
        if given is not None and not given.strip():
            # A variable of a script that is not set: the default would be another cluster's data.
            raise UsageError(f"{option} is empty")
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
        name = name.strip()
        if not equals or not name:
            # Of a forgotten sign the value may be a password.
            raise UsageError(f"--set {name.partition(' ')[0]}: NAME=VALUE expected")
        if is_secret(name):
            raise UsageError(f"--set {name}: other users can read arguments; set it in the properties file")
        settings[name] = value.strip()
    return settings


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; exit code 2 for a wrong configuration, 1 for any other failure."""
    configure_logging(arguments.log_level, arguments.log_format)
    try:
        settings = settings_of(arguments)
        if arguments.until_input_ends:
            settings |= _settings_of_input()
        if arguments.properties and settings.get("listeners") == f"PLAINTEXT://{arguments.listen}":
            _reject_lost_protection(arguments)
        if arguments.quorum is not None:
            return _serve_quorum(arguments, settings)
        config = BrokerConfig.load(arguments.properties, settings, is_single=arguments.brokers == 1)
    except ConfigError as error:
        raise UsageError(str(error)) from error
    if arguments.brokers < 1:
        raise UsageError(f"--brokers {arguments.brokers}: at least one is needed")
    if arguments.first_id is not None:
        _check_first_id(arguments.first_id, arguments.brokers)
    if arguments.bootstrap_port is not None and arguments.brokers == 1:
        raise UsageError("--bootstrap-port is for the brokers of --brokers N; a single one has --listen")
    if arguments.security:
        settings = _secure(arguments, settings, config)
        config = BrokerConfig.load(None, settings, is_single=arguments.brokers == 1)
    if arguments.console:
        from odradek.cli.commands.console import address_of

        address_of(arguments.console, "--console")
        check_console(config)
    if arguments.brokers > 1:
        from odradek.cli.serving.supervisor import Supervisor

        async def supervise() -> int:
            return await Supervisor(arguments, config, settings, sys.stdout).run()

        return asyncio.run(supervise())
    _check_directory(arguments, config)

    async def node() -> int:
        return await _node(arguments, config, until_stop(until_input_ends=arguments.until_input_ends))

    with _runner() as runner:
        return runner.run(node())


def _runner() -> asyncio.Runner:
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def _serve_quorum(arguments: argparse.Namespace, settings: dict[str, str]) -> int:
    """Serve as a node of `--quorum`. Raises UsageError, CommandError, ConfigError."""
    from odradek.cli.serving.quorum_forming import form_or_join, own_node, parse_quorum, settings_of_node

    if arguments.properties or arguments.brokers != 1 or arguments.security:
        raise UsageError(
            "--quorum has settings of its own: it goes with --data-dir, --listen, --set and --console only"
        )
    nodes = parse_quorum(arguments.quorum)
    own = own_node(nodes, arguments.listen)
    settings.pop("listeners", None)
    settings = settings_of_node(nodes, own) | settings
    config = BrokerConfig.load(None, settings, is_formatted=True)
    if arguments.console:
        from odradek.cli.commands.console import address_of

        address_of(arguments.console, "--console")
        check_console(config)
    _check_directory(arguments, config)

    async def node() -> int:
        # one event for both: a signal that comes between them ends the node, too
        stop = until_stop(until_input_ends=arguments.until_input_ends)
        return await _node(arguments, config, stop) if await form_or_join(config, nodes, own, stop) else 0

    with _runner() as runner:
        return runner.run(node())


def _check_directory(arguments: argparse.Namespace, config: BrokerConfig) -> None:
    """Raises UsageError."""
    if not is_controller_only(config):
        reject_cluster_directory(config.log_dirs[0])
    elif arguments.console:
        raise UsageError("--console shows what a broker serves: a process with process.roles=controller has no broker")


async def _node(arguments: argparse.Namespace, config: BrokerConfig, stop: asyncio.Event) -> int:
    if is_controller_only(config):
        # A broker starts without the modules of a controller.
        from odradek.cli.serving.controller_process import serve_controller

        return await serve_controller(config, stop)
    return await _serve(config, stop, arguments.console, arguments.accept_from)


def _check_first_id(first_id: int, brokers: int) -> None:
    """Raises UsageError."""
    if brokers == 1:
        raise UsageError("--first-id numbers the brokers of --brokers N; for a single one, use --set broker.id=ID")
    if first_id < 0 or first_id + brokers - 1 > _LAST_ID:
        raise UsageError(f"--first-id {first_id}: ids of {brokers} brokers are from 0 to {_LAST_ID}")


def _secure(arguments: argparse.Namespace, settings: dict[str, str], config: BrokerConfig) -> dict[str, str]:
    """Settings with what `--security` adds; its files are made if there are none. Raises UsageError."""
    from odradek.cli.serving import trial_security

    if arguments.properties:
        raise UsageError("--security is for trials without a properties file, which has its own settings")
    if config.given("zookeeper.connect") or config.given("odradek.metadata.store"):
        raise UsageError("--security keeps the user admin in the data folder, not in another metadata store")
    address = arguments.listen or DEFAULT_LISTEN
    data = config.log_dirs[0]
    if arguments.brokers > 1:
        reject_broker_directory(Path(data))
    else:
        reject_cluster_directory(data)
    folder = trial_security.folder_beside(data)
    trial_security.prepare(folder, data, address.rpartition(":")[0])
    print(f"secured; clients: --command-config {folder / trial_security.CLIENT_FILE}", file=sys.stderr)
    return trial_security.secured(settings | trial_security.security_settings(folder), address)


def _reject_lost_protection(arguments: argparse.Namespace) -> None:
    """Raise UsageError if `--listen` would replace a protected listener of the file by one in plain text.

    Raises ConfigError for listeners of the file that cannot be read.
    """
    for listener in BrokerConfig.load(arguments.properties, {}).listeners():
        if listener.security_protocol != "PLAINTEXT":
            raise UsageError(
                f"--listen {arguments.listen} would replace the {listener.security_protocol} listener of "
                f"{arguments.properties} by an unprotected one; to keep it, use "
                f"--set listeners={listener.name}://{arguments.listen}"
            )


def _settings_of_input() -> dict[str, str]:
    """The first line of standard input, a JSON object: other users of the machine can read arguments, not this."""
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(sys.stdin.fileno(), 65536)
        if not data:
            raise UsageError("standard input ended before the settings")
        line += data
    settings: dict[str, str] = json.loads(line)
    return settings


async def _serve(
    config: BrokerConfig, stop: asyncio.Event, console_address: str | None = None, shared: int | None = None
) -> int:
    """Serve until `stop` is set; the exit status.

    `shared` is the descriptor of a listening socket that this process shares with other brokers.
    """
    manager = ServiceManager.from_environment(os.environ)
    manager.status("starting")
    allow_most_files()
    collect_in_small_steps()
    broker = Broker(config)
    loop = asyncio.get_running_loop()
    starting = loop.create_task(broker.start())
    if not await started(starting, stop, lambda: broker.waits_for_store):
        return 0
    try:
        starting.result()
    except StartError as error:
        print(f"odradek serve: {error}", file=sys.stderr)
        return 2 if error.misconfigured else 1
    if shared is not None:
        broker.accept_from(shared)
    print(ready_line(broker.bootstrap, broker.bound, broker.http), flush=True)
    manager.ready(f"serving on {broker.bootstrap}")
    collections = LateCollections(loop)
    alive = asyncio.create_task(manager.keep_alive())
    loading = asyncio.create_task(broker.load_the_rest())
    console = ConsoleProcess()
    if console_address:
        # Beside the broker: if it fails, it reports why, and the broker serves.
        served = await console.start(broker.bootstrap, console_address, broker.http)
        print(served or "odradek console: ended", flush=True)
    await until_end(stop, broker)
    loading.cancel()
    collections.close()
    await console.stop()
    status = await end(broker, manager, "handing leadership over and closing the logs")
    alive.cancel()
    return status


def ready_line(bootstrap: str, bound: str, http: str = "") -> str:
    """The line that says where clients find the broker, the address of its socket if that is another one, and where
    metrics are served.
    """
    served = f" http={http}" if http else ""
    socket = "" if bound == bootstrap else f" bound={bound}"
    return f"odradek ready bootstrap={bootstrap} pid={os.getpid()} seconds={process_age():.2f}{socket}{served}"


async def started(starting: asyncio.Task[None], stop: asyncio.Event, is_waiting: Callable[[], bool]) -> bool:
    """Whether the start came to its end, a good one or not. Who is to stop meanwhile does not wait for ever."""
    stopping = asyncio.get_running_loop().create_task(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done() and not is_waiting():
        await asyncio.wait((starting,), timeout=_START_SECONDS)
    if not starting.done():
        starting.cancel()
        await asyncio.wait((starting,))
    return not starting.cancelled()
