"""What became of everything that was acknowledged: the final reading, the simulator's checkers, and the figures."""

from __future__ import annotations

import bisect
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from odradek.sim.checkers.clients import CHECKERS, Promises
from odradek.sim.checkers.history import (
    ABORTED,
    OK,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FinalLog,
    History,
    Seen,
    Violation,
)
from tests.faults.clients import LIBRDKAFKA, Place
from tests.faults.deployment import Deployment

FINAL_SECONDS: Final = 120.0


class Unread(Exception):
    """A partition could not be read to its end."""


class Event(NamedTuple):
    """One fault: from its beginning until the cluster was whole again, or the next one came."""

    kind: str
    began_at: float
    ended_at: float


class Figures(NamedTuple):
    acked: int
    lost: int
    duplicated: int
    aborted_visible: int
    out_of_order: int
    unknown: int
    """Deliveries that ended with an error: they may have been written, once."""
    committed: int
    """Transactions."""

    def __str__(self) -> str:
        return (
            f"acked {self.acked}, lost {self.lost}, duplicated {self.duplicated}, "
            f"aborted visible {self.aborted_visible}, out of order {self.out_of_order} "
            f"(given up {self.unknown}, transactions committed {self.committed})"
        )


def _consumer(bootstrap: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "faults-judge",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            **LIBRDKAFKA,
        }
    )


def positions(bootstrap: str, topics: Mapping[str, int], isolation: str) -> dict[tuple[str, int], tuple[int, int]]:
    """(start, end) of every partition; of read_committed the end is the last stable offset."""
    consumer = _consumer(bootstrap, isolation)
    try:
        return {key: _watermarks(consumer, key) for key in _keys(topics)}
    finally:
        consumer.close()


def _watermarks(consumer: Consumer, key: tuple[str, int]) -> tuple[int, int]:
    deadline = time.monotonic() + 60
    while True:
        try:
            return consumer.get_watermark_offsets(TopicPartition(*key), 10)
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise Unread(f"no offsets of {key}: {error}; the consumer sees {_refreshed(consumer)}") from error
            # For a partition that had no leader when librdkafka (2.16) last asked, it answers from its memory with
            # _UNKNOWN_PARTITION, and does not ask again for minutes.
            _refreshed(consumer)
            time.sleep(0.05)


def _refreshed(consumer: Consumer) -> str:
    """Let the consumer ask for the cluster's metadata again; what it sees now."""
    try:
        found = consumer.list_topics(timeout=10)
    except KafkaException as error:
        return f"nothing: {error}"
    brokers = [f"{each.host}:{each.port}" for each in found.brokers.values()]
    topics = {name: {i: p.leader for i, p in topic.partitions.items()} for name, topic in found.topics.items()}
    return f"cluster {found.cluster_id}, brokers {brokers}, leaders {topics}"


def _keys(topics: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(topic, index) for topic, count in topics.items() for index in range(count)]


def read_everything(place: Place, topics: Mapping[str, int]) -> None:
    """Fill `final`, by librdkafka, once the last transaction has ended. Raises Unread."""
    ends = positions(place.bootstrap, topics, READ_UNCOMMITTED)
    deadline = time.monotonic() + FINAL_SECONDS
    while True:
        stable = positions(place.bootstrap, topics, READ_COMMITTED)
        if all(stable[key][1] >= ends[key][1] for key in ends) or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    everything = _read(place, topics, READ_UNCOMMITTED)
    committed = _read(place, topics, READ_COMMITTED)
    for key, (start, end) in ends.items():
        place.history.final[key] = FinalLog(start, end, everything[key], committed[key], stable[key][1], place.now())


def _read(place: Place, topics: Mapping[str, int], isolation: str) -> dict[tuple[str, int], list[Seen]]:
    keys = _keys(topics)
    found: dict[tuple[str, int], list[Seen]] = {key: [] for key in keys}
    sends = place.history.sends
    consumer = _consumer(place.bootstrap, isolation)
    try:
        consumer.assign([TopicPartition(*key, 0) for key in keys])
        open_keys, deadline = set(keys), time.monotonic() + FINAL_SECONDS
        while open_keys:
            if time.monotonic() > deadline:
                raise Unread(f"{isolation}: {sorted(open_keys)} were not read to their end in {FINAL_SECONDS:g} s")
            for message in consumer.consume(1000, 1.0):
                key = (message.topic() or "", message.partition() or 0)
                error = message.error()
                if error is None:
                    value = message.value() or b""
                    known = sends.get(value)
                    found[key].append(Seen(key, message.offset() or 0, known.value if known else value))
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_keys.discard(key)
    finally:
        consumer.close()
    return found


def figures(history: History) -> Figures:
    """Counted apart from the checkers, which stop at the first of a kind."""
    lost = duplicated = visible = out_of_order = 0
    there: dict[tuple[str, int], set[bytes]] = {}
    for key, log in history.final.items():
        values = [seen.value for seen in log.everything]
        there[key] = set(values)
        duplicated += len(values) - len(there[key])
        visible += sum(1 for seen in log.committed if _aborted(history, seen.value))
        last: dict[str, int] = defaultdict(int)
        for value in values:
            send = history.sends.get(value)
            if send is not None:
                out_of_order += send.number < last[send.producer]
                last[send.producer] = max(last[send.producer], send.number)
    for reader in history.readers:
        if reader.isolation == READ_COMMITTED:
            visible += sum(1 for _, seen in reader.seen if _aborted(history, seen.value))
    acked = history.acked()
    lost = sum(1 for send in acked if send.partition in there and send.value not in there[send.partition])
    committed = sum(1 for transaction in history.transactions if transaction.state == "committed")
    return Figures(len(acked), lost, duplicated, visible, out_of_order, len(history.sends) - len(acked), committed)


def _aborted(history: History, value: bytes) -> bool:
    send = history.sends.get(value)
    return send is not None and send.transaction is not None and send.transaction.state == ABORTED


def violations(history: History, *, is_cluster: bool = False, has_apache: bool = False) -> list[str]:
    """The first violation that each checker finds. `has_apache`: some brokers do not fence themselves."""
    promises = Promises(frozenset(), loses_power=False, is_cluster=is_cluster, deposed_leaders_answer=has_apache)
    found = []
    for checker in CHECKERS:
        try:
            checker(history, promises)
        except Violation as violation:
            found.append(str(violation))
    return found


def lost(history: History) -> list[str]:
    """The first of the acknowledged records that are not there, each with what was acknowledged when."""
    there = {key: {seen.value for seen in log.everything} for key, log in history.final.items()}
    gone = [send for send in history.acked() if send.value not in there.get(send.partition, (send.value,))]
    return [f"lost: {send}" for send in gone[:12]]


def divergent(deployment: Deployment) -> list[str]:
    """Replicas whose files differ; the brokers have stopped, everything was in sync."""
    found = []
    for topic, index in _keys(deployment.topics()):
        logs = deployment.replica_logs(topic, index)
        if len(logs) != deployment.replicas:
            found.append(f"divergent replicas: {topic}-{index} is on brokers {sorted(logs)}")
        elif len(set(logs.values())) > 1:
            sizes = {broker: len(data) for broker, data in logs.items()}
            found.append(f"divergent replicas: {topic}-{index}: {sizes} bytes, first differ at {_differ(logs)}")
    return found


def _differ(logs: Mapping[int, bytes]) -> int:
    first, *others = logs.values()
    return min(
        next((i for i in range(0, len(first), 4096) if first[i : i + 4096] != other[i : i + 4096]), len(first))
        for other in others
    )


class Gap(NamedTuple):
    """No record of `client` was acknowledged in `partition` for so long."""

    seconds: float
    kind: str
    client: str
    partition: tuple[str, int]
    since: float
    event: int = 0
    """The number of the fault in its run."""

    def __str__(self) -> str:
        where = f"{self.partition[0]}-{self.partition[1]}"
        return f"{self.since:7.1f} s  {self.kind}: {self.client} wrote nothing to {where} for {self.seconds:.2f} s"


def write_gaps(history: History, events: Iterable[Event], clients: Iterable[str]) -> list[Gap]:
    """The longest of each event, steady producer and partition; a gap is an event's if half of it lies in there."""
    acks: dict[tuple[str, tuple[str, int]], list[float]] = defaultdict(list)
    wanted = set(clients)
    for send in history.sends.values():
        if send.producer in wanted and send.state == OK and send.acked_at is not None:
            acks[send.producer, send.partition].append(send.acked_at)
    for times in acks.values():
        times.sort()
    found = []
    for number, event in enumerate(events):
        for (client, partition), times in sorted(acks.items()):
            first = max(0, bisect.bisect_left(times, event.began_at) - 1)
            last = bisect.bisect_right(times, event.ended_at) + 1
            within = ((b - a, a) for a, b in pairwise(times[first:last]) if 2 * _common(event, a, b) >= b - a)
            seconds, since = max(within, default=(0.0, 0.0))
            found.append(Gap(seconds, event.kind, client, partition, since, number))
    return found


def _common(event: Event, since: float, until: float) -> float:
    return min(until, event.ended_at) - max(since, event.began_at)
