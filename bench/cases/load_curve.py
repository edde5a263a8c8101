"""Latency from producer to consumer under load: at shares of what this broker takes on this machine, and at rates that
are the same for each broker.

The client and its settings are those of end_to_end.py. Saturation is the rate at which records arrive at the consumer
when the producer is always late, over as long a time as a point of the curve takes: in a pass of a second or two a
fifth of the records only fills the producer's queue. Then records are due at fixed rates;
latencies count from the moment at which a record was due. Shares of two saturations are different rates: only the rows
of a rate compare brokers.

Producer, consumer and broker share the machine. The processor time of each per record says who needs it: a broker that
answers sooner receives smaller batches at linger.ms=0, which cost the client more.
"""

import os
from collections.abc import Sequence

from bench.cases import topics
from bench.cases.end_to_end import PARTITIONS, receive
from bench.metrics import percentile
from bench.servers import Running, cpu_seconds

SHARES = (10, 30, 50, 70, 90)
RATES = (20_000, 60_000, 100_000, 140_000, 180_000)
"""Records a second."""
FIRST_RECORDS = 500_000
"""Of the pass that compiles Apache Kafka's code and estimates the records of the next one."""
LATE_PER_SECOND = 10_000_000
"""A rate that no client reaches."""
SECONDS = 10.0
WARM_UP_SECONDS = 2.0

Seen = Sequence[tuple[int, int]]
"""When each record was due, and its latency, both in ns."""


def measure(bootstrap: str, records: int, per_second: float) -> Seen:
    """Send and receive that many records in a fresh topic."""
    with topics.fresh(bootstrap, PARTITIONS) as topic:
        return receive(bootstrap, topic, records, per_second)


def arrivals_per_second(seen: Seen, warm_up_seconds: float) -> float:
    """The rate at which records arrived after the warm-up, which begins with the first arrival."""
    arrived = sorted(due + took for due, took in seen)
    begun = arrived[0] + int(warm_up_seconds * 1e9)
    counted = [each for each in arrived if each > begun]
    return len(counted) / ((counted[-1] - begun) / 1e9)


def latencies_ms(seen: Seen, warm_up_seconds: float) -> list[float]:
    """In order of size; without the records that were due in the warm-up."""
    measured_from = min(due for due, _ in seen) + int(warm_up_seconds * 1e9)
    return sorted(took / 1e6 for due, took in seen if due >= measured_from)


def client_seconds() -> float:
    """Processor time of this process, which consumes, and of the producers' that have ended."""
    return sum(os.times()[:4])


def run(broker: Running, scale: float) -> dict[str, float]:
    seconds = max(2.0, SECONDS * scale) + WARM_UP_SECONDS
    first = measure(broker.bootstrap, max(20_000, int(FIRST_RECORDS * scale)), LATE_PER_SECOND)
    expected = int(arrivals_per_second(first, 0.0) * seconds)
    figures: dict[str, float] = {}

    def point(name: str, records: int, per_second: float) -> Seen:
        of_broker, of_client = cpu_seconds(broker.pid), client_seconds()
        seen = measure(broker.bootstrap, records, per_second)
        figures[f"{name} CPU"] = (cpu_seconds(broker.pid) - of_broker) / records * 1e6
        figures[f"{name} client CPU"] = (client_seconds() - of_client) / records * 1e6
        return seen

    most = arrivals_per_second(point("saturation", expected, LATE_PER_SECOND), WARM_UP_SECONDS)
    figures["saturation"] = most
    points = {f"{share} % load": most * share / 100 for share in SHARES} | {f"{rate:,}/s": rate for rate in RATES}
    for name, per_second in points.items():
        took = latencies_ms(point(name, int(seconds * per_second), per_second), WARM_UP_SECONDS)
        for label, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
            figures[f"{name} {label}"] = percentile(took, part)
    return figures
