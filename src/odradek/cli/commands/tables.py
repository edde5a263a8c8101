"""`odradek tables`: topics continuously written into Delta and Iceberg tables, every record once."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.arguments.errors import CommandError, UsageError, client_log
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import add_connection, add_output, client_settings, pairs
from odradek.cli.terminal.output import Column, show, show_document
from odradek.client.config import ADMIN_DEFAULTS, CONSUMER_DEFAULTS

if TYPE_CHECKING:
    from odradek.connect.errors import ConfigInvalid, ConnectError
    from odradek.tables.process import FindTables
    from odradek.tables.specification import TableSpec
    from odradek.tables.store import Written

logger = logging.getLogger(__name__)

EXAMPLES: Final = """
# write the tables of a file until Ctrl-C
odradek tables run tables.yml
# write what the topics have now, and end
odradek tables run tables.yml --once
# check a file, and whether tables that are there fit it
odradek tables check tables.yml
# show versions, columns, rows and positions of the tables
odradek tables describe tables.yml
# print the offsets that version 3 of a table has
odradek tables offsets tables.yml --table orders --as-of 3
# write the tables that topics ask for by their own settings, odradek.table.format and others
odradek tables run --warehouse ./lake
# the same as Iceberg tables in a namespace, with values in Avro
odradek tables run --warehouse sales --set catalog.uri=sqlite:///catalog.db --set value.converter=avro --set value.converter.schema.registry.url=http://registry:8081
# list the settings of a table
odradek tables settings
"""
OFFSETS: Final = (Column("TABLE", "table", 15), Column("TOPIC", "topic", 15), Column("PARTITION", "partition"),
                  Column("OFFSET", "offset"))  # fmt: skip
_ACTIONS: Final = ("run", "check", "describe", "offsets", "settings")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and options."""
    parser.add_argument(
        "action",
        choices=_ACTIONS,
        help="write tables until a signal; check their specifications; show what they are; print their offsets in the "
        "topics; list the settings",
    )
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="specifications of tables: .yml, .json or .properties"
    )
    parser.add_argument(
        "--warehouse",
        metavar="PLACE",
        help="tables of topics that ask for one by odradek.table.format, without FILE: the folder or URL of Delta "
        "tables, or the namespace of Iceberg tables",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="with --warehouse: setting of all tables (repeatable)",
    )
    parser.add_argument("--once", action="store_true", help="run: end when the records that are there now are written")
    parser.add_argument(
        "--table", action="append", default=[], metavar="NAME", help="tables to include (repeatable; default: all)"
    )
    parser.add_argument(
        "--as-of", metavar="VERSION", help="offsets: those of a version of the table, or of a time in ISO 8601"
    )
    parser.add_argument(
        "--secrets", type=Path, metavar="DIR", help="folder whose files specifications may name as ${file:PATH:KEY}"
    )
    add_connection(parser)
    add_output(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Execute the action; the exit code. Raises UsageError, CommandError."""
    if arguments.action == "settings":
        return _show_settings()
    _check_options(arguments)
    from odradek.connect.errors import ConfigInvalid, ConnectError

    try:
        if arguments.action == "run":
            return _run(arguments)
        specs = asyncio.run(_find(arguments, _reject)())
        chosen = [spec for name, spec in specs.items() if not arguments.table or name in arguments.table]
        if arguments.action == "check":
            return _check(chosen)
        if arguments.action == "describe":
            return _describe(chosen, arguments.output)
        return _offsets(chosen, arguments.as_of, arguments.output)
    except ConfigInvalid as error:
        raise UsageError(str(error)) from error
    except ConnectError as error:
        raise CommandError(str(error)) from error


def _check_options(arguments: argparse.Namespace) -> None:
    """Raises UsageError for options that do not belong together."""
    if bool(arguments.files) == bool(arguments.warehouse):
        raise UsageError(f"{arguments.action} needs either a file or --warehouse")
    if arguments.set and not arguments.warehouse:
        raise UsageError("--set goes with --warehouse only")
    if arguments.warehouse and arguments.table and arguments.action == "run":
        raise UsageError(
            "--table goes with files: with --warehouse run writes the tables of all topics that ask for one"
        )
    if arguments.secrets is not None and not arguments.secrets.is_dir():
        raise UsageError(f"--secrets {arguments.secrets}: no such folder")
    if arguments.once and arguments.action != "run":
        raise UsageError("--once goes with run only")
    if arguments.as_of is not None and arguments.action != "offsets":
        raise UsageError("--as-of goes with offsets only")


def _find(arguments: argparse.Namespace, on_invalid: Callable[[ConfigInvalid], None]) -> FindTables:
    """What finds the tables that are wanted: those of the files, or of topics. Raises UsageError, ConfigInvalid."""
    if arguments.warehouse:
        from odradek.tables.topic_tables import Warehouse, find_specs

        warehouse = Warehouse(arguments.warehouse, pairs(arguments.set, "set"), arguments.secrets)
        clients = client_settings(arguments, ADMIN_DEFAULTS)

        async def find() -> Mapping[str, TableSpec]:
            return await find_specs(clients, warehouse, on_invalid)

        return find
    found = _read(arguments)

    async def read_before() -> Mapping[str, TableSpec]:
        return found

    return read_before


def _read(arguments: argparse.Namespace) -> dict[str, TableSpec]:
    """The tables of the files that are wanted. Raises UsageError, ConfigInvalid."""
    from odradek.connect.specification import SpecificationError
    from odradek.tables.specification import read

    try:
        found = read(arguments.files, arguments.secrets)
    except SpecificationError as error:
        raise UsageError(str(error)) from error
    unknown = [name for name in arguments.table if name not in found]
    if unknown:
        raise UsageError(f"--table {unknown[0]}: the files have {', '.join(found) or 'no tables'}")
    return {name: spec for name, spec in found.items() if not arguments.table or name in arguments.table}


def _reject(error: ConfigInvalid) -> None:
    raise error


def _check(specs: list[TableSpec]) -> int:
    from odradek.tables.process import store_of

    for spec in specs:
        with contextlib.closing(store_of(spec)) as store:
            exists = store.check()
        print(f"valid: {spec.name} ({'the table is there' if exists else 'a new table'})")
    return 0


def _describe(specs: list[TableSpec], output: str | None) -> int:
    from odradek.tables.process import store_of

    documents: dict[str, Mapping[str, Any]] = {}
    for spec in specs:
        with contextlib.closing(store_of(spec)) as store:
            offsets = {str(partition): at for partition, at in sorted(store.offsets(None).items())}
            documents[spec.name] = {"topic": spec.topic, **store.describe(), "offsets": offsets}
    show_document(documents, output or "yaml")
    return 0


def _offsets(specs: list[TableSpec], version: str | None, output: str | None) -> int:
    from odradek.tables.process import store_of

    rows = []
    for spec in specs:
        with contextlib.closing(store_of(spec)) as store:
            rows += [
                {"table": spec.name, "topic": spec.topic, "partition": partition, "offset": at}
                for partition, at in sorted(store.offsets(version).items())
            ]
    show(rows, OFFSETS, output)
    return 0


def _show_settings() -> int:
    from odradek.connect.settings import described
    from odradek.tables.specification import SETTINGS

    print("\n".join(described(SETTINGS)))
    return 0


class _Invalid:
    """Logs what is wrong with the settings of topics, each line once."""

    def __init__(self) -> None:
        self._lines: set[str] = set()

    def log(self, error: ConfigInvalid) -> None:
        """Log the error unless it was logged before."""
        if str(error) not in self._lines:
            self._lines.add(str(error))
            logger.error("%s; the table is not written until its settings are right", error)


def _run(arguments: argparse.Namespace) -> int:
    """Write the tables. Raises ConfigInvalid, ConnectError."""
    from odradek.broker.log_output import configure_logging

    find = _find(arguments, _Invalid().log)
    configure_logging("info", "text")
    clients = client_settings(arguments, CONSUMER_DEFAULTS)
    with client_log("tables"):
        failures = asyncio.run(_serve(find, clients, once=arguments.once, looks_again=arguments.warehouse is not None))
    if failures:
        raise CommandError("; ".join(f"table {name}: {error}" for name, error in failures.items()))
    return 0


async def _serve(
    find: FindTables, clients: Mapping[str, Any], *, once: bool, looks_again: bool
) -> dict[str, ConnectError]:
    from odradek.tables.process import run_found_tables

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if not once:
        print(f"odradek tables ready tables={','.join(await find())}", flush=True)
    return await run_found_tables(find, clients, stopping, show_commit, once=once, looks_again=looks_again)


def show_commit(table: str, written: Written, ends: Mapping[int, int]) -> None:
    """Print what a commit has written."""
    positions = ",".join(f"{partition}:{end}" for partition, end in sorted(ends.items()))
    counts = f"rows={written.rows} deleted={written.deleted} bad={written.bad}"
    print(f"committed table={table} {counts} offsets={positions}", flush=True)
