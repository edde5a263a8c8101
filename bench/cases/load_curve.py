"""Latency from producer to consumer under load: at 10 to 90 % of what this broker takes on this machine.

The client and its settings are those of end_to_end.py. Saturation is the rate at which records arrive at the consumer
when the producer does not wait: of client and broker on the same cores, in the second of two passes. Then records are
due at fixed rates; latencies count from the moment at which a record was due.
"""

from bench.cases import topics
from bench.cases.end_to_end import PARTITIONS, receive
from bench.metrics import percentile
from bench.servers import Running

SHARES = (10, 30, 50, 70, 90)
SATURATION_RECORDS = 500_000
SECONDS = 10.0
WARM_UP_SECONDS = 2.0


def saturation(bootstrap: str, records: int) -> float:
    """Records per second from the first one sent to the last one received."""
    with topics.fresh(bootstrap, PARTITIONS) as topic:
        seen = receive(bootstrap, topic, records, 0)
    return records / ((max(due + took for due, took in seen) - min(due for due, _ in seen)) / 1e9)


def latencies_ms(bootstrap: str, per_second: float, seconds: float) -> list[float]:
    """Of the records that are due in `seconds`, in order of size; those of the warm-up before are left out."""
    with topics.fresh(bootstrap, PARTITIONS) as topic:
        seen = receive(bootstrap, topic, int((seconds + WARM_UP_SECONDS) * per_second), per_second)
    measured_from = min(due for due, _ in seen) + int(WARM_UP_SECONDS * 1e9)
    return sorted(took / 1e6 for due, took in seen if due >= measured_from)


def run(broker: Running, scale: float) -> dict[str, float]:
    records = max(20_000, int(SATURATION_RECORDS * scale))
    saturation(broker.bootstrap, records)
    most = saturation(broker.bootstrap, records)
    figures = {"saturation": most}
    for share in SHARES:
        took = latencies_ms(broker.bootstrap, most * share / 100, max(2.0, SECONDS * scale))
        for name, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
            figures[f"{share} % load {name}"] = percentile(took, part)
    return figures
