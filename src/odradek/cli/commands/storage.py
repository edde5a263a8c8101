"""`odradek storage`: format the directories of a KRaft node, show how they are formatted (Apache's kafka-storage).

`version-mapping` and `feature-dependencies` print what Apache Kafka 4.3 does, also of features that this version lacks.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.terminal.output import printable

if TYPE_CHECKING:
    from odradek.broker.configuration.broker_config import BrokerConfig

ACTIONS: Final = ("format", "info", "random-uuid", "version-mapping", "feature-dependencies")
EXAMPLES: Final = """
# print an id for a new cluster
odradek storage random-uuid
# format the directories of a node, once, before its first start
odradek storage format --cluster-id 4L6g3nShT-eMCtK--X86sw --config controller.properties
# a controller that begins a quorum of its own; others join it with `odradek metadata-quorum add-controller`
odradek storage format --standalone -t 4L6g3nShT-eMCtK--X86sw -c controller.properties
# the same with the first user, who can log in when the first controller serves
odradek storage format -t 4L6g3nShT-eMCtK--X86sw -c controller.properties -S 'SCRAM-SHA-256=[name=eve,password=secret]'
# format a disk that was added or replaced, and skip the others
odradek storage format -t 4L6g3nShT-eMCtK--X86sw -c broker.properties --ignore-formatted
# print which levels the features of a release of Apache Kafka have
odradek storage version-mapping --release-version 4.1
# print which metadata.version a level of a feature needs
odradek storage feature-dependencies --feature eligible.leader.replicas.version=1
# show how the directories are formatted
odradek storage info --config controller.properties
"""
_OF_FORMAT: Final = (
    "cluster_id", "add_scram", "ignore_formatted", "release_version", "feature", "standalone", "initial_controllers",
    "no_initial_controllers",
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "action",
        choices=ACTIONS,
        help="format: prepare the directories of a node; info: show how they are formatted; "
        "random-uuid: print an id for a cluster; version-mapping: print the levels of features in a release of Apache "
        "Kafka; feature-dependencies: print what levels of features need",
    )
    parser.add_argument("--config", "-c", metavar="FILE", help="server.properties of the node")
    of_format = parser.add_argument_group("format")
    of_format.add_argument("--cluster-id", "-t", metavar="ID", help="id of the cluster, the same for all of its nodes")
    of_format.add_argument(
        "--ignore-formatted",
        "-g",
        action="store_true",
        help="skip formatted directories of this node and cluster in place of failing",
    )
    of_format.add_argument(
        "--add-scram",
        "-S",
        action="append",
        default=[],
        metavar="CREDENTIAL",
        help="a first user: SCRAM-SHA-256=[name=NAME,password=PASSWORD], or with salt, saltedpassword and iterations "
        "(repeatable)",
    )
    of_format.add_argument(
        "--release-version",
        "-r",
        metavar="RELEASE",
        help="release of Apache Kafka, such as 4.1, whose features the cluster begins with (default: 4.3); also for "
        "version-mapping",
    )
    of_format.add_argument(
        "--feature",
        "-f",
        action="append",
        default=[],
        metavar="NAME=LEVEL",
        help="level that a feature begins with; also for feature-dependencies (repeatable)",
    )
    voters = of_format.add_mutually_exclusive_group()
    voters.add_argument(
        "--no-initial-controllers",
        "-N",
        action="store_true",
        help="write no voters: the controller observes the quorum until it is added to the voters",
    )
    voters.add_argument(
        "--standalone", "-s", action="store_true", help="begin a quorum whose only voter is this controller"
    )
    voters.add_argument(
        "--initial-controllers",
        "-I",
        metavar="VOTERS",
        help="begin a quorum with these voters, the same list on each node: ID@HOST:PORT:DIRECTORY_ID,…",
    )
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Run the action; the exit status."""
    if arguments.action != "format":
        for name in _OF_FORMAT:
            if getattr(arguments, name) and name != _ALSO_OF.get(arguments.action):
                actions = ["format", *(action for action, option in _ALSO_OF.items() if option == name)]
                raise UsageError(f"--{name.replace('_', '-')} goes with {' and '.join(actions)} only")
    if arguments.action in _WITHOUT_NODE:
        if arguments.config:
            raise UsageError("--config goes with format or info only")
        return _WITHOUT_NODE[arguments.action](arguments)
    if not arguments.config:
        raise UsageError(f"{arguments.action} needs --config")
    return _format(arguments) if arguments.action == "format" else _info(arguments)


def _random_uuid(_arguments: argparse.Namespace) -> int:
    from odradek.broker.storage.formatting import new_cluster_id
    from odradek.ports.randomness import SystemRandom

    print(new_cluster_id(SystemRandom()))
    return 0


def _version_mapping(arguments: argparse.Namespace) -> int:
    """Print in the form of Apache's tool."""
    from odradek.broker.storage.bootstrap_records import InvalidFormat
    from odradek.broker.storage.feature_levels import version_mapping

    try:
        lines = version_mapping(arguments.release_version)
    except InvalidFormat as error:
        raise UsageError(str(error)) from error
    print("\n".join(map(printable, lines)))
    return 0


def _feature_dependencies(arguments: argparse.Namespace) -> int:
    """Print in the form of Apache's tool."""
    from odradek.broker.storage.bootstrap_records import InvalidFormat
    from odradek.broker.storage.feature_levels import feature_dependencies

    if not arguments.feature:
        raise UsageError("feature-dependencies needs --feature")
    try:
        lines = [line for text in arguments.feature for line in feature_dependencies(text)]
    except InvalidFormat as error:
        raise UsageError(str(error)) from error
    print("\n".join(lines))
    return 0


_WITHOUT_NODE: Final = {
    "random-uuid": _random_uuid,
    "version-mapping": _version_mapping,
    "feature-dependencies": _feature_dependencies,
}
_ALSO_OF: Final = {"version-mapping": "release_version", "feature-dependencies": "feature"}
"""The option of `format` that another action has, too."""


def _format(arguments: argparse.Namespace) -> int:
    from odradek.broker.storage.bootstrap_records import InvalidFormat
    from odradek.broker.storage.formatting import (
        FormatRequest,
        UnfitDirectories,
        format_directories,
        plan_format,
    )
    from odradek.ports.clock import SystemClock
    from odradek.ports.disk import SystemDisk
    from odradek.ports.randomness import SystemRandom

    if arguments.cluster_id is None:
        raise UsageError("format needs --cluster-id")
    request = FormatRequest(
        arguments.cluster_id,
        arguments.feature,
        arguments.release_version,
        arguments.add_scram,
        arguments.ignore_formatted,
        arguments.standalone,
        arguments.initial_controllers,
        arguments.no_initial_controllers,
    )
    disk = SystemDisk()
    try:
        plan = plan_format(_configuration(arguments.config), disk, SystemClock(), SystemRandom(), request)
        if not plan.properties:
            print("All of the log directories are already formatted.")
        for path in format_directories(disk, plan):
            kind = plan.kind_of(path)
            print(printable(f"Formatted {kind} directory {path} with metadata.version {plan.release}."), flush=True)
    except InvalidFormat as error:
        raise UsageError(str(error)) from error
    except UnfitDirectories as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(
            f"{error.filename}: {error.strerror or error}; later directories are not formatted"
        ) from error
    return 0


def _info(arguments: argparse.Namespace) -> int:
    """Print in the form of Apache's tool; 1 where there is a problem."""
    from odradek.broker.storage.formatting import describe_storage
    from odradek.ports.disk import SystemDisk

    found = describe_storage(_configuration(arguments.config), SystemDisk())
    if found.directories:
        print("Found log directory:" if len(found.directories) == 1 else "Found log directories:")
        for path in found.directories:
            print(printable(f"  {path}"))
        print()
    if found.properties is not None:
        fields = ", ".join(f"{name}={value}" for name, value in found.properties.items())
        print(printable(f"Found metadata: {{{fields}}}"))
        print()
    if found.problems:
        print("Found problem:" if len(found.problems) == 1 else "Found problems:")
        for problem in found.problems:
            print(printable(f"  {problem}"))
        print()
    return 1 if found.problems else 0


def _configuration(path: str) -> BrokerConfig:
    """Raises UsageError."""
    from odradek.broker.configuration.broker_config import BrokerConfig
    from odradek.broker.configuration.config_errors import ConfigError

    try:
        return BrokerConfig.load(path, is_formatted=True)
    except ConfigError as error:
        raise UsageError(str(error)) from error
