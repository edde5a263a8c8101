"""`odradek tables`: topics continuously written into Delta and Iceberg tables, every record once."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.arguments.errors import CommandError, UsageError, client_log
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import add_connection, add_output, client_settings
from odradek.cli.terminal.output import Column, show, show_document
from odradek.client.config import CONSUMER_DEFAULTS

if TYPE_CHECKING:
    from odradek.connect.errors import ConnectError
    from odradek.tables.specification import TableSpec
    from odradek.tables.store import Written

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
    specs = _read(arguments)
    from odradek.connect.errors import ConnectError

    try:
        if arguments.action == "check":
            return _check(specs)
        if arguments.action == "describe":
            return _describe(specs, arguments.output)
        if arguments.action == "offsets":
            return _offsets(specs, arguments.as_of, arguments.output)
    except ConnectError as error:
        raise CommandError(str(error)) from error
    return _run(arguments, specs)


def _read(arguments: argparse.Namespace) -> list[TableSpec]:
    """The tables that are wanted. Raises UsageError."""
    if not arguments.files:
        raise UsageError(f"{arguments.action} needs a file")
    if arguments.secrets is not None and not arguments.secrets.is_dir():
        raise UsageError(f"--secrets {arguments.secrets}: no such folder")
    if arguments.once and arguments.action != "run":
        raise UsageError("--once goes with run only")
    if arguments.as_of is not None and arguments.action != "offsets":
        raise UsageError("--as-of goes with offsets only")
    from odradek.connect.errors import ConfigInvalid
    from odradek.connect.specification import SpecificationError

    try:
        from odradek.tables.specification import read

        found = read(arguments.files, arguments.secrets)
    except (SpecificationError, ConfigInvalid) as error:
        raise UsageError(str(error)) from error
    unknown = [name for name in arguments.table if name not in found]
    if unknown:
        raise UsageError(f"--table {unknown[0]}: the files have {', '.join(found) or 'no tables'}")
    return [spec for name, spec in found.items() if not arguments.table or name in arguments.table]


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


def _run(arguments: argparse.Namespace, specs: list[TableSpec]) -> int:
    from odradek.broker.log_output import configure_logging

    configure_logging("info", "text")
    clients = client_settings(arguments, CONSUMER_DEFAULTS)
    with client_log("tables"):
        failures = asyncio.run(_serve(specs, clients, once=arguments.once))
    if failures:
        raise CommandError("; ".join(f"table {name}: {error}" for name, error in failures.items()))
    return 0


async def _serve(specs: list[TableSpec], clients: Mapping[str, Any], *, once: bool) -> dict[str, ConnectError]:
    from odradek.tables.process import run_tables

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if not once:
        print(f"odradek tables ready tables={','.join(each.name for each in specs)}", flush=True)
    return await run_tables(specs, clients, stopping, _show_commit, once=once)


def _show_commit(table: str, written: Written, ends: Mapping[int, int]) -> None:
    positions = ",".join(f"{partition}:{end}" for partition, end in sorted(ends.items()))
    counts = f"rows={written.rows} deleted={written.deleted} bad={written.bad}"
    print(f"committed table={table} {counts} offsets={positions}", flush=True)
