"""`odradek import DIR…`: take over the data of a stopped Apache Kafka; its folders are read and not changed.

Exit status 0 when all is imported (or would be, with --dry-run), 2 when the folders or options do not allow it, 1 when
something failed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any, Final

from odradek.broker.migration.importing import Import
from odradek.broker.migration.plan import ImportPlan, Options, PartitionPlan
from odradek.broker.migration.source import ImportFailure
from odradek.broker.migration.zookeeper import Ensemble, ensemble
from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import add_output, read_properties
from odradek.cli.terminal.output import DOCUMENTS, Column, is_terminal, show, show_document
from odradek.ports.disk import SystemDisk
from odradek.ports.randomness import SystemRandom
from odradek.ports.store import StoreError

DEFAULT_TARGET: Final = "odradek-data"
_LAST_NODE_ID: Final = (1 << 31) - 1
_COLUMNS: Final = (
    Column("TOPIC", "name", 24),
    Column("PARTITIONS", "partitions"),
    Column("LINKED", "linked_bytes", 12),
    Column("COPIED", "copied_bytes", 12),
    Column("ID", "id", wide=True),
    Column("SETTINGS", "configs"),
)
EXAMPLES: Final = """
# report what would be imported, and write nothing
odradek import /var/lib/kafka --data-dir /srv/odradek --dry-run
# import, then serve
odradek import /var/lib/kafka --data-dir /srv/odradek
odradek serve --data-dir /srv/odradek
# import two log directories into two
odradek import /disk1/kafka /disk2/kafka --data-dir /disk1/odradek,/disk2/odradek
# import a broker of Kafka 3.x with its settings in ZooKeeper
odradek import /var/lib/kafka --data-dir /srv/odradek --zookeeper 127.0.0.1:2181/kafka
# the same, where ZooKeeper has TLS or logins: as the broker reached it
odradek import /var/lib/kafka --data-dir /srv/odradek --zookeeper-config server.properties
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", nargs="+", metavar="DIR", help="all of log.dirs of one stopped Apache Kafka broker")
    parser.add_argument(
        "--data-dir",
        metavar="DIR[,DIR]",
        default=DEFAULT_TARGET,
        help=f"empty folder to write, or one for each DIR, in their order; default ./{DEFAULT_TARGET}",
    )
    parser.add_argument("--dry-run", action="store_true", help="report what would be done and write nothing")
    parser.add_argument(
        "--partial", action="store_true", help="import what there is when partitions or their last records are missing"
    )
    parser.add_argument("--copy", action="store_true", help="copy every file instead of linking closed segments")
    parser.add_argument("--node-id", type=int, metavar="N", help="id of the new broker; default: that of the source")
    parser.add_argument(
        "--zookeeper", metavar="HOST:PORT[/CHROOT]", help="where a cluster with ZooKeeper keeps its settings"
    )
    parser.add_argument(
        "--zookeeper-config",
        metavar="FILE",
        help="properties of its broker, of which the TLS and the login of ZooKeeper are read (zookeeper.ssl.*, "
        "java.security.auth.login.config), and zookeeper.connect if --zookeeper is not given",
    )
    add_output(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Import, or report what would be imported; the exit status. Raises UsageError, CommandError."""
    targets = [each.strip() for each in arguments.data_dir.split(",") if each.strip()]
    if not targets:
        raise UsageError("--data-dir is empty")
    if not all(arguments.source):
        raise UsageError("the name of a folder is empty")
    if arguments.node_id is not None and not 0 <= arguments.node_id <= _LAST_NODE_ID:
        raise UsageError(f"--node-id {arguments.node_id}: from 0 to {_LAST_NODE_ID}")
    try:
        return asyncio.run(_import(arguments, targets))
    except ImportFailure as error:
        raise UsageError(str(error)) from error
    except StoreError as error:
        raise CommandError(f"metadata store: {error}") from error
    except OSError as error:
        raise CommandError(f"{error.filename or 'import'}: {error.strerror or error}") from error


async def _import(arguments: argparse.Namespace, targets: list[str]) -> int:
    importing = Import(SystemDisk(), SystemRandom(), arguments.source, targets)
    try:
        plan = await importing.plan(Options(arguments.node_id, not arguments.copy), _ensemble(arguments))
        refusal = _refusal(plan, arguments)
        if not refusal and not arguments.dry_run:
            await importing.write(plan, _progress(plan, arguments))
        report = _report(plan, arguments, targets, importing.copied_bytes)
        if arguments.dry_run or not refusal:
            _show(report, arguments.output)
    finally:
        importing.close()
    if refusal:
        raise UsageError(refusal)
    return 0


def _ensemble(arguments: argparse.Namespace) -> Ensemble | None:
    """Raises UsageError, ImportFailure."""
    path = arguments.zookeeper_config
    if path is None and arguments.zookeeper is None:
        return None
    return ensemble(arguments.zookeeper, {} if path is None else read_properties(path, "zookeeper-config"))


def _refusal(plan: ImportPlan, arguments: argparse.Namespace) -> str:
    """Why nothing is imported; empty when it is."""
    problems = [*plan.obstacles, *(() if arguments.partial else plan.gaps)]
    if not problems:
        return ""
    way = "" if plan.obstacles else " (while Apache Kafka runs, reassign them to this broker; or use --partial)"
    return "; ".join(problems) + way


def _progress(plan: ImportPlan, arguments: argparse.Namespace) -> Any:
    """A line on standard error that says how far a long import is, for a terminal."""
    shows = is_terminal(sys.stderr) and arguments.output is None
    total, done = len(plan.partitions), 0

    def note(partition: PartitionPlan) -> None:
        nonlocal done
        done += 1
        if shows:
            print(f"\r{done}/{total} partitions, {partition.name}\x1b[K", end="", file=sys.stderr, flush=True)
            if done == total:
                print("\r\x1b[K", end="", file=sys.stderr)

    return note


def _report(plan: ImportPlan, arguments: argparse.Namespace, targets: list[str], copied_bytes: int) -> dict[str, Any]:
    topics: dict[str, dict[str, Any]] = {
        topic.name: {
            "name": topic.name,
            "id": _text(topic.id),
            "partitions": len(topic.partitions),
            "held": 0,
            "linked_bytes": 0,
            "copied_bytes": 0,
            "configs": dict(topic.configs),
        }
        for topic in sorted(plan.image.topics.values(), key=lambda each: each.name)
    }
    for each in plan.partitions:
        row = topics[each.source.topic]
        row["held"] += 1
        for file in each.files:
            row["linked_bytes" if file.linked else "copied_bytes"] += file.size
    total = plan.size_bytes(linked=True) + plan.size_bytes(linked=False)
    copied = plan.size_bytes(linked=False) if arguments.dry_run else copied_bytes
    return {
        "cluster_id": plan.cluster_id,
        "node_id": plan.node_id,
        "sources": arguments.source,
        "targets": targets,
        "metadata": plan.metadata,
        "dry_run": arguments.dry_run,
        "clean": plan.is_clean,
        "topics": list(topics.values()),
        "linked_bytes": total - copied,
        "copied_bytes": copied,
        "next_producer_id": plan.next_producer_id,
        "client_settings": sum(bool(configs) for configs in plan.image.client_configs.values()),
        "obstacles": list(plan.obstacles),
        "gaps": list(plan.gaps),
        "notes": list(plan.notes),
    }


def _text(topic_id: bytes) -> str:
    from odradek.broker.storage.stored_files import encode_uuid

    return encode_uuid(topic_id)


def _show(report: dict[str, Any], output: str | None) -> None:
    if output in DOCUMENTS:
        show_document(report, output)
        return
    show(report["topics"], _COLUMNS, output)
    if output == "tsv":
        return
    targets = ",".join(report["targets"])
    verb = "would be imported" if report["dry_run"] else "imported"
    print(f"\n{len(report['topics'])} topics of cluster {report['cluster_id']} {verb} into {targets}")
    print(f"metadata: {report['metadata']}")
    print(f"{report['linked_bytes']} bytes linked, {report['copied_bytes']} copied")
    for kind in ("obstacles", "gaps", "notes"):
        for line in report[kind]:
            print(f"{kind.removesuffix('s')}: {line}")
    if not report["dry_run"]:
        node = f" --set node.id={report['node_id']}" if report["node_id"] != 1 else ""
        print(f"next: odradek serve --data-dir {targets}{node}")
