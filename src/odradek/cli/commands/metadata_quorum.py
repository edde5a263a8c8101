"""`odradek metadata-quorum`: the quorum that keeps the cluster's metadata (Apache's kafka-metadata-quorum)."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import add_admin, exactly_one, is_given
from odradek.cli.session import run_admin
from odradek.cli.terminal.output import DOCUMENTS, Column, printable, show, show_document

if TYPE_CHECKING:
    from odradek.client.admin import Admin, QuorumDescription, QuorumReplica

ACTIONS: Final = ("describe", "add-controller", "remove-controller")
_OPTIONS_OF: Final = {
    ("describe",): ("status", "replication", "human-readable"),
    ("add-controller",): ("controller-config",),
    ("remove-controller",): ("controller-id", "controller-directory-id"),
    ("add-controller", "remove-controller"): ("dry-run",),
}
COLUMNS: Final = (
    Column("NodeId", "node_id"),
    Column("DirectoryId", "directory_id", 22),
    Column("LogEndOffset", "log_end_offset"),
    Column("Lag", "lag"),
    Column("LastFetchTimestamp", "last_fetch_timestamp_ms", 13),
    Column("LastCaughtUpTimestamp", "last_caught_up_timestamp_ms", 13),
    Column("Status", "status"),
)
EXAMPLES: Final = """
# show the leader, its epoch and how far its followers are behind
odradek metadata-quorum describe --status
# the same from a controller, also while no broker runs
odradek metadata-quorum describe --status --bootstrap-controller controller1:9093
# show every voter and observer
odradek metadata-quorum describe --replication --human-readable
# let the controller of this file vote, once it runs and has caught up
odradek metadata-quorum add-controller --controller-config controller.properties --bootstrap-controller controller1:9093
# show what would be removed, by the id and the directory id that `describe` shows
odradek metadata-quorum remove-controller --controller-id 3 --controller-directory-id 07R5amHmR32VDA6jHkGbTA --dry-run
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "action",
        choices=ACTIONS,
        help="describe: show the quorum; add-controller, remove-controller: change its voters",
    )
    parser.add_argument("--status", action="store_true", help="show the leader, its epoch, lags, voters and observers")
    parser.add_argument("--replication", action="store_true", help="show how far each voter and observer has fetched")
    parser.add_argument("--human-readable", action="store_true", help="with --replication: times as their distance")
    parser.add_argument(
        "--bootstrap-controller",
        metavar="HOST:PORT,…",
        help="controllers to connect to, in place of --bootstrap-server",
    )
    parser.add_argument(
        "--controller-config",
        metavar="FILE",
        help="with add-controller: properties file of the controller, whose directory is on this machine "
        "(default: the file of --command-config, as in Apache's tool)",
    )
    parser.add_argument("--controller-id", "-i", type=int, metavar="ID", help="with remove-controller: its node id")
    parser.add_argument(
        "--controller-directory-id", "-d", metavar="UUID", help="with remove-controller: the id of its directory"
    )
    parser.add_argument("--dry-run", action="store_true", help="print which voter would change, and change nothing")
    add_admin(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Check which options go together, and show the quorum. Raises UsageError, CommandError."""
    of_controllers = is_given(arguments, "bootstrap-controller")
    if of_controllers:
        if arguments.bootstrap_server is not None:
            raise UsageError("--bootstrap-controller and --bootstrap-server contradict: give one of them")
        arguments.bootstrap_server = arguments.bootstrap_controller
    _check_options(arguments)
    if arguments.action == "add-controller":
        return _add(arguments, of_controllers=of_controllers)
    if arguments.action == "remove-controller":
        return _remove(arguments, of_controllers=of_controllers)
    return _describe(arguments, of_controllers=of_controllers)


def _check_options(arguments: argparse.Namespace) -> None:
    """Raise UsageError for options of other actions."""
    for action, names in _OPTIONS_OF.items():
        for name in names:
            if is_given(arguments, name) and arguments.action not in action:
                raise UsageError(f"--{name} goes with {' or '.join(action)} only")


# --- voters ---


def _add(arguments: argparse.Namespace, *, of_controllers: bool) -> int:
    """Add the controller of a properties file. Raises UsageError, CommandError."""
    from odradek.client.admin import RaftVoterEndpoint

    path = arguments.controller_config or arguments.command_config
    if not path:
        raise UsageError("add-controller needs --controller-config, the properties file of the controller")
    node_id, directory_id, listeners = _controller_of(path)
    endpoints = [RaftVoterEndpoint(*each) for each in listeners]

    async def add(admin: Admin) -> None:
        await admin.raft_voters.add(node_id, directory_id, endpoints, of_controllers=of_controllers)

    if not arguments.dry_run:
        run_admin(arguments, add)
    said = "DRY RUN of adding" if arguments.dry_run else "Added"
    addresses = ", ".join(_address(*each) for each in endpoints)
    print(
        printable(f"{said} controller {node_id} with directory id {_text_of(directory_id)} and endpoints: {addresses}")
    )
    return 0


def _controller_of(path: str) -> tuple[int, bytes, list[tuple[str, str, int]]]:
    """Node id, id of the metadata directory and listeners (name, host, port) of a controller. Raises UsageError."""
    from odradek.broker.configuration.config_errors import ConfigError
    from odradek.broker.storage.controller_identity import controller_identity

    try:
        return controller_identity(path)
    except ConfigError as error:
        raise UsageError(str(error)) from error


def _remove(arguments: argparse.Namespace, *, of_controllers: bool) -> int:
    """Raises UsageError, CommandError."""
    node_id, text = arguments.controller_id, arguments.controller_directory_id
    if node_id is None or text is None:
        raise UsageError("remove-controller needs --controller-id and --controller-directory-id")
    from odradek.broker.storage.stored_files import decode_uuid

    try:
        directory_id = decode_uuid(text)
    except ValueError:
        raise UsageError(f"--controller-directory-id {text!r} is not a UUID as `describe` shows it") from None
    if node_id < 0:
        raise UsageError(f"--controller-id {node_id} is negative")

    async def remove(admin: Admin) -> None:
        await admin.raft_voters.remove(node_id, directory_id, of_controllers=of_controllers)

    if not arguments.dry_run:
        run_admin(arguments, remove)
    said = "DRY RUN of removing" if arguments.dry_run else "Removed"
    print(f"{said} KRaft controller {node_id} with directory id {_text_of(directory_id)}")
    return 0


# --- describe ---


def _describe(arguments: argparse.Namespace, *, of_controllers: bool) -> int:
    """Raises UsageError, CommandError."""
    what = exactly_one(arguments, ("status", "replication"), "view")
    if arguments.human_readable and what == "status":
        raise UsageError("--human-readable goes with --replication only")

    async def work(admin: Admin) -> tuple[str, QuorumDescription]:
        cluster = await admin.describe_cluster(of_controllers=of_controllers)
        return cluster.cluster_id, await admin.describe_quorum(of_controllers=of_controllers)

    cluster_id, quorum = run_admin(arguments, work)
    leader = next((each for each in quorum.voters if each.replica_id == quorum.leader_id), None)
    if leader is None:
        raise CommandError("the quorum has no leader: a majority of its voters must run and reach each other")
    if what == "replication":
        now_ms = int(time.time() * 1000) if arguments.human_readable else None
        show(list(_replicas(quorum, leader, now_ms)), COLUMNS, arguments.output)
    else:
        _show_status(cluster_id, quorum, leader, arguments.output)
    return 0


def _replicas(quorum: QuorumDescription, leader: QuorumReplica, now_ms: int | None) -> Iterator[dict[str, Any]]:
    """The leader, the other voters, the observers; times as distances from `now_ms` where it is given."""

    def time_of(then_ms: int | None) -> int | str | None:
        return then_ms if then_ms is None or now_ms is None else f"{max(0, now_ms - then_ms)} ms ago"

    followers = [each for each in quorum.voters if each.replica_id != quorum.leader_id]
    for status, replicas in (("Leader", [leader]), ("Follower", followers), ("Observer", quorum.observers)):
        for each in replicas:
            yield {
                "node_id": each.replica_id,
                "directory_id": _directory(each),
                "log_end_offset": each.log_end_offset,
                "lag": leader.log_end_offset - each.log_end_offset,
                "last_fetch_timestamp_ms": time_of(each.last_fetch_timestamp_ms),
                "last_caught_up_timestamp_ms": time_of(each.last_caught_up_timestamp_ms),
                "status": status,
            }


def _directory(replica: QuorumReplica) -> str | None:
    return None if replica.directory_id is None else _text_of(replica.directory_id)


def _text_of(directory_id: bytes) -> str:
    from odradek.broker.storage.stored_files import encode_uuid

    return encode_uuid(directory_id)


def _lag_ms(leader: QuorumReplica, last: QuorumReplica) -> int:
    """How long ago the voter that is furthest behind had all; -1 where that is not known."""
    if last is leader:
        return 0
    if leader.last_caught_up_timestamp_ms is None or last.last_caught_up_timestamp_ms is None:
        return -1
    return leader.last_caught_up_timestamp_ms - last.last_caught_up_timestamp_ms


def _show_status(cluster_id: str, quorum: QuorumDescription, leader: QuorumReplica, output: str | None) -> None:
    last = min((leader, *quorum.voters), key=lambda each: each.log_end_offset)
    lag, lag_ms = leader.log_end_offset - last.log_end_offset, _lag_ms(leader, last)
    voters, observers = _nodes(quorum, quorum.voters), _nodes(quorum, quorum.observers)
    if output in DOCUMENTS:
        document = {
            "cluster_id": cluster_id,
            "leader_id": quorum.leader_id,
            "leader_epoch": quorum.leader_epoch,
            "high_watermark": quorum.high_watermark,
            "max_follower_lag": lag,
            "max_follower_lag_ms": lag_ms,
            "voters": voters,
            "observers": observers,
        }
        show_document(document, output)
        return
    fields = (
        ("ClusterId", cluster_id),
        ("LeaderId", quorum.leader_id),
        ("LeaderEpoch", quorum.leader_epoch),
        ("HighWatermark", quorum.high_watermark),
        ("MaxFollowerLag", lag),
        ("MaxFollowerLagTimeMs", lag_ms),
        ("CurrentVoters", f"[{', '.join(map(_as_apache, voters))}]"),
        ("CurrentObservers", f"[{', '.join(map(_as_apache, observers))}]"),
    )
    for name, value in fields:
        text = printable(str(value))
        print(f"{name}\t{text}" if output == "tsv" else f"{name + ':':<23} {text}")


def _nodes(quorum: QuorumDescription, replicas: Sequence[QuorumReplica]) -> list[dict[str, Any]]:
    return [
        {
            "id": each.replica_id,
            "directory_id": _directory(each),
            "endpoints": [_address(*found) for found in quorum.endpoints.get(each.replica_id, ())],
        }
        for each in replicas
    ]


def _address(listener: str, host: str, port: int) -> str:
    return f"{listener}://[{host}]:{port}" if ":" in host else f"{listener}://{host}:{port}"


def _as_apache(node: dict[str, Any]) -> str:
    """`{"id": 1, "directoryId": "…", "endpoints": ["CONTROLLER://host:9093"]}`, without fields that are unknown."""
    fields = {"id": node["id"], "directoryId": node["directory_id"], "endpoints": node["endpoints"]}
    return json.dumps({name: value for name, value in fields.items() if value not in (None, [])})
