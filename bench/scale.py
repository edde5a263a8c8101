"""./dev bench scale: a KRaft cluster's metadata by the number of its partitions.

Each size gets a log of its own on disk: topics of 10 partitions with three replicas on 100 brokers. A new process
replays it; another one loads the snapshot of the same image. Times are by the clock; `processor` is the time that the
process itself used, which other programs change little. Memory is the largest resident set, with the file's bytes.
"One new leader" is an election of one partition: the controller's image and records, a broker's replay, and one of the
dozen parts of a broker that look at what changed. The same of a topic with 10,000 partitions.
"A broker dies" is what the controller does when it fences one of 100 brokers: decision, records, bytes; then what one
broker does with them. Network and fetches are not part of it.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.controller.record_controller import RecordController, Recorded
from odradek.kraft.checkpoints import CheckpointId, encode_checkpoint, read_checkpoint
from odradek.kraft.metadata_log import encode_metadata_batch, read_entries
from odradek.kraft.metadata_records import VersionedRecord
from odradek.metadata.image import Broker, ClusterImage, Endpoint, PartitionState, Topic
from odradek.metadata.kraft.difference import difference, differences
from odradek.metadata.kraft.metadata_replay import MetadataReplay
from odradek.metadata.topic_changes import partition_changes
from odradek.ports.randomness import SystemRandom
from odradek.wire.messages import cluster_metadata as md

BROKERS = 100
PARTITIONS_OF_TOPIC = 10
REPLICAS = 3
SIZES = (1_000, 100_000, 1_000_000)
_BATCH_RECORDS = 1024
_CHANGES = 1000
_LARGE_TOPIC = "large"
_LARGE_TOPIC_PARTITIONS = 10_000
Aim = tuple[float | None, float | None]
_NO_AIM: Aim = (None, None)
_AIMS: dict[int, Aim] = {100_000: (2.0, None), 1_000_000: (12.0, 1024.0)}
"""The most seconds and MiB that a start may take, by the number of partitions."""


class Figure(NamedTuple):
    """One row; `most` is the aim."""

    name: str
    value: float
    unit: str
    most: float | None = None


def directory_of(broker: int) -> bytes:
    """The id of a broker's only log directory."""
    return (1 << 64 | broker).to_bytes(16, "big")


def records_of(partitions: int) -> Iterator[Any]:
    """The records of all topics."""
    for topic in range(partitions // PARTITIONS_OF_TOPIC):
        topic_id = (1 << 96 | topic).to_bytes(16, "big")
        yield md.TopicRecord(f"topic-{topic}", topic_id)
        for index in range(PARTITIONS_OF_TOPIC):
            number = topic * PARTITIONS_OF_TOPIC + index
            apart = 1 + number // BROKERS % (BROKERS // REPLICAS)
            ids = [(number + copy * apart) % BROKERS for copy in range(REPLICAS)]
            yield md.PartitionRecord(
                index, topic_id, ids, list(ids), [], [], ids[0], 0, 0, 0, [directory_of(each) for each in ids]
            )


def _batch(records: list[Any], offset: int) -> bytes:
    versioned = [VersionedRecord(each, type(each).MAX_VERSION) for each in records]
    return encode_metadata_batch(versioned, base_offset=offset, leader_epoch=1, timestamp_ms=1)


def write_log(path: Path, partitions: int) -> None:
    """Write the metadata log."""
    records, offset = records_of(partitions), 0
    with path.open("wb") as file:
        while some := list(islice(records, _BATCH_RECORDS)):
            file.write(_batch(some, offset))
            offset += len(some)


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _replayed(path: Path) -> MetadataReplay:
    replay = MetadataReplay()
    for entry in read_entries(path.read_bytes(), whole=True):
        replay.read(entry)
    assert replay.image.topics
    return replay


def measure_replay(log: Path, snapshot: Path, partitions: int) -> list[Figure]:
    """Replay the log, and write the snapshot of its image."""
    begun, used = time.perf_counter(), time.process_time()
    image = _replayed(log).image
    seconds, processor, peak = time.perf_counter() - begun, time.process_time() - used, _peak_mib()
    most_seconds, most_mib = _AIMS.get(partitions, _NO_AIM)
    figures = [
        Figure("log", log.stat().st_size / 1e6, "MB"),
        Figure("replay of the log", seconds, "s", most_seconds),
        Figure("replay of the log, processor", processor, "s"),
        Figure("memory of the replay", peak, "MiB", most_mib),
    ]
    used = time.process_time()
    records = (VersionedRecord(each, type(each).MAX_VERSION) for each in differences(ClusterImage(), image))
    data = encode_checkpoint(CheckpointId(1, 1), records, timestamp_ms=1, last_timestamp_ms=1)
    figures.append(Figure("snapshot, processor", time.process_time() - used, "s"))
    snapshot.write_bytes(data)
    return figures


def measure_load(snapshot: Path, partitions: int) -> list[Figure]:
    """Load the snapshot as a node that starts does."""
    begun, used = time.perf_counter(), time.process_time()
    replay = MetadataReplay()
    for entry in read_checkpoint(snapshot.read_bytes()).entries:
        replay.read(entry)
    assert replay.image.topics
    seconds, processor = time.perf_counter() - begun, time.process_time() - used
    most_seconds, most_mib = _AIMS.get(partitions, _NO_AIM)
    return [
        Figure("load of the snapshot", seconds, "s", most_seconds),
        Figure("load of the snapshot, processor", processor, "s"),
        Figure("memory of the load", _peak_mib(), "MiB", most_mib),
    ]


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.process_time()
    found = work()
    return found, time.process_time() - begun


def _one_change(image: ClusterImage, topics: list[str], what: str) -> Iterator[Figure]:
    """A new leader of one partition: image and records at the controller, replay and a look at the change at a broker.

    Many changes, one after the other: means, since a few of them cost more than the others.
    """
    decided = replayed = compared = 0.0
    replay = MetadataReplay(image)
    before, data = image, b""
    for number in range(_CHANGES):
        topic = before.topics[topics[number % len(topics)]]
        state = topic.partitions[0]
        changed = state._replace(
            leader=state.replicas[1], leader_epoch=state.leader_epoch + 1, partition_epoch=state.partition_epoch + 1
        )

        def decide(
            topic: Topic = topic, changed: PartitionState = changed, before: ClusterImage = before
        ) -> tuple[ClusterImage, list[Any]]:
            after = before.with_topic(topic._replace(partitions=(changed, *topic.partitions[1:])))
            return after, difference(before, after)

        (after, records), seconds = _timed(decide)
        decided += seconds
        data = _batch(records, number)
        known = replay.image

        def follow(data: bytes = data) -> ClusterImage:
            for entry in read_entries(data, whole=True):
                replay.read(entry)
            return replay.image

        image, seconds = _timed(follow)
        replayed += seconds

        def look(known: ClusterImage = known, image: ClusterImage = image) -> list[Any]:
            return list(partition_changes(known, image))

        changes, seconds = _timed(look)
        assert len(changes) == 1
        compared += seconds
        before = after
    yield Figure(f"{what}: image and records", decided / _CHANGES * 1e6, "µs")
    yield Figure(f"{what}: bytes per broker", len(data), "bytes")
    yield Figure(f"{what}: replay", replayed / _CHANGES * 1e6, "µs")
    yield Figure(f"{what}: a look at the change", compared / _CHANGES * 1e6, "µs")


def _with_large_topic(image: ClusterImage) -> ClusterImage:
    some = next(iter(image.topics.values())).partitions
    states = tuple(some[index % len(some)]._replace() for index in range(_LARGE_TOPIC_PARTITIONS))
    return image.with_topic(Topic(_LARGE_TOPIC, (1 << 100).to_bytes(16, "big"), states))


def _all_parts(decision: Callable[[], Recorded[Any]]) -> tuple[list[Any], list[float]]:
    """The records of a long decision, and the seconds of each of its parts."""
    records: list[Any] = []
    parts: list[float] = []
    part: Callable[[], Recorded[Any]] | None = decision
    while part is not None:
        recorded, seconds = _timed(part)
        records += recorded.records
        parts.append(seconds)
        part = recorded.rest
    return records, parts


def _broker_dies(image: ClusterImage) -> Iterator[Figure]:
    brokers = {
        each: Broker(each, 1, None, {"PLAINTEXT": Endpoint("h", 1, "PLAINTEXT")}, log_dirs=(directory_of(each),))
        for each in range(BROKERS)
    }
    image = image.with_brokers(brokers)
    controller = RecordController(image, BrokerConfig({}), SystemRandom())
    records, parts = _all_parts(partial(controller.fence_brokers, [0]))
    data, encoding = _timed(lambda: _batch(records, 0))
    replay = MetadataReplay(image)

    def follow() -> ClusterImage:
        for entry in read_entries(data, whole=True):
            replay.read(entry)
        return replay.image

    _, following = _timed(follow)
    yield Figure("a broker dies: records", len(records), "records")
    yield Figure("a broker dies: decision and records", sum(parts) * 1e3, "ms")
    yield Figure("a broker dies: the longest part of the decision", max(parts) * 1e3, "ms")
    begun = RecordController(image, BrokerConfig({}), SystemRandom())
    _, parts = _all_parts(begun.begin)
    yield Figure("a controller begins: first decision", sum(parts) * 1e3, "ms")
    yield Figure("a controller begins: its longest part", max(parts) * 1e3, "ms")
    yield Figure("a broker dies: encoding", encoding * 1e3, "ms")
    yield Figure("a broker dies: bytes per broker", len(data), "bytes")
    yield Figure("a broker dies: replay at each broker", following * 1e3, "ms")


def measure_changes(log: Path) -> list[Figure]:
    """What changes of a replayed image cost."""
    image = _replayed(log).image
    gc.collect()
    gc.freeze()  # `serve` makes no full collections
    return [
        *_one_change(image, list(image.topics), "one new leader"),
        *_one_change(_with_large_topic(image), [_LARGE_TOPIC], "the same, topic of 10,000 partitions"),
        *_broker_dies(image),
    ]


def measure(partitions: int) -> list[Figure]:
    """All figures of one size, each step in a process of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="odradek-bench-scale-") as folder,
        ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool,
    ):
        log, snapshot = Path(folder) / "log", Path(folder) / "snapshot"
        pool.submit(write_log, log, partitions).result()
        found = pool.submit(measure_replay, log, snapshot, partitions).result()
        found += pool.submit(measure_load, snapshot, partitions).result()
        return found + pool.submit(measure_changes, log).result()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("partitions", nargs="*", type=int, help=f"at least 1000; default: {' '.join(map(str, SIZES))}")
    given = parser.parse_args(arguments)
    if any(each < 1000 for each in given.partitions):
        parser.error("fewer than 1000 partitions say nothing of 100 brokers")
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    missed = 0
    for partitions in given.partitions or SIZES:
        table = Table(title=f"{partitions:,} partitions ({load})", title_justify="left")
        for column in ("", "figure", "unit", "at most", "met"):
            table.add_column(column, justify="right" if column in ("figure", "at most") else "left")
        for figure in measure(partitions):
            most = "" if figure.most is None else f"{figure.most:g}"
            is_met = figure.most is None or figure.value <= figure.most
            missed += not is_met
            table.add_row(
                figure.name, f"{figure.value:,.4g}", figure.unit, most, "" if not most else "yes" if is_met else "NO"
            )
        Console(width=None if os.isatty(1) else 110).print(table)
    return 1 if missed else 0
