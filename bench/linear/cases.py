"""What grows: a function for each subject, on a running broker of its own, yields its figures."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from bench.holds.broker import Connection, decoded, framed
from bench.linear.broker import Measured, MeasuredBroker
from odradek.records.builder import BatchFields, encode_batch
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    create_topics,
    delete_groups,
    delete_topics,
    fetch,
    find_coordinator,
    list_offsets,
    metadata,
    offset_commit,
    produce,
)

A_TOPIC: Final = 1000
"""Partitions of a topic."""
_PRODUCE_VERSION, _FETCH_VERSION, _LIST_VERSION, _METADATA_VERSION, _COMMIT_VERSION = 9, 12, 7, 12, 7
_REPEATS: Final = 4
_IN_FLIGHT: Final = 100
_LATEST: Final = -1
_NOT_YET: Final = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
_PATIENCE_SECONDS: Final = 300
_RUNS_OF_LARGE: Final = 3
_SIZES: Final = (1000, 5000)
"""Numbers of partitions that are compared, with the peer's also."""
_PARTITIONS_OF_A_RUN: Final = 20_000
_A_ROUND: Final = 2000
_ROUNDS: Final = 10
_BETWEEN_ROUNDS_SECONDS: Final = 12.0
"""Longer than until files of deleted topics are removed, and than between two looks at garbage."""
_GROWTH_MB: Final = 0.5


class Figure(NamedTuple):
    """One row of the table; `most` is the aim, None where there is none."""

    name: str
    value: float
    unit: str
    most: float | None = None


Run = Callable[[Connection, Sequence[bytes]], object]
Measure = Callable[[MeasuredBroker, float], Iterator[Figure]]


# --- requests ---


def _topics(partitions: int) -> list[tuple[str, int]]:
    """Names and sizes of the topics that have this number of partitions together."""
    sizes = [A_TOPIC] * (partitions // A_TOPIC) + [partitions % A_TOPIC] * (partitions % A_TOPIC > 0)
    return [(f"linear-{number}", size) for number, size in enumerate(sizes)]


def _create(connection: Connection, topics: Iterable[tuple[str, int]], **configs: str) -> None:
    settings = [
        create_topics.CreateTopicsRequestConfig(name.replace("_", "."), value) for name, value in configs.items()
    ]
    for name, size in topics:
        topic = create_topics.CreateTopicsRequestTopic(name, size, 1, configs=settings)
        request = create_topics.CreateTopicsRequest([topic], 60_000)
        answer = connection.ask(request, create_topics.CreateTopicsResponse, 5)
        if code := answer.topics[0].error_code:
            raise RuntimeError(f"topic {name} was not created: error {code} {answer.topics[0].error_message}")


def _record(size: int = 100) -> bytearray:
    return encode_batch([(int(time.time() * 1000), None, bytes(size), ())])


def _produce(topics: Sequence[tuple[str, int]], batch: bytes | bytearray) -> bytes:
    rows = [
        produce.ProduceRequestTopic(
            name, partition_data=[produce.ProduceRequestPartition(index, batch) for index in range(size)]
        )
        for name, size in topics
    ]
    return framed(produce.ProduceRequest(None, 1, 60_000, rows), _PRODUCE_VERSION)


def _fetch(topics: Sequence[tuple[str, int]]) -> bytes:
    rows = [
        fetch.FetchRequestTopic(
            name,
            partitions=[
                fetch.FetchRequestPartition(index, fetch_offset=0, partition_max_bytes=1000) for index in range(size)
            ],
        )
        for name, size in topics
    ]
    request = fetch.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=100 << 20, topics=rows)
    return framed(request, _FETCH_VERSION)


def _list_offsets(topics: Sequence[tuple[str, int]]) -> bytes:
    rows = [
        list_offsets.ListOffsetsRequestTopic(
            name, [list_offsets.ListOffsetsRequestPartition(index, -1, _LATEST) for index in range(size)]
        )
        for name, size in topics
    ]
    return framed(list_offsets.ListOffsetsRequest(-1, 0, rows), _LIST_VERSION)


def _metadata(topics: Sequence[tuple[str, int]]) -> bytes:
    rows = [metadata.MetadataRequestTopic(name=name) for name, _ in topics]
    return framed(metadata.MetadataRequest(rows, allow_auto_topic_creation=False), _METADATA_VERSION)


def _exchange(connection: Connection, frames: Sequence[bytes]) -> None:
    """Send requests and receive their answers, some in flight."""
    for first in range(0, len(frames), _IN_FLIGHT):
        some = frames[first : first + _IN_FLIGHT]
        connection.send(b"".join(some))
        for _ in some:
            connection.receive()


def _append_to_all(broker: Measured, topics: Sequence[tuple[str, int]]) -> None:
    """A record in each partition, which opens the logs; returns when every partition has accepted one."""
    for topic in topics:
        frame, end = _produce([topic], _record()), time.monotonic() + _PATIENCE_SECONDS
        while True:
            broker.connection.send(frame)
            answer = decoded(broker.connection.receive(), produce.ProduceResponse, _PRODUCE_VERSION)
            codes = {row.error_code for each in answer.responses for row in each.partition_responses}
            if codes == {ErrorCode.NONE}:
                break
            if codes - _NOT_YET - {ErrorCode.NONE} or time.monotonic() > end:
                raise RuntimeError(f"appends failed with errors {sorted(codes)}")


def _await_coordinator(connection: Connection, group: str) -> None:
    wanted = find_coordinator.FindCoordinatorRequest(group)
    end = time.monotonic() + _PATIENCE_SECONDS
    while connection.ask(wanted, find_coordinator.FindCoordinatorResponse, 2).error_code:
        if time.monotonic() > end:
            raise RuntimeError("there is no group coordinator")
        time.sleep(0.01)


def _least_cpu_ms(broker: Measured, run: Run, frames: Sequence[bytes], repeats: int = _REPEATS) -> float:
    """The smallest processor time of several runs: other programs make it larger only."""
    found = []
    for _ in range(repeats):
        before = broker.cpu_ms()
        run(broker.connection, frames)
        found.append(broker.cpu_ms() - before)
    return min(found)


def _ratios(figures: dict[int, float], what: str, most: Sequence[float | None]) -> Iterator[Figure]:
    """Microseconds per element for each number, and how many times that of the first."""
    first = next(iter(figures.values()))
    for number, us in figures.items():
        yield Figure(f"{what}, {number:,}", us, "µs")
    for (number, us), limit in zip(list(figures.items())[1:], most, strict=True):
        yield Figure(f"{what}: {number:,} against {next(iter(figures)):,}", us / first, "×", limit)


# --- subjects ---


def partitions(broker: MeasuredBroker, scale: float) -> Iterator[Figure]:
    """One request for all partitions that a broker has; then a broker with the most of them, started again."""
    steps = [max(10, int(number * scale)) for number in (*_SIZES, 50_000)]
    yield from _ratios(write_floor(steps[:-1]), "floor: pwrite alone, files", (None,))
    for name, figures in _per_partition(broker, steps).items():
        yield from _ratios(
            {step: of_all for step, (of_all, _) in figures.items()}, f"{name} per partition", (None, None)
        )
        yield from _against_in_turn(name, figures, (1.2, 1.5))
    most = steps[-1]
    yield Figure(f"memory, {most:,} partitions with open logs", broker.rss_mb(), "MB")
    yield Figure(f"clean stop, {most:,} partitions", broker.stop(), "s")
    yield Figure(f"start, {most:,} partitions", broker.start(), "s", 2.0)
    yield Figure(f"memory after the start, {most:,} partitions", broker.rss_mb(), "MB", 120.0)
    yield Figure(f"idle CPU, {most:,} partitions", broker.idle_percent(), "%", 2.0)


def write_floor(counts: Sequence[int]) -> dict[int, float]:
    """Microseconds of an append by pwrite(2) alone, by the number of open files: what no broker can avoid."""
    data = memoryview(bytes(_record()))
    found = {}
    for count in counts:
        with tempfile.TemporaryDirectory(prefix="odradek-bench-floor-") as folder, contextlib.ExitStack() as opened:
            files = [
                opened.enter_context((Path(folder) / str(number)).open("wb", buffering=0)).fileno()
                for number in range(count)
            ]
            runs, times = [], max(1, _PARTITIONS_OF_A_RUN // count)
            for run in range(_REPEATS + 1):
                before = time.thread_time()
                for at in range(run * times, (run + 1) * times):
                    for file in files:
                        os.pwrite(file, data, at * len(data))
                runs.append((time.thread_time() - before) * 1e6 / count / times)
            found[count] = min(runs[1:])
    return found


def partitions_of_peer(broker: Measured, scale: float) -> Iterator[Figure]:
    """The same requests at another broker: how its costs grow on this machine's caches and page cache."""
    steps = [max(10, int(number * scale)) for number in _SIZES]
    for name, figures in _per_partition(broker, steps).items():
        of_all = {step: us for step, (us, _) in figures.items()}
        yield from _ratios(of_all, f"Apache Kafka, {name} per partition", (None,))


def _against_in_turn(
    name: str, figures: dict[int, tuple[float, float]], most: Sequence[float | None]
) -> Iterator[Figure]:
    """One request for all partitions against requests for a topic's, one topic after the other.

    Both use the memory of all partitions. Requests for the same 1,000 over and over find theirs in the processor's
    second cache, which that of 5,000 does not fit into: their figure says what the cache is worth as well, and has no
    aim for that reason (decision 0021).
    """
    for (step, (of_all, in_turn)), limit in zip(list(figures.items())[1:], most, strict=True):
        yield Figure(f"{name} per partition, {step:,} in turn", in_turn, "µs")
        yield Figure(f"{name} per partition: {step:,} at once against in turn", of_all / in_turn, "×", limit)


def _per_partition(broker: Measured, steps: Sequence[int]) -> dict[str, dict[int, tuple[float, float]]]:
    """Microseconds for a partition, by kind of request and the number of partitions.

    The first is that of a request that names all of them, the second that of requests for a topic, in turn.
    """
    requests: dict[str, Callable[[Sequence[tuple[str, int]]], bytes]] = {
        "Produce": partial(_produce, batch=_record()),
        "Fetch": _fetch,
        "ListOffsets": _list_offsets,
        "Metadata": _metadata,
    }
    found: dict[str, dict[int, tuple[float, float]]] = {name: {} for name in requests}
    present: set[str] = set()
    for step in steps:
        topics = _topics(step)
        new = [topic for topic in topics if topic[0] not in present]
        _create(broker.connection, new)
        present |= {name for name, _ in topics}
        _append_to_all(broker, new)
        broker.wait_until_calm()
        for name, make in requests.items():
            times = max(1, _PARTITIONS_OF_A_RUN // step)
            at_once, in_turn = [make(topics)] * times, [make([topic]) for topic in topics] * times
            found[name][step] = (
                _least_cpu_ms(broker, _exchange, at_once) * 1000 / step / times,
                _least_cpu_ms(broker, _exchange, in_turn) * 1000 / step / times,
            )
    return found


def commits(broker: MeasuredBroker, scale: float) -> Iterator[Figure]:
    """Offset commits of one group, and of many groups in turn."""
    count = max(100, int(5000 * scale))
    _create(broker.connection, [("linear-0", 1)])
    _await_coordinator(broker.connection, "g-0")
    found = {}
    for groups in (1, count):
        frames = [_commit(f"g-{number % groups}") for number in range(count)]
        _exchange(broker.connection, frames)
        broker.wait_until_calm()
        found[groups] = _least_cpu_ms(broker, _exchange, frames) * 1000 / count
    yield from _ratios(found, "OffsetCommit, groups", (None,))


def _commit(group: str) -> bytes:
    row = offset_commit.OffsetCommitRequestPartition(0, 1)
    topics = [offset_commit.OffsetCommitRequestTopic("linear-0", partitions=[row])]
    return framed(offset_commit.OffsetCommitRequest(group, -1, "", topics=topics), _COMMIT_VERSION)


def connections(broker: MeasuredBroker, scale: float) -> Iterator[Figure]:
    """One-record Produce requests one after the other, on one connection and on many in turn."""
    count = max(100, int(9000 * scale))
    _create(broker.connection, [("linear-0", 1)])
    _append_to_all(broker, [("linear-0", 1)])
    frame = _produce([("linear-0", 1)], _record())
    opened = [broker.connection]
    found = {}
    try:
        for number in (1, count):
            while len(opened) < number:
                opened.append(broker.connect())

            frames = [frame] * count
            _in_turn(opened, frames)
            found[number] = _least_cpu_ms(broker, lambda _, frames: _in_turn(opened, frames), frames) * 1000 / count
        yield from _ratios(found, "Produce of one record, connections", (1.3,))
    finally:
        for connection in opened[1:]:
            connection.close()


def _in_turn(connections: Sequence[Connection], frames: Sequence[bytes]) -> None:
    """Send a request after the other, on each connection in turn."""
    for number, frame in enumerate(frames):
        connection = connections[number % len(connections)]
        connection.send(frame)
        connection.receive()


def large_requests(broker: MeasuredBroker, scale: float) -> Iterator[Figure]:
    """Produce requests of 10 MB: one batch, and ten of 1 MB for as many partitions."""
    count = max(10, int(100 * scale))
    _create(broker.connection, [("linear-0", 10)], max_message_bytes=str(11_000_000), retention_bytes=str(200_000_000))
    _append_to_all(broker, [("linear-0", 10)])
    broker.warm_page_cache(_RUNS_OF_LARGE * 2 * count * 10_000_000)
    for name, parts in (("one batch of 10 MB", 1), ("ten batches of 1 MB", 10)):
        size = 10_000_000 // parts
        batch = encode_batch([(int(time.time() * 1000), None, bytes(1000), ())] * (size // 1010))
        frame = _produce([("linear-0", parts)], batch)

        frames = [frame] * count
        seconds = _least_cpu_ms(broker, _one_by_one, frames, _RUNS_OF_LARGE) / 1000
        yield Figure(f"requests of {name}", seconds / (len(frame) * count / 1e9), "CPU s/GB", 1.5)


def _one_by_one(connection: Connection, frames: Sequence[bytes]) -> None:
    for frame in frames:
        _exchange(connection, [frame])


def producers(broker: MeasuredBroker, scale: float) -> Iterator[Figure]:
    """Producer ids in one partition: appends by new ones, memory, a stop and a start."""
    count = max(1000, int(1_000_000 * scale))
    _create(broker.connection, [("linear-0", 1)])
    _append_to_all(broker, [("linear-0", 1)])
    now_ms, before_mb, piece, found = int(time.time() * 1000), broker.rss_mb(), count // 10, []
    for first in range(0, count, piece):
        frames = [
            _produce([("linear-0", 1)], encode_batch([(now_ms, b"", b"", ())], BatchFields(0, -1, number, 0, 0)))
            for number in range(first, first + piece)
        ]
        before = broker.cpu_ms()
        _exchange(broker.connection, frames)
        found.append((broker.cpu_ms() - before) * 1000 / piece)
    yield from _ratios({piece: found[0], count: found[-1]}, "Produce by a new producer id, ids", (1.5,))
    yield Figure(f"memory for {count:,} producer ids", broker.rss_mb() - before_mb, "MB")
    yield Figure(f"clean stop, {count:,} producer ids", broker.stop(), "s")
    yield Figure(f"start, {count:,} producer ids", broker.start(), "s")
    before = broker.cpu_ms()
    _append_to_all(broker, [("linear-0", 1)])
    yield Figure(f"first append after it, {count:,} producer ids", (broker.cpu_ms() - before) / 1000, "CPU s")


def groups(broker: MeasuredBroker, scale: float) -> Iterator[Figure]:
    """Groups with a committed offset each: memory, and a start until the coordinator answers."""
    count = max(1000, int(100_000 * scale))
    _create(broker.connection, [("linear-0", 1)])
    _await_coordinator(broker.connection, "g-0")
    before_mb, before = broker.rss_mb(), broker.cpu_ms()
    _exchange(broker.connection, [_commit(f"g-{number}") for number in range(count)])
    yield Figure(f"first commit, {count:,} groups", (broker.cpu_ms() - before) * 1000 / count, "µs")
    yield Figure(f"memory for {count:,} groups", broker.rss_mb() - before_mb, "MB")
    broker.stop()
    began = time.perf_counter()
    yield Figure(f"start, {count:,} groups", broker.start(), "s")
    _await_coordinator(broker.connection, "g-0")
    yield Figure(f"coordinator answers after, {count:,} groups", time.perf_counter() - began, "s")
    yield Figure(f"idle CPU, {count:,} groups", broker.idle_percent(), "%")


def coming_and_going(broker: MeasuredBroker, scale: float) -> Iterator[Figure]:
    """Memory over rounds of topics, groups and connections that come and go, under requests that never cease."""
    count, rounds = max(20, int(_A_ROUND * scale)), _ROUNDS
    _create(broker.connection, [("linear-0", 1)])
    _append_to_all(broker, [("linear-0", 1)])
    _await_coordinator(broker.connection, "round-0-0")
    found = []
    for number in range(rounds):
        _come_and_go(broker, number, count)
        _serve_a_while(broker, _BETWEEN_ROUNDS_SECONDS)
        found.append(broker.rss_mb())
        yield Figure(
            f"memory after round {number + 1} of {count:,} partitions, groups and connections", found[-1], "MB"
        )
    half = found[rounds // 2 :]
    yield Figure("growth in a round, second half", (half[-1] - half[0]) / (len(half) - 1), "MB", _GROWTH_MB)


def _come_and_go(broker: MeasuredBroker, number: int, count: int) -> None:
    """A topic of that number of partitions with a record in each, as many groups, and half as many connections."""
    name, connection = f"linear-round-{number}", broker.connection
    _create(connection, [(name, count)])
    _append_to_all(broker, [(name, count)])
    names = [f"round-{number}-{each}" for each in range(count)]
    _exchange(connection, [_commit(each) for each in names])
    opened = [broker.connect() for _ in range(count // 2)]
    frame = _produce([("linear-0", 1)], _record())
    _in_turn(opened, [frame] * len(opened))
    for each in opened:
        each.close()
    for first in range(0, count, _IN_FLIGHT):
        wanted = delete_groups.DeleteGroupsRequest(names[first : first + _IN_FLIGHT])
        groups_of = connection.ask(wanted, delete_groups.DeleteGroupsResponse, 2).results
        if codes := {each.error_code for each in groups_of} - {0}:
            raise RuntimeError(f"groups were not deleted: errors {sorted(codes)}")
    gone = connection.ask(delete_topics.DeleteTopicsRequest([], [name], 60_000), delete_topics.DeleteTopicsResponse, 5)
    if code := gone.responses[0].error_code:
        raise RuntimeError(f"topic {name} was not deleted: error {code}")


def _serve_a_while(broker: MeasuredBroker, seconds: float) -> None:
    """A client that appends all the time: the process is never idle, but has time to delete files."""
    frame, end = _produce([("linear-0", 1)], _record()), time.monotonic() + seconds
    while time.monotonic() < end:
        _exchange(broker.connection, [frame] * _IN_FLIGHT)
        time.sleep(0.05)


SUBJECTS: Final[dict[str, Measure]] = {
    "partitions": partitions,
    "commits": commits,
    "connections": connections,
    "large_requests": large_requests,
    "producers": producers,
    "groups": groups,
    "coming_and_going": coming_and_going,
}
"""Subjects by the name that selects them."""
