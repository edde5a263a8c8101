"""What the driver asks the brokers about the topics of a query."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar

from odradek.client.admin import Admin
from odradek.client.errors import ClientError
from odradek.client.network.cluster import Cluster, is_retriable
from odradek.client.network.metadata import TopicInfo
from odradek.client.offsets import list_offsets
from odradek.records.topic_partition import TopicPartition
from odradek.spark import clients
from odradek.spark.offsets import Offsets, Origin, SourceError
from odradek.spark.options import EARLIEST, LATEST, PartitionOffsets, Position, SourceOptions
from odradek.spark.topic_pattern import compile_pattern
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.primitives import ZERO_UUID

T = TypeVar("T")

_MISSING_S: Final = 1.0
"""For so long a topic is asked for again that brokers do not know: news of a new one needs some time to reach all."""


class Topics:
    """The partitions of one query and their offsets. Lives on the driver; connections are kept by the process."""

    __slots__ = ("_isolation", "_options", "_origin", "_pattern")

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        pattern = options.subscription.pattern
        self._pattern = None if pattern is None else compile_pattern(pattern)
        self._origin: Origin | None = None
        isolation = dict(options.client).get("isolation_level", "read_uncommitted")
        self._isolation = 1 if isolation == "read_committed" else 0

    def partitions(self) -> list[TopicPartition]:
        """All partitions that the subscription covers now. Raises SourceError for a named topic that does not exist."""
        return self._trying(self._find_partitions)

    def latest(self) -> Offsets:
        """The end of every partition: behind the last record that this isolation level can read."""
        return self._trying(lambda: self._at(dict.fromkeys(self._find_partitions(), LATEST)))

    def log_ends(self, partitions: Collection[TopicPartition]) -> Offsets:
        """The high watermarks of these partitions, whatever the isolation level."""
        return self._trying(lambda: self._at(dict.fromkeys(partitions, LATEST), isolation=0))

    def origin(self) -> Origin:
        """The cluster and the ids of the topics, as of the last look at the brokers."""
        if self._origin is None:
            self.partitions()
        assert self._origin is not None
        return self._origin

    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """The first offset of these partitions; those that are gone are left out."""

        def find() -> Offsets:
            there = set(self._find_partitions())
            return self._at({key: EARLIEST for key in partitions if key in there})

        return self._trying(find)

    def resolve(self, position: Position, what: str) -> Offsets:
        """The offset of every partition at a starting or ending position. Raises SourceError, KafkaError."""
        partitions = self.partitions()
        if position.timestamp_ms is not None:
            wanted = dict.fromkeys(partitions, position.timestamp_ms)
            return self._at_times(wanted, position.fallback_latest, what)
        if position.timestamps_ms is not None:
            wanted = _for_each(partitions, position.timestamps_ms, f"{what}OffsetsByTimestamp", "timestamps")
            return self._at_times(wanted, position.fallback_latest, what)
        if position.offsets is None:
            assert position.whole is not None
            whole = position.whole
            return self._trying(lambda: self._at(dict.fromkeys(partitions, whole)))
        hint = "specific offsets; -1 means latest, -2 earliest"
        offsets = _for_each(partitions, position.offsets, f"{what}Offsets", hint)
        special = {key: offset for key, offset in offsets.items() if offset < 0}
        return {**offsets, **self._trying(lambda: self._at(special))}

    def leader(self, topic: str, partition: int) -> int:
        """The id of the broker that leads a partition, as far as is known."""
        return self._cluster().metadata.leader(topic, partition)

    # --- inside ---

    def _cluster(self) -> Cluster:
        return clients.consumer(self._options.client).cluster

    def _trying(self, call: Callable[[], T]) -> T:
        """As often as fetchOffset.numRetries says."""
        failures = 0
        while True:
            try:
                return call()
            except (KafkaError, ClientError) as error:
                failures += 1
                if failures > self._options.fetch_offset_retries or not is_retriable(error):
                    raise
            time.sleep(self._options.fetch_offset_retry_interval_ms / 1000)

    def _find_partitions(self) -> list[TopicPartition]:
        subscription, cluster = self._options.subscription, self._cluster()
        if subscription.assign is not None:
            names: list[str] | None = sorted(subscription.assign)
        else:
            names = subscription.subscribe
        cluster.follow_topics(names)
        self._refresh(cluster, names)
        topics = cluster.metadata.topics
        if names is None:
            assert self._pattern is not None
            names = [
                name for name, info in topics.items() if not info.is_internal and self._pattern.search(name) is not None
            ]
        ids = {name: topics[name].topic_id for name in names if name in topics}
        self._origin = Origin(
            cluster.metadata.cluster_id, {name: id_text(each) for name, each in ids.items() if each != ZERO_UUID}
        )
        found = []
        for name in names:
            info = topics.get(name)
            count = 0 if info is None else len(info.partitions)
            if subscription.assign is not None:
                found += [TopicPartition(name, each) for each in subscription.assign[name] if each < count]
            else:
                found += [TopicPartition(name, each) for each in range(count)]
        return sorted(found)

    def _refresh(self, cluster: Cluster, names: Collection[str] | None) -> None:
        """Fetch the metadata. Raises SourceError for a named topic that does not exist, as Spark's own source does."""
        missing = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)
        deadline = time.monotonic() + _MISSING_S
        while True:
            errors = clients.run(cluster.fetch_topics(names))
            if names is None or not errors:
                return
            name, code = next(iter(sorted(errors.items())))
            if code not in missing:
                raise KafkaError(ErrorCode(code), f"topic {name}")
            if time.monotonic() >= deadline:
                break
            time.sleep(_MISSING_S / 10)
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise SourceError(f"topic {name} does not exist")
        raise KafkaError(ErrorCode(code), f"topic {name}")

    def _at(self, timestamps: Mapping[TopicPartition, int], isolation: int | None = None) -> Offsets:
        if not timestamps:
            return {}
        level = self._isolation if isolation is None else isolation
        found = clients.run(list_offsets(self._cluster(), timestamps, isolation_level=level))
        return {key: at.offset for key, at in found.items()}

    def _at_times(self, wanted: Mapping[TopicPartition, int], fallback_latest: bool, what: str) -> Offsets:
        found = self._trying(lambda: self._at(wanted))
        unmatched = [key for key, offset in found.items() if offset < 0]
        if unmatched and not fallback_latest:
            raise SourceError(
                f"{unmatched[0]} has no record at or after timestamp {wanted[unmatched[0]]}; "
                f"{what}OffsetsByTimestampStrategy=latest would take its end instead"
            )
        found.update(self._trying(lambda: self._at(dict.fromkeys(unmatched, LATEST))))
        return found


def _for_each(
    partitions: Collection[TopicPartition], given: PartitionOffsets, what: str, kind: str
) -> dict[TopicPartition, int]:
    """The given numbers by partition. All partitions must be there, and no others."""
    named = {TopicPartition(topic, number): at for topic, each in given.items() for number, at in each.items()}
    if set(named) != set(partitions):
        raise SourceError(
            f"{what} must name every partition of the query ({kind}): it names "
            f"{', '.join(map(str, sorted(named)))}; the query has {', '.join(map(str, sorted(partitions)))}"
        )
    return named


def id_text(topic_id: bytes) -> str:
    """A topic's id as Kafka writes it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def describe(client: tuple[tuple[str, str], ...], topic: str) -> TopicInfo | KafkaError:
    """A topic's partitions, asked from a broker now."""

    async def ask() -> TopicInfo | KafkaError:
        async with Admin(**dict(client)) as admin:  # type: ignore[arg-type]
            return (await admin.describe_topics([topic]))[topic]

    return clients.run(ask())
