"""`odradek pipeline run FILE.yml` with connectors and tables: all of a file's in one process, without a program.

`runner: local` (the default) runs everything in one asyncio process, without Spark. `runner: spark` starts Spark first,
for the queries among the connectors (SparkSql).
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from odradek.cli.actions.pipeline_restarts import FailedAtStop
from odradek.cli.arguments.errors import CommandError, UsageError, client_log
from odradek.cli.arguments.options import client_settings
from odradek.client.config import ADMIN_DEFAULTS, CONSUMER_DEFAULTS

if TYPE_CHECKING:
    from odradek.connect.worker import WorkerSettings
    from odradek.tables.runner import OnCommit
    from odradek.tables.specification import TableSpec

logger = logging.getLogger(__name__)

SECTIONS: Final = ("connectors", "tables")


class Services(NamedTuple):
    """What a file describes."""

    runner: str
    connectors: Mapping[str, Mapping[str, str]]
    tables: Mapping[str, TableSpec]


def is_services(file: Path) -> bool:
    """Whether a YAML file describes connectors or tables, and is no specification of Spark Declarative Pipelines."""
    from odradek.connect.specification import SpecificationError, document_of

    try:
        document = document_of(file)
    except SpecificationError:
        return False
    return isinstance(document, Mapping) and any(each in document for each in SECTIONS)


def read_services(file: Path, secrets: Path | None) -> Services:
    """The connectors and tables of a file, checked. Raises UsageError with the first thing that is wrong."""
    from odradek.connect.errors import ConnectError
    from odradek.connect.specification import SpecificationError, document_of, read, runner_of
    from odradek.connect.worker import Worker, WorkerSettings
    from odradek.tables.specification import read as read_tables

    try:
        document = document_of(file)
        unknown = [str(name) for name in document if name not in (*SECTIONS, "runner")]
        if unknown:
            raise UsageError(f"{file}: {unknown[0]}: one of runner, {', '.join(SECTIONS)} expected")
        runner = runner_of(file, document)
        connectors = read([file]) if "connectors" in document else {}
        tables = read_tables([file], secrets) if "tables" in document else {}
    except (SpecificationError, ConnectError) as error:
        raise UsageError(str(error)) from error
    worker = Worker(WorkerSettings(clients={}, secrets=secrets))
    queries = []
    for name, config in connectors.items():
        try:
            worker.check(name, config)
        except ConnectError as error:
            raise UsageError(f"connector {name}: {error}") from error
        if worker.validate_own(config)[0].is_query:
            queries.append(name)
    if queries and runner == "local":
        raise UsageError(f"{file}: connector {queries[0]} is a query in Spark SQL, which needs runner: spark")
    if not queries and runner == "spark":
        raise UsageError(f"{file}: runner: spark has no effect without a connector SparkSql")
    return Services(runner, connectors, tables)


def run_services(arguments: argparse.Namespace, conf: Mapping[str, str], on_commit: OnCommit) -> int:
    """Run what the file describes until a signal; `on_commit` is called for tables. Raises UsageError, CommandError."""
    from odradek.broker.log_output import configure_logging
    from odradek.client.errors import ClientError
    from odradek.connect.errors import ConnectError
    from odradek.connect.queries.shared_session import SparkSettings
    from odradek.connect.worker import WorkerSettings
    from odradek.wire.errors import KafkaError

    secrets = None if arguments.secrets is None else Path(arguments.secrets)
    if secrets is not None and not secrets.is_dir():
        raise UsageError(f"--secrets {secrets}: no such folder")
    services = read_services(Path(arguments.file), secrets)
    if arguments.dry_run:
        print(f"valid: {', '.join((*services.connectors, *services.tables))}")
        return 0
    options = argparse.Namespace(**vars(arguments), command_config=None, connect_timeout=None)
    settings = WorkerSettings(
        clients=client_settings(options, ADMIN_DEFAULTS),
        secrets=secrets,
        spark=SparkSettings(arguments.master, conf, None if arguments.log is None else Path(arguments.log)),
    )
    configure_logging("info", "text")
    try:
        with client_log("pipeline"):
            failures, is_stopped = asyncio.run(
                _serve(services, settings, client_settings(options, CONSUMER_DEFAULTS), on_commit)
            )
    except (ConnectError, KafkaError, ClientError) as error:
        raise CommandError(str(error)) from error
    if failures:
        kind = FailedAtStop if is_stopped else CommandError
        raise kind("; ".join(f"table {name}: {error}" for name, error in failures.items()))
    return 0


async def _serve(
    services: Services, settings: WorkerSettings, consumer: Mapping[str, Any], on_commit: OnCommit
) -> tuple[Mapping[str, Exception], bool]:
    """Work until SIGTERM or SIGINT, or until all tables have failed where there are no connectors.

    The failures, and whether it was a signal.
    """
    from odradek.connect.worker import Worker
    from odradek.tables.process import run_tables

    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    worker = Worker(settings)
    try:
        if services.runner == "spark":
            await worker.start_spark()
        if services.connectors:
            await worker.start()
        for name, config in services.connectors.items():
            await worker.create(name, config)
        names = f"connectors={','.join(services.connectors)} tables={','.join(services.tables)}"
        print(f"odradek pipeline ready {names}", flush=True)
        failures = await run_tables(services.tables.values(), consumer, stopping, on_commit)
        if services.connectors:
            await stopping.wait()
        return failures, stopping.is_set()
    finally:
        await worker.close()
