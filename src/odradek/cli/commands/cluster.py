"""`odradek cluster`: id, brokers and API versions (Apache's kafka-cluster and kafka-broker-api-versions), the state of
all brokers (`status`), what is wrong (`health`), moves that even out their load (`balance`), and a rolling restart
(`restart`).
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.arguments.errors import UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import add_admin, from_zero, is_given, positive, seconds
from odradek.cli.session import run_admin
from odradek.cli.terminal.output import DOCUMENTS, Column, show, show_document
from odradek.cli.terminal.watching import add_watch

if TYPE_CHECKING:
    from odradek.client.admin import Admin

ACTIONS: Final = ("describe", "cluster-id", "list-endpoints", "api-versions", "status", "health", "balance", "restart")
OPTIONS: Final = {
    "execute": "balance", "decommission": "balance", "tolerance": "balance", "max-moves": "balance",
    "rolling": "restart", "data-dir": "restart", "patience": "restart",
}  # fmt: skip
BROKER_COLUMNS: Final = (
    Column("ID", "id", 10),
    Column("HOST", "host", 20),
    Column("PORT", "port", 10),
    Column("RACK", "rack", 10),
    Column("CONTROLLER", "controller"),
)
API_COLUMNS: Final = (
    Column("BROKER", "broker"),
    Column("API", "api", 30),
    Column("KEY", "key"),
    Column("MIN", "min_version"),
    Column("MAX", "max_version"),
    Column("USABLE", "usable"),
)


EXAMPLES: Final = """
# show the cluster's id and brokers
odradek cluster
# show leaders, replicas and lag, redrawn every two seconds
odradek cluster status --watch
# name what is wrong; the exit status is 3 for warnings, 4 if clients cannot use something
odradek cluster health
# propose moves that even out bytes and leaders
odradek cluster balance
# restart the brokers of this machine in turn
odradek cluster restart --rolling --data-dir ./three
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the actions on clusters and their options."""
    parser.add_argument(
        "action", nargs="?", choices=ACTIONS, default="describe", help="default: describe, which shows id and brokers"
    )
    group = parser.add_argument_group("status, health")
    add_watch(group)
    group = parser.add_argument_group("balance")
    group.add_argument("--execute", action="store_true", help="execute the proposed moves and wait for them")
    group.add_argument(
        "--decommission",
        type=int,
        action="append",
        metavar="ID",
        help="move all replicas away from this broker (repeatable)",
    )
    group.add_argument(
        "--tolerance", type=from_zero, metavar="PART", help="accepted deviation from the average (default: 0.1)"
    )
    group.add_argument("--max-moves", type=positive, metavar="N", help="maximum number of moves (default: 1000)")
    group = parser.add_argument_group("restart")
    group.add_argument(
        "--rolling", action="store_true", help="restart one broker at a time, while all replicas are in sync"
    )
    group.add_argument("--data-dir", metavar="DIR", help="data folder of `odradek serve --brokers N` on this machine")
    group.add_argument(
        "--patience", type=seconds, metavar="SECONDS", help="time limit for replicas to be in sync (default: 300)"
    )
    add_admin(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Execute the action; the exit code."""
    for option, action in OPTIONS.items():
        if is_given(arguments, option) and arguments.action != action:
            raise UsageError(f"--{option} goes with {action} only")
    if is_given(arguments, "watch") and arguments.action not in ("status", "health"):
        raise UsageError("--watch goes with status and health only")
    if arguments.action == "health":
        from odradek.cli.actions.cluster_health import health

        return health(arguments)
    if arguments.action == "status":
        from odradek.cli.actions.cluster_status import status

        return status(arguments)
    if arguments.action == "balance":
        from odradek.cli.actions.cluster_balance import balance

        return balance(arguments)
    if arguments.action == "restart":
        from odradek.cli.actions.cluster_restart import restart

        return restart(arguments)
    return api_versions(arguments) if arguments.action == "api-versions" else describe(arguments)


def describe(arguments: argparse.Namespace) -> int:
    """Print the id and the brokers of the cluster, the controller marked; the exit code."""

    async def work(admin: Admin) -> dict[str, Any]:
        found = await admin.describe_cluster()
        brokers = [
            {
                "id": each.node_id,
                "host": each.host,
                "port": each.port,
                "rack": each.rack,
                "controller": each.node_id == found.controller_id,
            }
            for each in found.brokers
        ]
        return {"cluster_id": found.cluster_id, "controller_id": found.controller_id, "brokers": brokers}

    found = run_admin(arguments, work)
    if arguments.output in DOCUMENTS:
        show_document(found, "json" if arguments.output == "jsonl" else arguments.output)
        return 0
    if arguments.action != "list-endpoints" and arguments.output != "tsv":
        print(f"Cluster ID: {found['cluster_id']}")
    if arguments.action != "cluster-id":
        show(found["brokers"], BROKER_COLUMNS, arguments.output)
    return 0


def api_versions(arguments: argparse.Namespace) -> int:
    """Print the API versions of each broker, and the one that this client would use."""

    async def work(admin: Admin) -> list[dict[str, Any]]:
        from odradek.wire.apis import APIS, request_class

        rows: list[dict[str, Any]] = []
        for broker in (await admin.describe_cluster()).brokers:
            admin.cluster.connections.add_broker(broker)
            connection = await admin.cluster.connections.get(broker.node_id)
            for key, offered in sorted(connection.versions.items()):
                usable = None
                if key in APIS:
                    ours = request_class(key)
                    highest = min(offered.max_version, int(ours.MAX_VERSION))
                    usable = highest if highest >= max(offered.min_version, int(ours.MIN_VERSION)) else None
                rows.append(
                    {
                        "broker": broker.node_id,
                        "api": APIS[key].name if key in APIS else "UNKNOWN",
                        "key": key,
                        "min_version": offered.min_version,
                        "max_version": offered.max_version,
                        "usable": usable,
                    }
                )
        return rows

    show(run_admin(arguments, work), API_COLUMNS, arguments.output)
    return 0
