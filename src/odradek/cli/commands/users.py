"""`odradek users [list|create|alter|delete] [NAME]`: SCRAM users of a cluster.

With --config or --data-dir the command writes the metadata store of stopped brokers, as Kafka's
`kafka-storage.sh format --add-scram`.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import add_admin, positive
from odradek.cli.arguments.passwords import read_password
from odradek.cli.arguments.variables import PASSWORD_VARIABLE
from odradek.cli.session import run_admin
from odradek.cli.terminal.output import Column, show
from odradek.client.admin.enums import ScramMechanism
from odradek.client.admin.users import DEFAULT_ITERATIONS, ScramCredential, ScramDeletion, ScramUpsertion
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.configuration.broker_config import BrokerConfig
    from odradek.client.admin import Admin

ACTIONS: Final = ("list", "create", "alter", "delete")
MECHANISMS: Final = {each.mechanism_name: each for each in ScramMechanism if each is not ScramMechanism.UNKNOWN}
COLUMNS: Final = (Column("USER", "user", 20), Column("MECHANISM", "mechanism"), Column("ITERATIONS", "iterations"))
EXAMPLES: Final = f"""
# list users
odradek users
# ask for a password
odradek users create alice
# read the password from a file
odradek users alter alice --password-file alice.password
# delete all credentials of a user
odradek users delete alice
# create the first user of a cluster, before its brokers start; ${PASSWORD_VARIABLE} has the password
odradek users create admin --config server.properties
"""

Users = Mapping[str, Sequence[ScramCredential]]
Change = ScramUpsertion | ScramDeletion


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="list", help="list is the default")
    parser.add_argument("name", nargs="?", metavar="NAME", help="the user")
    parser.add_argument(
        "--mechanism",
        action="append",
        choices=tuple(MECHANISMS),
        metavar="MECHANISM",
        help="SCRAM-SHA-256 or SCRAM-SHA-512 (repeatable; default: both)",
    )
    parser.add_argument(
        "--iterations",
        type=positive,
        metavar="N",
        help=f"of create and alter: 4096 to 16384 (default: {DEFAULT_ITERATIONS})",
    )
    parser.add_argument(
        "--password-file",
        metavar="FILE",
        help=f"of create and alter: file with the password in its first line (default: ${PASSWORD_VARIABLE}, else a "
        "prompt, or standard input)",
    )
    parser.add_argument("--config", metavar="FILE", help="server.properties of brokers that do not run")
    parser.add_argument("--data-dir", metavar="DIR", help="data folder of a broker that does not run")
    add_admin(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Check which options go together, and run the action; the exit status."""
    action, name = arguments.action, arguments.name
    if action == "list":
        if name is not None or arguments.mechanism or arguments.iterations or arguments.password_file:
            raise UsageError("list takes no NAME, --mechanism, --iterations or --password-file")
        show(_rows(_described(arguments)), COLUMNS, arguments.output)
        return 0
    if not name:
        raise UsageError(f"{action} needs the NAME of a user")
    if action == "delete" and (arguments.iterations or arguments.password_file):
        raise UsageError("--iterations and --password-file go with create and alter only")
    wanted = [MECHANISMS[each] for each in dict.fromkeys(arguments.mechanism or MECHANISMS)]
    existing = {each.mechanism for each in _described(arguments).get(name, ())}
    error = _altered(arguments, _changes(arguments, wanted, existing))[name]
    if error is not None:
        raise CommandError(f"user {name!r}: {error}", error.code.name)
    print(f"{action.capitalize().rstrip('e')}ed user {name}.")
    return 0


def _changes(
    arguments: argparse.Namespace, wanted: Sequence[ScramMechanism], existing: set[ScramMechanism]
) -> list[Change]:
    """Raises UsageError where the user exists, or does not."""
    action, name = arguments.action, arguments.name
    if action == "create" and existing & {*wanted}:
        raise UsageError(f"user {name!r} exists: `odradek users alter` changes the password")
    if action != "create" and not existing & {*wanted}:
        raise UsageError(f"there is no user {name!r} with {' or '.join(each.mechanism_name for each in wanted)}")
    if action == "delete":
        return [ScramDeletion(name, each) for each in wanted if each in existing]
    password = read_password(name, arguments.password_file)
    iterations = arguments.iterations or DEFAULT_ITERATIONS
    return [ScramUpsertion(name, each, password, iterations) for each in wanted]


def _rows(users: Users) -> list[dict[str, Any]]:
    return [
        {"user": name, "mechanism": each.mechanism.mechanism_name, "iterations": each.iterations}
        for name, found in sorted(users.items())
        for each in found
    ]


def _described(arguments: argparse.Namespace) -> Users:
    config = _configuration(arguments)
    if config is None:

        async def work(admin: Admin) -> dict[str, list[ScramCredential]]:
            found = await admin.users.describe()
            return {name: each for name, each in found.items() if not isinstance(each, KafkaError)}

        return run_admin(arguments, work)
    from odradek.broker.security.stored_users import describe_stored_users
    from odradek.ports.disk import SystemDisk
    from odradek.ports.store import StoreError

    try:
        return asyncio.run(describe_stored_users(config, SystemDisk()))
    except StoreError as error:
        raise CommandError(f"metadata store: {error}") from error


def _altered(arguments: argparse.Namespace, changes: Sequence[Change]) -> Mapping[str, KafkaError | None]:
    config = _configuration(arguments)
    if config is None:

        async def work(admin: Admin) -> dict[str, KafkaError | None]:
            return await admin.users.alter(changes)

        return run_admin(arguments, work)
    from odradek.broker.security.stored_users import BrokersRunning, alter_stored_users
    from odradek.ports.disk import SystemDisk
    from odradek.ports.store import StoreError

    try:
        return asyncio.run(alter_stored_users(config, SystemDisk(), changes))
    except BrokersRunning as error:
        text = "brokers of this metadata store are running: use --bootstrap-server"
        raise CommandError(text, ErrorCode.INVALID_REQUEST.name) from error
    except StoreError as error:
        raise CommandError(f"metadata store: {error}") from error


def _configuration(arguments: argparse.Namespace) -> BrokerConfig | None:
    """The configuration of stopped brokers; None to ask running ones. Raises UsageError."""
    if arguments.config is None and arguments.data_dir is None:
        return None
    if arguments.bootstrap_server is not None:
        raise UsageError("--config and --data-dir are of brokers that do not run: --bootstrap-server contradicts them")
    from odradek.broker.configuration.broker_config import BrokerConfig
    from odradek.broker.configuration.config_errors import ConfigError

    settings = {} if arguments.data_dir is None else {"log.dirs": arguments.data_dir}
    try:
        return BrokerConfig.load(arguments.config, settings)
    except ConfigError as error:
        raise UsageError(str(error)) from error
