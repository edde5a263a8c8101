"""./dev bench: Odradek beside Apache Kafka 4.3.0 in one run.

Each round starts each broker once, fresh and alone, in alternating order, and runs the cases against it with the same
client and settings. Figures are medians over the rounds. Neither broker calls fsync. Needs Linux.

Processor seconds per gigabyte and per request are the primary figures: rates depend on what else runs. What other
programs use of the machine is printed before each run and saved. Above the limit no run begins, unless --any-load is
given; a run during which they used more is marked.
"""

import argparse
import importlib
import json
import math
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import history
from bench.load import (
    LIMIT_CORES,
    RunLoad,
    commit_id,
    load_line,
    look,
    machine,
    others_between,
    others_now,
    too_busy,
)
from bench.metrics import METRICS, SPARK_PARTS, Row, summary
from bench.servers import NAMES, Running, Server, rss_mb

CASES = {
    "start": "time from the start of the process to the first answer, and idle memory (always measured)",
    "throughput": "produce and consume 2 M x 1,000 B, and the broker's CPU for it",
    "one_record": "one-record requests per second, 1,000 in flight",
    "synchronous": "round trips of 100-byte records, one at a time",
    "end_to_end": "open-loop latency at 10,000 x 1 KB/s, acks=all",
    "transactions": "transactions of 1, 10 and 100 records one after the other, and read_committed consumption",
    "parallel_transactions": "transactions of 1 and 10 records by eight producers at the same time",
    "groups": "rebalances of 2, 50 and 500 members of both protocols, and offset commits per second",
    "metadata": "answers about one topic of 1,000 partitions and ten of them, and memory per connection",
    "load_curve": "open-loop latency at 10 to 90 % of saturation and at equal rates (not run unless named)",
    "partitions": "1,000 partitions x 10 segments: memory, start after a stop and after kill -9 (not run unless named)",
    "compaction": "MB/s of compacting a 2 GB log, and a producer's latency beside it (not run unless named)",
    "slow_disk": "a producer beside a saturated disk and a lagging reader (not run unless named)",
    "cluster": "three brokers: throughput, latency, write gaps when one goes (not run unless named)",
    "quorum": "three controllers: a topic and a write after the active one goes (not run unless named)",
    "cores": "what brokers get per core: 1 and 3 brokers, 1 and 3 copies (not run unless named)",
    "growth": "three brokers: 10 to 5,000 partitions idle, and deaths with 2,000 (not run unless named)",
    "tls": "throughput and CPU over TLS, handshakes, memory of connections (not run unless named)",
    "floods": "a client's latency beside failed logins and half TLS handshakes (not run unless named)",
    "spark": "rows per second through Spark: our data source beside the official connector (not run unless named)",
}
DEFAULT = (
    "throughput",
    "one_record",
    "synchronous",
    "end_to_end",
    "transactions",
    "parallel_transactions",
    "groups",
    "metadata",
)
ON_CLUSTERS = ("cluster", "quorum", "cores", "growth", "tls", "floods")
IDLE_SECONDS = 2.0
Figures = dict[str, dict[str, list[float]]]


def run_case(case: str, broker: Running, args: argparse.Namespace) -> dict[str, float]:
    arguments = [case, broker.name, broker.bootstrap, str(broker.pid), str(args.scale), *args.part]
    done = subprocess.run([sys.executable, "-m", "bench.cases", *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"case {case} failed against {broker.name}")
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def shown(measured: dict[str, float]) -> str:
    return ", ".join(
        f"{name} failed" if math.isnan(value) else f"{name} {value:,.4g} {METRICS[name].unit}"
        for name, value in measured.items()
    )


def run_round(server_name: str, cases: list[str], args: argparse.Namespace) -> dict[str, float]:
    with Server(server_name) as server:
        figures = {"start": server.start_seconds}
        time.sleep(IDLE_SECONDS)
        figures["memory idle"] = rss_mb(server.running.pid)
        for case in cases:
            began = time.monotonic()
            measured = run_case(case, server.running, args)
            figures |= measured
            spent_s = time.monotonic() - began
            print(f"  {server_name:8} {case:12} {spent_s:5.1f} s  {shown(measured)}", file=sys.stderr, flush=True)
        if cases:
            figures["memory loaded"] = rss_mb(server.running.pid)
    return figures


def run_on_cluster(case: str, server_name: str, scale: float) -> dict[str, float]:
    from bench.cases.cluster import run_cluster
    from bench.cases.cores import run_cores
    from bench.cases.floods import run_floods
    from bench.cases.growth import run_growth
    from bench.cases.quorum import run_quorum
    from bench.cases.tls import run_tls

    began = time.monotonic()
    runs = {
        "cluster": run_cluster, "quorum": run_quorum, "cores": run_cores, "growth": run_growth, "tls": run_tls,
        "floods": run_floods,
    }  # fmt: skip
    measured = runs[case](server_name, scale)
    spent_s = time.monotonic() - began
    print(f"  {server_name:8} {case:12} {spent_s:5.1f} s  {shown(measured)}", file=sys.stderr, flush=True)
    return measured


def run_server(name: str, cases: list[str], args: argparse.Namespace) -> dict[str, float]:
    """The figures of one server in one round."""
    single = [case for case in cases if case not in ON_CLUSTERS]
    measured = run_round(name, single, args) if single or not cases else {}
    for case in cases:
        if case in ON_CLUSTERS:
            measured |= run_on_cluster(case, name, args.scale)
    return measured


def measure(args: argparse.Namespace, cases: list[str], others: float) -> tuple[Figures, list[RunLoad]]:
    """The figures, and what other programs used before and during each run; `others` is that before the first one."""
    servers = [args.only] if args.only else list(NAMES)
    figures: Figures = {name: {} for name in servers}
    loads: list[RunLoad] = []
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
        for name in servers if number % 2 == 0 else reversed(servers):
            before = others_now() if loads else others
            print(f"  {name:8} {load_line(before)}", file=sys.stderr, flush=True)
            begun = look()
            measured = run_server(name, cases, args)
            load = RunLoad(f"{name}, round {number + 1}", before, others_between(begun, look()))
            loads.append(load)
            print(f"  {name:8} other programs used {load.during:.2f} cores meanwhile", file=sys.stderr, flush=True)
            for metric, value in measured.items():
                figures[name].setdefault(metric, []).append(value)
    return figures, loads


def number(value: float | None) -> str:
    if value is None:
        return "-"
    if math.isnan(value):
        return "failed"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def show(rows: list[Row], marks: list[str]) -> None:
    table = Table(title="medians, beside a busy machine" if marks else "medians", title_justify="left")
    for column in ("", "unit", "odradek", "kafka", "ratio", "target", "met"):
        table.add_column(column, justify="left" if column in ("", "unit", "target", "met") else "right")
    for row in rows:
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}×"
        met = {True: "yes", False: "NO", None: ""}[row.met]
        table.add_row(row.metric, row.unit, number(row.odradek), number(row.kafka), ratio, row.target, met)
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(table)
    for mark in marks:
        console.print(mark, highlight=False)


def marks_of(loads: list[RunLoad], limit: float) -> list[str]:
    """A line for each run beside which other programs used more than the limit."""
    return [
        f"! {each.run}: other programs used {each.before:.2f} cores before and {each.during:.2f} during it; "
        f"the limit is {limit:g}"
        for each in loads
        if each.most > limit
    ]


def without_nan(value: object) -> object:
    """The content with null where a measurement failed, for which JSON has no number."""
    if isinstance(value, dict):
        return {name: without_nan(each) for name, each in value.items()}
    if isinstance(value, list):
        return [without_nan(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def save(args: argparse.Namespace, figures: Figures, rows: list[Row], loads: list[RunLoad]) -> None:
    """What --json and --record ask for."""
    commit, when = commit_id(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if args.record:
        most = max(each.most for each in loads)
        entry = history.Entry(
            commit, when, machine(), args.scale, args.rounds, round(most, 2), args.load_limit, history.medians(rows)
        )
        history.append(entry)
    if args.json:
        content = {
            "commit": commit,
            "when": when,
            "machine": machine(),
            "scale": args.scale,
            "load_limit": args.load_limit,
            "loads": [each._asdict() for each in loads],
            "marks": marks_of(loads, args.load_limit),
            "rounds": figures,
            "summary": [row._asdict() for row in rows],
        }
        args.json.write_text(json.dumps(without_nan(content), indent=1, ensure_ascii=False) + "\n")


COMMANDS = {
    "leases": "bench.leases",
    "spark-scaling": "bench.spark_scaling",
    "requests": "bench.request_cost",
    "metrics-cost": "bench.metrics_cost",
    "examination": "bench.examination",
    "holds": "bench.holds.__main__",
    "linear": "bench.linear.__main__",
    "scale": "bench.scale",
    "followers": "bench.followers",
    "one-voter": "bench.one_voter",
    "soak": "bench.soak.__main__",
}
"""Measurements with options of their own, which need no second broker: command -> module with its `main`."""
PROGRAMS = ("clients", "console", "observability")
"""Those that run as programs of their own: `python -m bench.NAME`."""


def run_command(name: str, arguments: list[str]) -> int:
    if name != "soak":  # which looks at the load itself
        print(load_line(others_now()), file=sys.stderr, flush=True)
    if name in PROGRAMS:
        return subprocess.run([sys.executable, "-m", f"bench.{name}", *arguments]).returncode
    status: int = importlib.import_module(COMMANDS[name]).main(arguments)
    return status


def parser_of_cases() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./dev bench",
        description=__doc__
        + "\nCases:\n"
        + "\n".join(f"  {name:21} {what}" for name, what in CASES.items())
        + "\n\nThe broker's processor time per request, without sockets: ./dev bench requests --help"
        + "\nHow long single requests and jobs hold the broker's event loop: ./dev bench holds --help"
        + "\nWhat a partition, group, connection or producer costs among many: ./dev bench linear --help"
        + "\nMetadata of 1,000 to 1,000,000 partitions in KRaft: ./dev bench scale --help"
        + "\nPython clients side by side: ./dev bench clients --help"
        + "\nThe console with 10,000 topics, and its search of 10 million records: ./dev bench console --help"
        + "\nA scrape of 10,000 partitions, and the broker's thread per request: ./dev bench observability --help"
        + "\nThe Spark sink's lease server per task and partition: ./dev bench leases --help"
        + "\nAn exactly-once stream on ten nodes, from measured constants: ./dev bench spark-scaling --help"
        + "\nWhat metrics cost per request, beside the same sources without them: ./dev bench metrics-cost --help"
        + "\nWhat a look at each record of a producer's batch costs: ./dev bench examination --help"
        + "\nA broker under steady work for an hour: does anything grow? ./dev bench soak --help"
        + "\nRecorded figures over commits: ./dev bench history --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("case", nargs="*", help=f"default: {' '.join(DEFAULT)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="multiplies the number of records: 0.1 for a quick look"
    )
    parser.add_argument(
        "--part",
        action="append",
        default=[],
        choices=SPARK_PARTS,
        help="of the case spark: measure this part alone; may be given several times",
    )
    parser.add_argument("--only", choices=NAMES, help="measure one broker alone")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="commit, loads, every round's figures and the medians"
    )
    parser.add_argument("--record", action="store_true", help="add the medians to bench/history.jsonl")
    parser.add_argument(
        "--load-limit",
        type=float,
        default=LIMIT_CORES,
        metavar="CORES",
        help=f"what other programs may use of the machine (default: {LIMIT_CORES})",
    )
    parser.add_argument("--any-load", action="store_true", help="run, and mark the figures, if they use more")
    return parser


def main() -> int:
    if sys.argv[1:2] == ["history"]:
        return history.main(sys.argv[2:])
    if sys.argv[1:2] and sys.argv[1] in (*COMMANDS, *PROGRAMS):
        return run_command(sys.argv[1], sys.argv[2:])
    parser = parser_of_cases()
    args = parser.parse_args()
    if unknown := set(args.case) - set(CASES):
        parser.error(f"no case {', '.join(sorted(unknown))}")
    cases = [case for case in args.case or DEFAULT if case != "start"]
    if args.part and cases != ["spark"]:
        parser.error("--part is for the case spark alone")
    others = others_now()
    problem = too_busy(others, args.load_limit)
    if problem and not args.any_load:
        print(f"./dev bench: {problem}", file=sys.stderr)
        return 1
    figures, loads = measure(args, cases, others)
    rows = summary(figures)
    show(rows, marks_of(loads, args.load_limit))
    save(args, figures, rows, loads)
    return 0


if __name__ == "__main__":
    sys.exit(main())
