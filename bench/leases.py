"""./dev bench leases: the processor time of the Spark sink's lease server for one lease.

Tasks that all have rows for all partitions take turns, as many at a time as there are cores: the worst case, which a
shuffle by partition avoids. The figure is the time of the server's process from the first task's joining to the last
one's leaving, divided by the leases; what it takes to start is not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from odradek.spark.lease_connections import Connections
from odradek.spark.leases import Address, LeaseServer

SHAPES = ((160, 64, 160), (160, 64, 16), (1000, 64, 100), (10, 4, 2))
"""Tasks, partitions, and tasks at a time."""
ROWS_S = 0.002
"""For so long a task has a lease: until its rows are acknowledged."""


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def run_task(worker: Connections, address: Address, number: int, names: list[str]) -> None:
    """One task: a lease of every partition, as many at a time as are free."""
    client = await worker.join(address, number)
    wanted = names[number % len(names) :] + names[: number % len(names)]
    while wanted:
        granted = [name for name, _ in await client.acquire(wanted)]
        wanted = [name for name in wanted if name not in granted]
        await asyncio.sleep(ROWS_S)
        for name in granted:
            client.release(name, 10)
    await client.leave()
    client.close()


async def run_tasks(address: Address, tasks: int, partitions: int, at_once: int) -> None:
    """All tasks of a write, a few at a time. Raises LeaseError."""
    names = [f"page-views-{each}" for each in range(partitions)]
    workers = [Connections() for _ in range(at_once)]

    async def run(number: int) -> None:
        worker = await idle.get()
        await run_task(worker, address, number, names)
        idle.put_nowait(worker)

    idle: asyncio.Queue[Connections] = asyncio.Queue()
    for each in workers:
        idle.put_nowait(each)
    await asyncio.gather(*map(run, range(tasks)))
    written = await workers[0].complete(address)
    for each in workers:
        each.close()
    assert written == dict.fromkeys(names, tasks * 10), written


def measure(tasks: int, partitions: int, at_once: int) -> tuple[float, float]:
    """Seconds of the server's processor, and of the clock."""
    server = LeaseServer("127.0.0.1", os.getpid())
    try:
        address, _ = server.open_batch("bench")
        cpu, clock = cpu_seconds(server.process_id), time.perf_counter()
        asyncio.run(run_tasks(address, tasks, partitions, at_once))
        return cpu_seconds(server.process_id) - cpu, time.perf_counter() - clock
    finally:
        server.close()


def main(given: list[str]) -> int:
    """Print a table, the best of the repetitions for each shape."""
    parser = argparse.ArgumentParser(prog="./dev bench leases", description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3, help="runs of each shape; the best counts (default: 3)")
    arguments = parser.parse_args(given)
    table = Table("tasks", "partitions", "at a time", "leases", "server, µs per lease", "server, s", "in all, s")
    for shape in SHAPES:
        cpu, clock = min(measure(*shape) for _ in range(arguments.repeat))
        leases = shape[0] * shape[1]
        table.add_row(*map(str, shape), f"{leases:,}", f"{cpu / leases * 1e6:.0f}", f"{cpu:.2f}", f"{clock:.2f}")
    Console().print(table)
    return 0
