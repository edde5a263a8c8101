"""`odradek top`: brokers, topics and groups by rate and lag, repeatedly; keys sort and filter on a terminal."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.actions.broker_cpu import BrokerCpu, parse_addresses
from odradek.cli.actions.top_view import COLUMNS, FIRST_SORT, KEYS, VIEWS, TopView, with_short_rates
from odradek.cli.arguments.errors import UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import add_admin, positive, seconds
from odradek.cli.session import run_admin
from odradek.cli.terminal.output import DOCUMENTS, Column, is_terminal, show, show_document

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.reports.activity import Sample

ENDS_WITH_ITS_READER: Final = True
"""See `odradek.cli.main.execute`."""
INTERVAL_S: Final = 2.0

Rows = Mapping[str, Sequence[Mapping[str, Any]]]
"""Rows by the name of a view."""

EXAMPLES: Final = """
# measure for one second, and print brokers, topics and groups
odradek top -n 1 --interval 1
# brokers with their processor time, from the HTTP listener of broker 1
odradek top --view brokers --metrics 1=127.0.0.1:9644 -n 1 --interval 1
# the groups with the most lag, for a program
odradek top --view groups --sort lag -n 1 --interval 1 -o json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--view", choices=VIEWS, help="show only these (default on a terminal: topics, else all)")
    parser.add_argument("--sort", metavar="COLUMN", help="sort the --view by this column of -o json")
    parser.add_argument("--filter", default="", metavar="TEXT", help="show rows whose name contains the text")
    parser.add_argument("--rows", type=positive, default=20, metavar="N", help="rows per table (default: 20)")
    parser.add_argument("-n", "--iterations", type=positive, metavar="N", help="end after N results")
    parser.add_argument(
        "--interval",
        type=seconds,
        default=INTERVAL_S,
        metavar="SECONDS",
        help=f"time between samples (default: {INTERVAL_S:g})",
    )
    parser.add_argument(
        "--metrics",
        action="append",
        default=[],
        metavar="ID=HOST:PORT",
        help="HTTP listener of the broker with this id, which knows its processor time: the column CPU (repeatable)",
    )
    add_admin(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Show results until -n or Ctrl-C; on a terminal also until the key q."""
    view = first_view(arguments)
    cpu = BrokerCpu(parse_addresses(arguments.metrics))
    work = _on_terminal if is_terminal(sys.stdout) and arguments.output is None else _in_lines
    run_admin(arguments, lambda admin: work(admin, arguments, view, cpu))
    return 0


def first_view(arguments: argparse.Namespace) -> TopView:
    """The view that the options describe. Raises UsageError."""
    view = TopView(arguments.view or "topics", filter=arguments.filter)
    if arguments.sort is None:
        return view
    if arguments.view is None:
        raise UsageError("--sort needs --view")
    known = [each.key for each in COLUMNS[view.view]]
    if arguments.sort not in known:
        raise UsageError(f"--sort {arguments.sort}: {', '.join(known)} expected")
    return view._replace(sorts={**FIRST_SORT, view.view: arguments.sort})


async def _rows(admin: Admin, cpu: BrokerCpu, before: Sample | None) -> tuple[Sample, Rows]:
    from odradek.client.reports.activity import broker_rows, group_rows, sample_cluster, topic_rows

    now = await sample_cluster(admin, time.monotonic())
    percents = await cpu.measure()
    return now, {
        "brokers": [{**row, "cpu_percent": percents.get(row["broker"])} for row in broker_rows(before, now)],
        "topics": topic_rows(before, now),
        "groups": group_rows(before, now),
    }


def _columns(view: str, arguments: argparse.Namespace) -> list[Column]:
    """The columns of a table: processor time only where it can be known."""
    return [each for each in COLUMNS[view] if each.key != "cpu_percent" or arguments.metrics]


async def _in_lines(admin: Admin, arguments: argparse.Namespace, view: TopView, cpu: BrokerCpu) -> None:
    """Print a result after each interval: the first sample has no rates."""
    sample, _ = await _rows(admin, cpu, None)
    views = VIEWS if arguments.view is None else (arguments.view,)
    shown = 0
    while arguments.iterations is None or shown < arguments.iterations:
        await asyncio.sleep(arguments.interval)
        sample, rows = await _rows(admin, cpu, sample)
        chosen = {each: view.chosen(rows[each], each)[: arguments.rows] for each in views}
        if arguments.output in DOCUMENTS:
            show_document(chosen, "json" if arguments.output == "jsonl" else arguments.output)
        else:
            for number, each in enumerate(views):
                if number and arguments.output != "tsv":
                    print()
                show([with_short_rates(row) for row in chosen[each]], _columns(each, arguments), arguments.output)
        sys.stdout.flush()
        shown += 1


async def _on_terminal(admin: Admin, arguments: argparse.Namespace, view: TopView, cpu: BrokerCpu) -> None:
    """Redraw in place after each sample and each key."""
    from rich.console import Console
    from rich.live import Live

    from odradek.cli.terminal.keys import can_read_keys, keys, no_keys

    sample, rows = await _rows(admin, cpu, None)
    shown = 0
    with (
        (keys if can_read_keys() else no_keys)() as pressed,
        Live(console=Console(file=sys.stdout), auto_refresh=False, vertical_overflow="crop") as live,
    ):
        while arguments.iterations is None or shown < arguments.iterations:
            _draw(live, view, rows, arguments)
            due = time.monotonic() + arguments.interval
            while (left := due - time.monotonic()) > 0:
                try:
                    view = view.press(await asyncio.wait_for(pressed.get(), left))
                except TimeoutError:
                    break
                if view.has_ended:
                    return
                _draw(live, view, rows, arguments)
            sample, rows = await _rows(admin, cpu, sample)
            shown += 1
        _draw(live, view, rows, arguments)


def _draw(live: Any, view: TopView, rows: Rows, arguments: argparse.Namespace) -> None:
    from rich.text import Text

    from odradek.cli.terminal.watching import drawn

    def look() -> int:
        order = f"by {view.sorts[view.view]}{', reversed' if view.is_reversed else ''}"
        typed = f"filter: {view.typing}_" if view.typing is not None else f"filter: {view.filter or '-'}"
        print(f"{view.view} {order}   {typed}   {KEYS}")
        show(
            [with_short_rates(row) for row in view.chosen(rows[view.view])[: arguments.rows]],
            _columns(view.view, arguments),
            None,
        )
        return 0

    live.update(Text.from_ansi(drawn(look), no_wrap=True, overflow="ellipsis"), refresh=True)
