"""./dev bench clients: Odradek's client beside aiokafka, confluent-kafka and kafka-python, on both brokers.

Each measurement is a process of its own; its CPU is user and system time from the first record to the last, connections
of consumers included. Figures are medians over the rounds; the clients take turns within a round, another one first in
each. Ratios are medians of the ratios within a turn. Records that wait for their answers: see `synchronous`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench.cases import topics
from bench.clients import synchronous
from bench.clients.drivers import DRIVERS, PARTITIONS, Task, confluent_produce, run
from bench.servers import NAMES, Running, Server, processes

CASES = {
    "100 B": (500_000, 100, "plain"),
    "1 KB": (100_000, 1_000, "plain"),
    "100 B keyed": (300_000, 100, "keyed"),
    "100 B full": (200_000, 100, "full"),
}
"""Records, bytes of a value, shape. Keyed ones have a key of 14 bytes, full ones also two headers and a timestamp."""
WORKS = ("produce", "send table", "one by one", "in lists", "in batches", "in tables")
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
    synchronous.WORK: (Aim("confluent", 1.3),),
    synchronous.WORK_IN_A_THREAD: (),
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


class Measurement:
    """The figures of a run, one of each for every turn of a case."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self.figures: dict[Key, list[float]] = {}

    def of_broker(self, name: str, broker: Running, turn: int) -> None:
        args, bootstrap = self._args, broker.bootstrap
        for label in args.case if args.work else ():
            for repeat in range(args.repeat):
                self._case(name, bootstrap, label, turn * args.repeat + repeat)
        if args.synchronous:
            apart = keep_apart(broker) if args.apart else None
            with topics.fresh(bootstrap, 1) as topic:
                for work, client, found in synchronous.measure(bootstrap, topic, 100, args.client, args.blocks, apart):
                    self._note(name, f"{work}, 100 B", client, found)

    def _case(self, name: str, bootstrap: str, label: str, turn: int) -> None:
        args = self._args
        records, size, shape = CASES[label]
        count = max(1_000, int(records * args.scale))
        first = turn % len(args.client)
        clients = args.client[first:] + args.client[:first]
        with topics.fresh(bootstrap, PARTITIONS) as filled:
            reading = Task(bootstrap, filled, count, size, shape, check_crcs=args.check_crcs)
            confluent_produce(reading)
            for work in args.work:
                for client in (each for each in clients if work in DRIVERS.get(each, ())):
                    if work in ("produce", "send table"):
                        with topics.fresh(bootstrap, PARTITIONS) as topic:
                            found = measured(client, work, Task(bootstrap, topic, count, size, shape))
                    else:
                        found = measured(client, work, reading)
                    if work in RATES:
                        found["per second of CPU"] = count / found["cpu"]
                    self._note(name, f"{work}, {label}", client, found)

    def _note(self, name: str, case: str, client: str, found: dict[str, float]) -> None:
        for figure, value in found.items():
            self.figures.setdefault((name, case, client, figure), []).append(value)
        shown = ", ".join(
            f"{value:,.0f} records {figure}" if "per" in figure else f"{figure} {value:.6g} s"
            for figure, value in found.items()
        )
        print(f"  {name:8} {case:18} {client:13} {shown}", file=sys.stderr, flush=True)


def keep_apart(broker: Running) -> set[int]:
    """Leave the upper half of the processors to the clients, and return it."""
    available = sorted(os.sched_getaffinity(0))
    half = len(available) // 2
    if not half:
        raise SystemExit("--apart needs two processors")
    for process in processes(broker.pid):
        for thread in Path(f"/proc/{process}/task").iterdir():
            os.sched_setaffinity(int(thread.name), available[:half])
    return set(available[half:])


def ratio(ours: list[float], theirs: list[float]) -> float:
    """How many times theirs ours is, at the same moments: the machine is faster and slower by turns."""
    return median(mine / other for mine, other in zip(ours, theirs, strict=True))


def show(figures: dict[Key, list[float]], clients: list[str]) -> None:
    table = Table(title="seconds, medians; of a record where they wait for each other", title_justify="left")
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
        judged = figure == ("p50" if work == synchronous.WORK else "cpu")
        ratios = [
            (aim, ratio(figures[broker, case, OURS, figure], figures[broker, case, aim.client, figure]))
            for aim in AIMS[work]
            if judged and OURS in values and aim.client in values
        ]
        verdicts = [
            f"{times:.2f} × {aim.client} (≤ {aim.ratio:g}: {'met' if times <= aim.ratio else 'MISSED'})"
            for aim, times in ratios
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
    parser.add_argument("--client", nargs="+", choices=list(synchronous.PROGRAMS), default=list(synchronous.PROGRAMS))
    parser.add_argument("--case", nargs="+", choices=list(CASES), default=list(CASES), help="these records alone")
    parser.add_argument("--work", nargs="*", choices=WORKS, default=list(WORKS), help="this work alone")
    parser.add_argument("--repeat", type=int, default=1, help="turns of each case within a round")
    parser.add_argument("--synchronous", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--blocks", type=int, default=10, help=f"of {synchronous.BLOCK_RECORDS} records that wait, in a round"
    )
    parser.add_argument(
        "--apart",
        action="store_true",
        help="records that wait: broker and clients on different processors, as on different machines; else the "
        "scheduler puts both on one processor for a while, where a round trip takes half as long",
    )
    parser.add_argument(
        "--check-crcs", action=argparse.BooleanOptionalAction, default=True, help="whether consumers verify checksums"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="every round's figures")
    parser.add_argument("--one", nargs=7, help=argparse.SUPPRESS)
    parser.add_argument("--serve", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        client, work, bootstrap, topic, records, size, shape = args.one
        task = Task(bootstrap, topic, int(records), int(size), shape, check_crcs=args.check_crcs)
        print(json.dumps(run(client, work, task)))
        return 0
    if args.serve:
        client, work, bootstrap, topic, size = args.serve
        synchronous.serve(client, work, Task(bootstrap, topic, 0, int(size)))
        return 0
    measurement = Measurement(args)
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
        for name in [args.only] if args.only else NAMES:
            with Server(name) as server:
                measurement.of_broker(name, server.running, number)
    figures = measurement.figures
    show(figures, args.client)
    if args.json:
        args.json.write_text(json.dumps({" / ".join(key): values for key, values in figures.items()}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
