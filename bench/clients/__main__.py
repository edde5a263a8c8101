"""./dev bench clients: Odradek's client beside aiokafka, confluent-kafka and kafka-python, on both brokers.

Each measurement is a process of its own; its CPU is user and system time from the first record to the last, connections
of consumers included. Figures are medians over the rounds; the clients take turns within a round.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench.cases import topics
from bench.clients.drivers import DRIVERS, PARTITIONS, Task, confluent_produce, run
from bench.servers import NAMES, Server

CASES = {
    "100 B": (500_000, 100, "plain"),
    "1 KB": (100_000, 1_000, "plain"),
    "100 B keyed": (300_000, 100, "keyed"),
    "100 B full": (200_000, 100, "full"),
}
"""Records, bytes of a value, shape. Keyed ones have a key of 14 bytes, full ones also two headers and a timestamp."""
SYNCHRONOUS_RECORDS = 3_000
WORKS = ("produce", "send table", "one by one", "in lists", "in batches", "in tables")
SYNCHRONOUS_WORKS = ("synchronous", "synchronous in a thread")
"""By the face that a client's documentation shows first, and by that for programs without an event loop."""
RATES = {"send table": 2_000_000, "in tables": 2_500_000}
"""Records of 100 B per second of CPU that a work without a counterpart is to reach."""
OURS = "odradek"
Key = tuple[str, str, str, str]
"""Broker, case, client, figure."""


class Aim(NamedTuple):
    """At most so many times the figure of another client."""

    client: str
    ratio: float


AIMS: dict[str, tuple[Aim, ...]] = {
    "produce": (Aim("aiokafka", 0.3), Aim("confluent", 1.5)),
    "one by one": (Aim("aiokafka", 0.35), Aim("confluent", 1.5)),
    "in lists": (),
    "in batches": (Aim("confluent", 1.0),),
    "send table": (),
    "in tables": (),
    "synchronous": (Aim("confluent", 1.3),),
    "synchronous in a thread": (),
}


def measured(client: str, work: str, task: Task) -> dict[str, float]:
    given = ["--one", client, work, task.bootstrap, task.topic, str(task.records), str(task.size), task.shape]
    if not task.check_crcs:
        given.append("--no-check-crcs")
    done = subprocess.run(
        [sys.executable, "-m", "bench.clients", *given], stdout=subprocess.PIPE, text=True, timeout=600
    )
    if done.returncode:
        raise RuntimeError(f"{client} failed to do {work}")
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def measure_broker(name: str, bootstrap: str, args: argparse.Namespace, figures: dict[Key, list[float]]) -> None:
    def note(case: str, client: str, found: dict[str, float]) -> None:
        for figure, value in found.items():
            figures.setdefault((name, case, client, figure), []).append(value)
        shown = ", ".join(
            f"{value:,.0f} records {figure}" if "per" in figure else f"{figure} {value:.6g} s"
            for figure, value in found.items()
        )
        print(f"  {name:8} {case:18} {client:13} {shown}", file=sys.stderr, flush=True)

    for label in args.case if args.work else ():
        records, size, shape = CASES[label]
        count = max(1_000, int(records * args.scale))
        with topics.fresh(bootstrap, PARTITIONS) as filled:
            reading = Task(bootstrap, filled, count, size, shape, check_crcs=args.check_crcs)
            confluent_produce(reading)
            for work in args.work:
                for client in (each for each in args.client if work in DRIVERS[each]):
                    if work in ("produce", "send table"):
                        with topics.fresh(bootstrap, PARTITIONS) as topic:
                            found = measured(client, work, Task(bootstrap, topic, count, size, shape))
                    else:
                        found = measured(client, work, reading)
                    if work in RATES:
                        found["per second of CPU"] = count / found["cpu"]
                    note(f"{work}, {label}", client, found)
    for work in SYNCHRONOUS_WORKS if args.synchronous else ():
        for client in (each for each in args.client if work in DRIVERS[each]):
            with topics.fresh(bootstrap, 1) as topic:
                task = Task(bootstrap, topic, max(300, int(SYNCHRONOUS_RECORDS * args.scale)), 100)
                note(f"{work}, 100 B", client, measured(client, work, task))


def show(figures: dict[Key, list[float]], clients: list[str]) -> None:
    table = Table(title="seconds, medians", title_justify="left")
    for column in ("broker", "case", "", *clients, "aims"):
        table.add_column(column, justify="left" if column in ("broker", "case", "", "aims") else "right")
    rows = dict.fromkeys((broker, case, figure) for broker, case, _, figure in figures)
    for broker, case, figure in rows:
        values = {
            client: median(figures[broker, case, client, figure])
            for client in clients
            if (broker, case, client, figure) in figures
        }
        work = case.rpartition(",")[0]
        judged = figure == ("p50" if work == "synchronous" else "cpu")
        verdicts = [
            f"{values[OURS] / values[aim.client]:.2f} × {aim.client} (≤ {aim.ratio:g}:"
            f" {'met' if values[OURS] <= aim.ratio * values[aim.client] else 'MISSED'})"
            for aim in AIMS[work]
            if judged and OURS in values and aim.client in values
        ]
        if figure == "per second of CPU" and "100 B" in case:
            verdicts = [f"≥ {RATES[work]:,}: {'met' if values[OURS] >= RATES[work] else 'MISSED'}"]
        shown = [f"{values[client]:.3g}" if client in values else "-" for client in clients]
        table.add_row(broker, case, figure, *shown, "\n".join(verdicts))
    Console(width=None if sys.stdout.isatty() else 130).print(table)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench clients", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the number of records")
    parser.add_argument("--only", choices=NAMES, help="one broker alone")
    parser.add_argument("--client", nargs="+", choices=list(DRIVERS), default=list(DRIVERS))
    parser.add_argument("--case", nargs="+", choices=list(CASES), default=list(CASES), help="these records alone")
    parser.add_argument("--work", nargs="*", choices=WORKS, default=list(WORKS), help="this work alone")
    parser.add_argument("--synchronous", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--check-crcs", action=argparse.BooleanOptionalAction, default=True, help="whether consumers verify checksums"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="every round's figures")
    parser.add_argument("--one", nargs=7, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        client, work, bootstrap, topic, records, size, shape = args.one
        task = Task(bootstrap, topic, int(records), int(size), shape, check_crcs=args.check_crcs)
        print(json.dumps(run(client, work, task)))
        return 0
    figures: dict[Key, list[float]] = {}
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
        for name in [args.only] if args.only else NAMES:
            with Server(name) as server:
                measure_broker(name, server.running.bootstrap, args, figures)
    show(figures, args.client)
    if args.json:
        args.json.write_text(json.dumps({" / ".join(key): values for key, values in figures.items()}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
