"""What a machine gets per core from several brokers: 1 and 3 brokers with one copy, 3 with three copies.

Not one of the cases that share a single broker: clusters are started here. Records of 1,000 bytes by confluent-kafka's
producer, `acks=all`, the second of two equal passes. A core's rate is what the brokers' processor time buys: bytes
divided by the processor seconds of all brokers. It leaves out the client, so that it says how far cores of their own
would carry the brokers; the rate by the clock is that of the cores that client and brokers share here.
"""

import os

from bench.cases.cluster import consume, fresh, new_topic, produce
from bench.servers import cpu_seconds

RECORDS = 300_000
SHAPES = ((1, 1), (3, 1), (3, 3))
"""Brokers and copies."""
TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
"""The kernel counts processor time in these."""


def run_cores(name: str, scale: float) -> dict[str, float]:
    """The figures of one server in all shapes."""
    figures: dict[str, float] = {}
    records = max(20_000, int(RECORDS * scale))
    gigabytes = records / 1e6
    for brokers, copies in SHAPES:
        what = f"{brokers} broker{'s' if brokers > 1 else ''}, RF {copies}"
        with fresh(name, brokers) as cluster:
            topic = new_topic(cluster, copies=copies)
            produce(cluster, topic, records, 1000, "all")
            pids = cluster.pids().values()
            before = sum(map(cpu_seconds, pids))
            seconds = produce(cluster, topic, records, 1000, "all")
            between = sum(map(cpu_seconds, pids))
            consume(cluster, topic, 2 * records)
            after = sum(map(cpu_seconds, pids))
        figures[f"{what}, in"] = 1000 * gigabytes / seconds
        figures[f"{what}, in per core"] = 1000 * gigabytes / max(TICK_SECONDS, between - before)
        figures[f"{what}, out per core"] = 2000 * gigabytes / max(TICK_SECONDS, after - between)
    return figures
