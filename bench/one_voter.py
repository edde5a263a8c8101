"""./dev bench one-voter: one node whose metadata are in SQLite, beside the same node as the only voter of a quorum.

Both forms take turns. Each turn starts a new node on an empty directory, starts it again after a stop and after
kill -9, and creates topics one after the other, many in one request, and one with many partitions. `serve` formats the
directory of the first form by itself; that of the other one is formatted beforehand, and not timed. Medians over the
turns.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.peers.broker import READY, first_line
from bench.servers import cpu_seconds, free_port, rss_mb
from odradek.client.admin.blocking_admin import BlockingAdmin
from odradek.client.admin.topics import NewTopic

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
FORMS = ("SQLite", "one voter")
_ONE_BY_ONE = 200
_AT_ONCE = 1000
_PARTITIONS = 1000
_IDLE_SECONDS = 5.0
Figures = dict[str, float]


def _odradek(*words: str) -> list[str]:
    return [sys.executable, "-m", "odradek.cli.main", *words]


class Node:
    """A node on a directory of its own."""

    def __init__(self, form: str, folder: Path) -> None:
        self._port, controller = free_port(), free_port()
        self._file = folder / "server.properties"
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "log.dirs": folder / "data",
            "odradek.health.free.space.min.percent": 0,
        }
        if form == "one voter":
            settings |= {
                "process.roles": "broker,controller",
                "node.id": 1,
                "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{controller}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
                "offsets.topic.replication.factor": 1,
                "transaction.state.log.replication.factor": 1,
                "transaction.state.log.min.isr": 1,
            }
        self._file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        if form == "one voter":
            words = ("storage", "format", "-t", CLUSTER, "-c", str(self._file), "--standalone")
            subprocess.run(_odradek(*words), check=True, stdout=subprocess.DEVNULL)
        self._log = (folder / "log").open("ab")

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> float:
        """Seconds until the ready line."""
        began = time.perf_counter()
        self._process = subprocess.Popen(_odradek("serve", str(self._file)), stdout=subprocess.PIPE, stderr=self._log)
        line = first_line(self._process, 60)
        if not READY.match(line):
            raise RuntimeError(f"not ready: {line!r}, see {self._log.name}")
        return time.perf_counter() - began

    def end(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        self._process.wait(60)

    def idle(self) -> tuple[float, float]:
        """Processor seconds in a second without work, and MB."""
        time.sleep(1)
        before = cpu_seconds(self._process.pid)
        time.sleep(_IDLE_SECONDS)
        return (cpu_seconds(self._process.pid) - before) / _IDLE_SECONDS, rss_mb(self._process.pid)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _topics(node: Node) -> Figures:
    with BlockingAdmin(bootstrap_servers=node.bootstrap) as admin:
        one = [_timed(partial(admin.create_topics, [NewTopic(f"one-{n}", 1, 1)])) for n in range(_ONE_BY_ONE)]
        many = _timed(lambda: admin.create_topics([NewTopic(f"many-{n}", 1, 1) for n in range(_AT_ONCE)]))
        large = _timed(lambda: admin.create_topics([NewTopic("large", _PARTITIONS, 1)]))
    return {
        "one topic, ms": median(one) * 1e3,
        f"{_AT_ONCE} topics in one request, ms": many * 1e3,
        f"a topic of {_PARTITIONS} partitions, ms": large * 1e3,
    }


def turn(form: str) -> Figures:
    """All figures of one form."""
    with tempfile.TemporaryDirectory(prefix="odradek-bench-one-voter-") as folder:
        node = Node(form, Path(folder))
        found = {"first start, ms": node.start() * 1e3}
        used, memory = node.idle()
        found |= {"idle processor, ms a second": used * 1e3, "idle memory, MB": memory}
        node.end(signal.SIGTERM)
        found["start after a stop, ms"] = node.start() * 1e3
        node.end(signal.SIGKILL)
        found["start after kill -9, ms"] = node.start() * 1e3
        found |= _topics(node)
        node.end(signal.SIGTERM)
        found["start with 2,201 partitions, ms"] = node.start() * 1e3
        node.end(signal.SIGTERM)
        return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench one-voter", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=5, help="of each form (default: 5)")
    given = parser.parse_args(arguments)
    turns: dict[str, list[Figures]] = {form: [] for form in FORMS}
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    for _ in range(given.turns):
        for form in FORMS:
            turns[form].append(turn(form))
    table = Table(title=f"one node, {given.turns} turns ({load})", title_justify="left")
    for column in ("", *FORMS):
        table.add_column(column, justify="right" if column else "left")
    for name in turns[FORMS[0]][0]:
        table.add_row(name, *(f"{median(each[name] for each in turns[form]):,.1f}" for form in FORMS))
    Console(width=None if os.isatty(1) else 110).print(table)
    return 0
