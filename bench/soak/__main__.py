"""./dev bench soak: a broker under steady work for an hour, or as long as wanted.

A producer and a consumer at a fixed rate, transactions of which every tenth is aborted, and topics, groups and
connections that come and go; segments are small, so that retention deletes all the time. Memory, open descriptors,
processor time, holds of the event loop of 20 ms or more, and latency from producer to consumer are printed over time.
What is larger in the last third than in the second grows; then the status is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from bench.load import (
    LIMIT_CORES,
    Processors,
    commit_id,
    load_line,
    look,
    machine,
    others_between,
    others_now,
    too_busy,
)
from bench.peers.broker import BrokerProcess
from bench.servers import cpu_seconds, rss_mb
from bench.soak.samples import FEWEST, Sample, line_of, mark_of, table_of, verdicts
from bench.soak.work import PARTITIONS

MINUTES: Final = 60.0
RATE: Final = 2000
WINDOW_SECONDS: Final = 10.0
SETTINGS: Final = {
    "num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "log.retention.check.interval.ms": 10_000,
    "log.segment.delete.delay.ms": 10_000,
    "odradek.slow.loop.ms": 20,
    "odradek.http.listener": "127.0.0.1:0",
}
TOPIC: Final = {"segment.bytes": str(8 << 20), "retention.bytes": str(32 << 20)}
HOLDS: Final = "odradek_event_loop_holds_total "


def holds_of(metrics: str) -> int:
    """Holds of the event loop since the start, in the broker's metrics."""
    return sum(int(float(line.split()[1])) for line in metrics.splitlines() if line.startswith(HOLDS))


@contextmanager
def working(name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process of work.py."""
    command = [sys.executable, "-m", "bench.soak.work", name, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def _machine_now() -> Processors:
    """The processor time of the machine, and of this process with all that it started, ended or not."""
    return look()._replace(own=cpu_seconds(os.getpid()))


class Watcher:
    """Samples of a broker, one after the other."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._begun = self._at = time.monotonic()
        self._cpu = cpu_seconds(broker.pid)
        self._machine = _machine_now()
        self._holds = 0

    def sample(self, flow: dict[str, float]) -> Sample:
        """The window that ends now; `flow` is what the consumer saw in it."""
        pid, now = self._broker.pid, time.monotonic()
        cpu, machine = cpu_seconds(pid), _machine_now()
        with urllib.request.urlopen(f"http://{self._broker.http}/metrics") as answer:
            holds = holds_of(answer.read().decode())
        found = Sample(
            (now - self._begun) / 60,
            rss_mb(pid),
            len(os.listdir(f"/proc/{pid}/fd")),
            100 * (cpu - self._cpu) / (now - self._at),
            holds - self._holds,
            int(flow["records"]),
            flow["p50"],
            flow["p99"],
            flow["most"],
            others_between(self._machine, machine),
        )
        self._at, self._cpu, self._machine, self._holds = now, cpu, machine, holds
        return found


def soak(seconds: float, window: float, rate: int) -> list[Sample]:
    """Raises RuntimeError when a part of the work ends."""
    samples: list[Sample] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="odradek-bench-soak-")))
        broker = stack.enter_context(BrokerProcess(folder / "data", SETTINGS))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        made = admin.create_topics([NewTopic(name, PARTITIONS, 1, config=TOPIC) for name in ("flow", "transactions")])
        for each in made.values():
            each.result(30)
        consumer = stack.enter_context(working("consume", broker.bootstrap, "flow", str(window)))
        others = [
            stack.enter_context(working("produce", broker.bootstrap, "flow", str(rate))),
            stack.enter_context(working("transactions", broker.bootstrap, "transactions")),
            stack.enter_context(working("churn", broker.bootstrap, "")),
        ]
        watcher, until = Watcher(broker), time.monotonic() + seconds
        assert consumer.stdout is not None
        while time.monotonic() < until:
            line = consumer.stdout.readline()
            ended = [each.args for each in (consumer, *others) if each.poll() is not None]
            if ended or not line:
                raise RuntimeError(f"ended: {ended}; the broker's log:\n{broker.log()}")
            samples.append(watcher.sample(json.loads(line)))
            last = samples[-1]
            print(
                f"  {last.minute:6.1f} min  {last.memory_mb:7.1f} MB  {last.descriptors:5} fds  {last.holds:3} holds  "
                f"p99 {last.p99_ms:.1f} ms",
                file=sys.stderr,
                flush=True,
            )
    return samples


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"default: {MINUTES:g}")
    parser.add_argument("--window", type=float, default=WINDOW_SECONDS, help="seconds of a sample (default: 10)")
    parser.add_argument("--rate", type=int, default=RATE, help=f"records per second (default: {RATE})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="commit, load and all samples")
    parser.add_argument("--load-limit", type=float, default=LIMIT_CORES, metavar="CORES")
    parser.add_argument("--any-load", action="store_true", help="run although other programs use more")
    given = parser.parse_args(arguments)
    if given.window <= 0 or given.rate < 1 or given.minutes * 60 < FEWEST * given.window:
        parser.error(
            f"at least {FEWEST} windows of --window seconds have to fit into --minutes, and --rate be positive"
        )
    others = others_now()
    problem = too_busy(others, given.load_limit)
    if problem and not given.any_load:
        print(f"./dev bench soak: {problem}", file=sys.stderr)
        return 1
    print(load_line(others), file=sys.stderr, flush=True)
    samples = soak(given.minutes * 60, given.window, given.rate)
    found = verdicts(samples)
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(table_of(samples))
    for verdict in found:
        console.print(line_of(verdict), highlight=False)
    if mark := mark_of(samples, given.load_limit):
        console.print(mark, highlight=False)
    if given.json:
        content = {
            "commit": commit_id(),
            "machine": machine(),
            "others_before": others,
            "samples": [each._asdict() for each in samples],
            "verdicts": [each._asdict() | {"met": each.is_met} for each in found],
        }
        given.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0 if all(each.is_met for each in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
