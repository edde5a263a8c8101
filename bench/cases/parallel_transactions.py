"""Transactions by eight producers at the same time, each into a partition of its own.

One producer is bound by librdkafka's own timer (see transactions.py); eight of them load the broker. Threads of one
process: librdkafka does its work outside Python. Each commits transactions of 1 and then of 10 records of 100 bytes
for a fixed time, after a warm-up that compiles Apache Kafka's code.
"""

import time
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Producer

from bench.cases import topics
from bench.cases.transactions import commit, new_producer
from bench.metrics import percentile
from bench.servers import Running, cpu_seconds

PRODUCERS = 8
SIZES = (1, 10)
SECONDS = 10.0
WARM_UP_SECONDS = 5.0


def commit_for(producers: list[Producer], topic: str, records: int, seconds: float) -> list[float]:
    """Milliseconds of each transaction that began in the time, of all producers. Raises what one of them raised."""
    until = time.monotonic() + seconds

    def work(number: int) -> list[float]:
        took: list[float] = []
        while time.monotonic() < until:
            took += commit(producers[number], topic, 1, records, number)
        return took

    with ThreadPoolExecutor(len(producers)) as threads:
        return [each for took in threads.map(work, range(len(producers))) for each in took]


def run(broker: Running, scale: float) -> dict[str, float]:
    figures: dict[str, float] = {}
    with topics.fresh(broker.bootstrap, PRODUCERS) as topic:
        producers = [new_producer(broker.bootstrap) for _ in range(PRODUCERS)]
        commit_for(producers, topic, 1, max(1.0, WARM_UP_SECONDS * scale))
        for size in SIZES:
            cpu, began = cpu_seconds(broker.pid), time.perf_counter()
            took = sorted(commit_for(producers, topic, size, max(1.0, SECONDS * scale)))
            elapsed = time.perf_counter() - began
            figures[f"8 producers, transactions of {size}"] = len(took) / elapsed
            figures[f"8 producers, transaction of {size} p99"] = percentile(took, 0.99)
            figures[f"8 producers, CPU per transaction of {size}"] = (cpu_seconds(broker.pid) - cpu) / len(took) * 1000
    return figures
