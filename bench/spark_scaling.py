"""./dev bench spark-scaling: what an exactly-once stream would cost on larger clusters, calculated.

This run measures on this machine, with `local[2]` and a broker of its own: the time of a micro-batch of a few rows, the
processor time of a task and of a row from topic to topic, that of the broker for a row, and that of the lease server
for a lease. The table is calculated from these alone:

    executors      waves of tasks x (a task + its rows), where all executors have a core for each task of a wave
    lease server   leases x the time of one; a task takes a lease of every partition that it writes to
    batch          the time of a small micro-batch + the longer of the two, as leases are passed on while tasks write
    brokers        cores that all brokers together need for this rate

Networks, disks, replication, skew and the scheduler's queue are not in it: it says where the limit is, not what a
cluster will reach.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
from typing import Final, NamedTuple

from bench import leases
from bench.cases import topics
from bench.cases.spark import SMALL_ROWS, Jobs, Shape, session
from bench.servers import Running, Server, cpu_seconds

NODES: Final = (1, 2, 4, 10)
PARTITIONS: Final = (16, 64, 256)
CORES: Final = 4
"""Of a node's executor."""
ROWS_PER_BATCH: Final = 1_000_000
MEASURED_ROWS: Final = 2_000_000
FEW_TASKS: Final = 4
MANY_TASKS: Final = 64
TINY_BATCHES: Final = 25
REPEATS: Final = 3
LEASES: Final = (160, 64, 16)
"""Tasks, partitions, and tasks at a time: a shape of `./dev bench leases`."""


class Constants(NamedTuple):
    """Seconds, measured in one run."""

    batch: float
    """Of the clock, for a micro-batch of a few rows in one partition."""
    task: float
    """Of a core, for a task without its rows: the executor's and the driver's work."""
    row: float
    """Of a core, for a row from topic to topic."""
    broker_row: float
    """Of a broker's core, for a row that is read and written."""
    lease: float
    """Of the lease server's core."""


class Cluster(NamedTuple):
    """A cluster and one micro-batch on it."""

    nodes: int
    cores: int
    partitions: int
    """Of the source and of the target; a task reads one."""
    rows: int
    spread: bool
    """Whether every task writes to all partitions; else each to one, as after a repartition by the partition."""


class Cost(NamedTuple):
    """What a micro-batch takes."""

    leases: int
    executors_s: float
    lease_server_s: float
    batch_s: float
    rows_per_s: float
    broker_cores: float

    @property
    def limit(self) -> str:
        """What decides the time of a batch."""
        fixed_s = self.batch_s - max(self.executors_s, self.lease_server_s)
        if fixed_s >= max(self.executors_s, self.lease_server_s):
            return "a batch's own work"
        return "executors" if self.executors_s >= self.lease_server_s else "lease server"


def cost(constants: Constants, cluster: Cluster) -> Cost:
    """One micro-batch of `cluster.rows` rows."""
    tasks = cluster.partitions
    waves = math.ceil(tasks / (cluster.nodes * cluster.cores))
    executors_s = waves * (constants.task + cluster.rows / tasks * constants.row)
    taken = tasks * (cluster.partitions if cluster.spread else 1)
    lease_server_s = taken * constants.lease
    batch_s = constants.batch + max(executors_s, lease_server_s)
    rows_per_s = cluster.rows / batch_s
    return Cost(taken, executors_s, lease_server_s, batch_s, rows_per_s, rows_per_s * constants.broker_row)


def clusters(cores: int, rows: int) -> list[Cluster]:
    """Those of the table."""
    return [
        Cluster(nodes, cores, partitions, rows, spread)
        for partitions in PARTITIONS
        for nodes in NODES
        for spread in (True, False)
    ]


def table_of(constants: Constants, shapes: list[Cluster]) -> list[str]:
    """Lines of a table in Markdown, with a row for each cluster."""
    names = ["nodes", "cores", "tasks = partitions", "a task writes to", "leases", "executors, s", "lease server, s"]
    names += ["batch, s", "M rows/s", "brokers, cores", "limit"]
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for each in shapes:
        found = cost(constants, each)
        fields = [
            str(each.nodes),
            str(each.nodes * each.cores),
            str(each.partitions),
            "all" if each.spread else "one",
            f"{found.leases:,}",
            f"{found.executors_s:.2f}",
            f"{found.lease_server_s:.2f}",
            f"{found.batch_s:.2f}",
            f"{found.rows_per_s / 1e6:.2f}",
            f"{found.broker_cores:.1f}",
            found.limit,
        ]
        lines.append("| " + " | ".join(fields) + " |")
    return lines


# --- the measurement ---


class Spent(NamedTuple):
    """Processor seconds of one stream."""

    spark: float
    """Of this process's descendants."""
    broker: float


def _alternating(broker: Running, shapes: list[Jobs]) -> list[Spent]:
    """The least that a stream of each shape took. They run in turns, so that none of them warms up the others only."""
    sources = [each.write("odradek") for each in shapes]
    found: list[list[Spent]] = [[] for _ in shapes]
    for number in range(REPEATS + 1):
        for jobs, source, spent in zip(shapes, sources, found, strict=True):
            spark, there = cpu_seconds(os.getpid()), cpu_seconds(broker.pid)
            jobs.stream("odradek", source)
            if number:  # the first one starts Python processes and compiles
                spent.append(Spent(cpu_seconds(os.getpid()) - spark, cpu_seconds(broker.pid) - there))
    return [Spent(min(each.spark for each in spent), min(each.broker for each in spent)) for spent in found]


def measure(broker: Running, rows: int) -> Constants:
    """The constants, with a session and topics of its own."""
    spark = session()
    made: list[Jobs] = []

    def jobs(count: int, partitions: int) -> Jobs:
        made.append(Jobs(spark, broker.bootstrap, Shape(count, 100, partitions, count)))
        return made[-1]

    try:
        tiny = jobs(TINY_BATCHES * 2, 1)
        source = tiny.write("odradek", spark.range(TINY_BATCHES * 2).selectExpr(*SMALL_ROWS))
        done = tiny.stream("odradek", source, 2)[1:]
        batch = statistics.median(each["durationMs"]["triggerExecution"] for each in done) / 1000
        # more rows than the source puts together into one task
        few, many, full = jobs(FEW_TASKS * 200, FEW_TASKS), jobs(MANY_TASKS * 200, MANY_TASKS), jobs(rows, FEW_TASKS)
        less, tasks, more = _alternating(broker, [few, many, full])
        task = max(0.0, (tasks.spark - less.spark) / (MANY_TASKS - FEW_TASKS))
        row = max(0.0, (more.spark - less.spark) / (rows - few.shape.rows))
        broker_row = max(0.0, (more.broker - less.broker) / (rows - few.shape.rows))
    finally:
        spark.stop()
        for each in made:
            for topic in each.topics:
                topics.delete(broker.bootstrap, topic)
    server_s = min(leases.measure(*LEASES)[0] for _ in range(REPEATS))
    return Constants(batch, task, row, broker_row, server_s / (LEASES[0] * LEASES[1]))


def main(given: list[str]) -> int:
    """Measure the constants and print the table."""
    parser = argparse.ArgumentParser(
        prog="./dev bench spark-scaling", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cores", type=int, default=CORES, help=f"cores of a node (default: {CORES})")
    parser.add_argument(
        "--rows", type=int, default=ROWS_PER_BATCH, help=f"rows of a micro-batch (default: {ROWS_PER_BATCH:,})"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the rows that are measured")
    arguments = parser.parse_args(given)
    with Server("odradek") as server:
        constants = measure(server.running, max(10_000, int(MEASURED_ROWS * arguments.scale)))
    print(
        f"a batch {constants.batch * 1e3:.0f} ms, a task {constants.task * 1e3:.1f} ms, "
        f"a row {constants.row * 1e6:.2f} µs, "
        f"the broker {constants.broker_row * 1e6:.2f} µs per row, a lease {constants.lease * 1e6:.0f} µs"
    )
    print("\n".join(table_of(constants, clusters(arguments.cores, arguments.rows))))
    return 0
