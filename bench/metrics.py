"""What is measured, in which direction it is good, and what Odradek should reach beside Apache Kafka."""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple


class Metric(NamedTuple):
    """`ratio` is the target of odradek/kafka: at least for what should be high, at most for what should be low.

    A figure that is not a number is a measurement that failed.
    """

    name: str
    unit: str
    more_is_better: bool
    ratio: float | None = None
    limit: float | None = None  # target of odradek's own figure

    def met(self, ours: float, theirs: float | None) -> bool | None:
        """None where there is no target, or nothing to compare with."""
        if math.isnan(ours):
            return False
        verdicts = []
        if self.ratio is not None and theirs and not math.isnan(theirs):
            verdicts.append(ours / theirs >= self.ratio if self.more_is_better else ours / theirs <= self.ratio)
        if self.limit is not None:
            verdicts.append(ours >= self.limit if self.more_is_better else ours <= self.limit)
        return all(verdicts) if verdicts else None


METRICS = {
    m.name: m
    for m in (
        Metric("start", "s", False, 0.15, 0.4),
        Metric("memory idle", "MB", False, 0.12),
        Metric("produce", "MB/s", True, 2.5),
        Metric("CPU in", "s/GB", False, 0.35),
        Metric("consume", "MB/s", True, 1.2),
        Metric("CPU out", "s/GB", False, 0.35),
        Metric("CPU in + out", "s/GB", False, 0.35),
        Metric("TLS produce", "MB/s", True, 1.5),
        Metric("TLS CPU in", "s/GB", False, 0.45),
        Metric("TLS consume", "MB/s", True, 1.3),
        Metric("TLS CPU out", "s/GB", False, 0.30),
        Metric("plain CPU in", "s/GB", False),
        Metric("plain CPU out", "s/GB", False),
        Metric("CPU per full handshake", "ms", False, None, 1.1),
        Metric("CPU per resumed handshake", "ms", False),
        Metric("idle TLS connection", "KB", False, None, 20),
        Metric("TLS connection after 1 MB", "KB", False, None, 20),
        Metric("no flood p99", "ms", False),
        Metric("failed logins", "1/s", True),
        Metric("failed logins p99", "ms", False, None, 20),
        Metric("half handshakes", "", True),
        Metric("half handshakes p99", "ms", False, None, 20),
        Metric("half handshakes memory", "MB", False),
        Metric("one-record requests", "1/s", True, 4.0),
        Metric("synchronous p50", "µs", False, 0.7),
        Metric("synchronous p99", "µs", False, 0.6),
        Metric("flush p50", "µs", False, 0.7),
        Metric("flush p99", "µs", False, 0.6),
        Metric("end to end p50", "ms", False),
        Metric("end to end p99", "ms", False, 0.4),
        Metric("end to end p99.9", "ms", False),
        Metric("first transactions", "1/s", True),
        *(
            metric
            for size in (1, 10, 100)
            for metric in (
                Metric(f"transactions of {size}", "1/s", True, 4.0),
                Metric(f"transaction of {size} p50", "ms", False),
                Metric(f"transaction of {size} p99", "ms", False),
                Metric(f"CPU per transaction of {size}", "ms", False),
            )
        ),
        *(
            metric
            for size in (1, 10)
            for metric in (
                Metric(f"8 producers, transactions of {size}", "1/s", True, 4.0),
                Metric(f"8 producers, transaction of {size} p99", "ms", False),
                Metric(f"8 producers, CPU per transaction of {size}", "ms", False),
            )
        ),
        Metric("consume committed", "MB/s", True),
        Metric("saturation", "1/s", True),
        Metric("saturation CPU", "µs", False),
        Metric("saturation client CPU", "µs", False),
        *(
            Metric(f"{load} {figure}", unit, False)
            for load in (
                *(f"{share} % load" for share in (10, 30, 50, 70, 90)),
                *(f"{rate:,}/s" for rate in (20_000, 60_000, 100_000, 140_000, 180_000)),
            )
            for figure, unit in (("p50", "ms"), ("p99", "ms"), ("p99.9", "ms"), ("CPU", "µs"), ("client CPU", "µs"))
        ),
        *(
            Metric(f"rebalance {size} {protocol}", "s", False, 1.0)
            for protocol in ("classic", "consumer")
            for size in (2, 50, 500)
        ),
        Metric("offset commits", "1/s", True, 3.0),
        Metric("offset commits one by one", "1/s", True, 3.0),
        Metric("CPU per offset commit", "µs", False),
        Metric("metadata of 1,000 partitions", "ms", False, 1.0),
        Metric("metadata of 10,000 partitions", "ms", False, 1.0),
        Metric("memory per connection", "KB", False, 1.0),
        Metric("memory loaded", "MB", False, 0.12),
        Metric("memory per partition", "KB", False, None, 4),
        Metric("memory per used partition", "KB", False),
        Metric("descriptors per partition", "", False),
        Metric("start, killed", "s", False, 0.1),
        Metric("all led, killed", "s", False),
        Metric("start, stopped", "s", False, 0.1),
        Metric("all led, stopped", "s", False),
        Metric("compaction", "MB/s", True, 1.0),
        Metric("compacting p99", "ms", False),
        Metric("compacting max", "ms", False),
        Metric("quiet disk p99", "ms", False),
        Metric("slow disk p50", "ms", False),
        Metric("slow disk p99", "ms", False),
        Metric("slow disk p99.9", "ms", False),
        Metric("slow disk max", "ms", False),
        Metric("cluster up", "s", False, None, 1.5),
        Metric("memory per broker", "MB", False, None, 100),
        Metric("acks=all, cold", "MB/s", True, 1.5),
        Metric("acks=all, warm", "MB/s", True, 5.0),
        Metric("CPU acks=all", "s/GB", False, None, 2.5),
        Metric("of it the kernel's", "s/GB", False),
        Metric("cluster consume", "MB/s", True, 1.5),
        Metric("100 B, acks=all", "1/s", True, 1.5),
        Metric("100 B, acks=1", "1/s", True, 1.5),
        Metric("acks=all p50", "µs", False, 0.3),
        Metric("acks=all p99", "µs", False, 0.3),
        *(
            metric
            for shape in ("1 broker, RF 1", "3 brokers, RF 1", "3 brokers, RF 3")
            for metric in (
                Metric(f"{shape}, in", "MB/s", True),
                Metric(f"{shape}, in per core", "MB/s", True),
                Metric(f"{shape}, out per core", "MB/s", True),
            )
        ),
        Metric("write gap, kill -9", "ms", False, None, 1000),
        Metric("write gap, stop", "ms", False, None, 200),
        Metric("write gap, SIGSTOP", "ms", False, None, 10_000),
        Metric("controller, kill -9: next topic", "ms", False, None, 1000),
        Metric("controller, kill -9: write gap", "ms", False, None, 1000),
        Metric("controller, SIGSTOP: next topic", "ms", False, 1.0),
        Metric("controller, SIGSTOP: write gap", "ms", False, None, 15_000),
        *(
            metric
            for partitions in ("10", "100", "1,000", "5,000")
            for metric in (
                Metric(f"idle CPU, {partitions} partitions", "%", False),
                Metric(f"memory, {partitions} partitions", "MB", False),
            )
        ),
        Metric("idle CPU per 1,000 replicas", "%", False),
        Metric("memory per replica", "KB", False),
        Metric("made 4,000 partitions", "s", False),
        Metric("2,000 partitions, new leaders", "s", False),
        Metric("2,000 partitions, all led", "s", False, None, 2),
        Metric("a new controller", "s", False, None, 1),
        # Ours writes exactly once, the official connector at least once; the ratios are of one broker.
        *(
            Metric(f"spark {what}, {who}", unit, True, None, target if who == "ratio" else None)
            for what, target in (
                ("read", 3.0),
                ("write", 1.2),
                ("stream", 1.5),
                ("feed", 1.3),
                ("wide read", 1.3),
                ("wide write", 1.2),
                ("wide stream", 1.5),
            )
            for who, unit in (("odradek", "rows/s"), ("official", "rows/s"), ("ratio", "×"))
        ),
        Metric("spark feed, odradek at least once", "rows/s", True),
        Metric("spark feed, floor", "rows/s", True),
        Metric("spark trigger, floor", "ms", False),
        Metric("spark trigger, odradek", "ms", False, None, 300),
        Metric("spark trigger, odradek at least once", "ms", False),
        Metric("spark trigger, official", "ms", False),
        Metric("spark trigger, ratio", "×", False, None, 1.0),
        Metric("spark batches, floor", "s", False),
        Metric("spark batches, odradek", "s", False),
        Metric("spark batches, odradek at least once", "s", False),
        Metric("spark batches, official", "s", False),
        Metric("spark batches, ratio", "×", False, None, 1.0),
        Metric("spark batches growth, odradek", "×", False),
        Metric("spark batches growth, official", "×", False),
        Metric("spark workers, batch 10", "MB", False),
        Metric("spark workers, batch 100", "MB", False),
        Metric("spark growth, odradek", "MB", False, None, 10),
    )
}

SPARK_PARTS = ("rates", "feed", "trigger", "batches", "wide", "workers")
"""Of the case spark, in the order in which they are measured: each has figures of its own."""

Rounds = Mapping[str, Mapping[str, Sequence[float]]]  # server -> metric -> one figure per round


def percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class Row(NamedTuple):
    metric: str
    unit: str
    odradek: float | None
    kafka: float | None
    ratio: float | None
    target: str
    met: bool | None


def _median(values: Sequence[float]) -> float:
    """Of the rounds that did not fail; not a number if all did."""
    done = [each for each in values if not math.isnan(each)]
    return median(done) if done else math.nan


def summary(rounds: Rounds) -> list[Row]:
    """The medians side by side, in the order of METRICS."""
    rows = []
    for metric in METRICS.values():
        figures = {server: _median(values[metric.name]) for server, values in rounds.items() if values.get(metric.name)}
        if not figures:
            continue
        ours, theirs = figures.get("odradek"), figures.get("kafka")
        sign = "≥" if metric.more_is_better else "≤"
        targets = [f"{sign} {metric.ratio:g}×"] if metric.ratio is not None else []
        targets += [f"{sign} {metric.limit:g} {metric.unit}"] if metric.limit is not None else []
        ratio = ours / theirs if ours is not None and theirs else None
        if ratio is not None and math.isnan(ratio):
            ratio = None
        met = metric.met(ours, theirs) if ours is not None else None
        rows.append(Row(metric.name, metric.unit, ours, theirs, ratio, " and ".join(targets), met))
    return rows
