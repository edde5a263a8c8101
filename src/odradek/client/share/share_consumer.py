"""The share consumer: members of a share group read the same partitions, and acknowledge record by record (KIP-932).

A record that is not acknowledged while its acquisition lock lasts is delivered again, to any member. The cluster must
have share groups: Apache Kafka 4.2 or later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Generic, Self, Unpack, cast

from odradek.client.arguments import check_callback, check_ports, check_topics, keywords
from odradek.client.config import ShareConsumerOptions, resolve_share_consumer
from odradek.client.consumer.positions import RecordReader
from odradek.client.errors import CallTimedOut, ClientClosed, IllegalState
from odradek.client.metrics.measures import ShareMeasures
from odradek.client.metrics.metric import Metric, Metrics
from odradek.client.metrics.push import MetricsPush, instance_id
from odradek.client.network.cluster import Cluster
from odradek.client.serializers import Deserializer, with_topic
from odradek.client.share.acknowledgements import AcknowledgeType
from odradek.client.share.fetcher import ShareFetcher
from odradek.client.share.membership import ShareMembership
from odradek.client.share.records import ShareRecord
from odradek.client.topic_names import check_topic_name
from odradek.client.type_parameters import Key_co, Value_co
from odradek.ports.network import Network
from odradek.ports.randomness import Random
from odradek.records.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

AcknowledgementCallback = Callable[[TopicPartition, frozenset[int], Exception | None], None]
"""(partition, offsets, None or what their acknowledgement failed with)."""
CommitOutcome = dict[TopicPartition, Exception | None]
"""By partition, None or what the acknowledgement of its records failed with."""

_IDLE_S: Final = 1.0
_FLUSH_S: Final = 1.0
"""In `async for`, acknowledgements wait this long for a fetch that takes them along."""


class ShareConsumer(Generic[Key_co, Value_co]):
    """A member of a share group for one task of one event loop, `ShareConsumer[KeyType, ValueType]`.

    Not for use by several tasks or threads at once.

    Example:

        async with ShareConsumer("jobs", bootstrap_servers="127.0.0.1:9092", group_id="workers") as consumer:
            for record in await consumer.poll(timeout_ms=1000):
                print(record.value, record.delivery_count)
            print(await consumer.commit())  # accepts them; others may read those that were not acknowledged
    """

    __slots__ = (
        "_closed", "_cluster", "_config", "_fetcher", "_flush_at", "_measures", "_membership", "_network",
        "_on_acknowledgement", "_outcomes", "_push", "_random", "_reader", "_topics",
    )  # fmt: skip

    def __init__(
        self,
        *topics: str,
        key_deserializer: Deserializer[Key_co] | None = None,
        value_deserializer: Deserializer[Value_co] | None = None,
        on_acknowledgement: AcknowledgementCallback | None = None,
        network: Network | None = None,
        random: Random | None = None,
        **options: Unpack[ShareConsumerOptions],
    ) -> None:
        """Subscribe to the topics. Options are Kafka's with underscores for dots (`ShareConsumerOptions`).

        `on_acknowledgement` is called with the outcome of every acknowledgement. `network` and `random` replace sockets
        and chance in tests. Raises ConfigError, and KafkaError (INVALID_TOPIC_EXCEPTION).
        """
        self._config = resolve_share_consumer(options)
        check_callback("on_acknowledgement", on_acknowledgement)
        check_ports(network=network, random=random)
        self._reader = RecordReader(
            check_crcs=self._config["check_crcs"],
            key_deserializer=with_topic("key_deserializer", key_deserializer),
            value_deserializer=with_topic("value_deserializer", value_deserializer),
        )
        self._on_acknowledgement = on_acknowledgement
        self._network = network
        self._random = random
        self._topics = check_topics(topics)
        self._cluster: Cluster | None = None
        self._fetcher: ShareFetcher | None = None
        self._membership: ShareMembership | None = None
        self._measures: ShareMeasures | None = None
        self._push: MetricsPush | None = None
        self._outcomes: list[CommitOutcome] = []
        self._flush_at = 0.0
        self._closed = False

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *topics: str, **arguments: Any) -> Self:
        """From a mapping with Kafka's dotted names; `arguments` are the constructor's others. Raises ConfigError."""
        return cls(*topics, **keywords(config, arguments))

    async def start(self) -> None:
        """Prepare for reading, without a connection: the first poll makes one."""
        if self._cluster is not None:
            return
        if self._closed:
            raise ClientClosed("the consumer was closed")
        cluster = self._cluster = Cluster(
            self._config, network=self._network, random=self._random, allow_auto_create_topics=False
        )
        measures = self._measures = ShareMeasures(cluster.windows)
        self._membership = ShareMembership(cluster, self._config, self._assigned, measures)
        self._fetcher = ShareFetcher(
            cluster, self._config, self._reader, self._membership.member_id, self._acknowledged, measures
        )
        if self._config["enable_metrics_push"]:
            self._push = MetricsPush(cluster, self._measured, self._labels)
        self.subscribe(self._topics)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Send the acknowledgements made so far, release all other records, leave the group, close the connections."""
        if self._closed:
            return
        self._closed = True
        if self._cluster is None or self._fetcher is None or self._membership is None:
            return
        try:
            await self._fetcher.close()
            await self._membership.leave()
            if self._push is not None:
                await self._push.close()
        finally:
            self._fetcher.wake()
            await self._cluster.close()

    @property
    def config(self) -> ShareConsumerOptions:
        """All options as resolved."""
        return self._config

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long the broker keeps a record for this member, None before its first answer."""
        return self._started()[0].lock_timeout_ms

    def metrics(self) -> Metrics:
        """What the consumer has measured, under Java's names. Raises IllegalState before `start`, ClientClosed."""
        self._started()
        return self._measured()

    def register_metrics(self, source: Callable[[], Iterable[Metric]]) -> None:
        """Push an application's own metrics, too, where brokers ask for them (KIP-1076).

        `source` is called on this client's event loop before each push. Raises IllegalState, ClientClosed.
        """
        self._started()
        if self._push is not None:
            self._push.add_source(source)

    def unregister_metrics(self, source: Callable[[], Iterable[Metric]]) -> None:
        """End what `register_metrics` began; without effect for an unknown source."""
        if self._push is not None:
            self._push.remove_source(source)

    async def client_instance_id(self, timeout_ms: float = 30_000) -> str:
        """The id that brokers gave this client (KIP-714), as Kafka writes ids. Raises IllegalState, CallTimedOut."""
        self._started()
        return await instance_id(self._push, timeout_ms)

    def _measured(self) -> Metrics:
        from odradek.client.metrics.compute import share_consumer_metrics

        assert self._cluster is not None
        assert self._measures is not None
        return share_consumer_metrics(self._cluster, self._measures)

    def _labels(self) -> dict[str, str]:
        """What describes this consumer where its metrics are pushed."""
        assert self._membership is not None
        rack = self._config["client_rack"]
        labels = {"group_id": self._config["group_id"], "group_member_id": self._membership.member_id}
        return {**labels, "client_rack": rack} if rack else labels

    # --- what to read ---

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics instead of the earlier ones. Raises TypeError, KafkaError (INVALID_TOPIC_EXCEPTION)."""
        _, membership, cluster = self._started()
        if isinstance(topics, str):
            raise TypeError(f"topics: expected a list of names, got the str {topics!r}")
        self._topics = {check_topic_name(each) for each in topics}
        cluster.follow_topics(self._topics)
        membership.subscribe(self._topics)

    async def unsubscribe(self) -> None:
        """Leave the group; acknowledgements made so far are sent, and other records released."""
        fetcher, membership, _ = self._started()
        fetcher.assignment = frozenset()
        fetcher.release_buffered()
        fetcher.acknowledgements.acknowledge_all(AcknowledgeType.RELEASE)
        await self._commit(self._config["default_api_timeout_ms"])
        self.subscribe(())
        await membership.leave()

    def subscription(self) -> set[str]:
        """The topics subscribed to."""
        return set(self._topics)

    def assignment(self) -> set[TopicPartition]:
        """The partitions that the coordinator has assigned; other members may have them, too."""
        _, membership, cluster = self._started()
        names = cluster.metadata.names_by_id
        return {TopicPartition(names[each], index) for each, index in membership.assignment if each in names}

    # --- reading ---

    async def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[ShareRecord[Key_co, Value_co]]:
        """Acquired records, at most max_records (default max_poll_records), or the first that arrive in timeout_ms.

        With implicit acknowledgement, this accepts the records of the poll before. With explicit acknowledgement, those
        must have been acknowledged: raises IllegalState. Raises KafkaError, UnsupportedByBroker without share groups,
        DeserializationError (the record is released), CorruptRecords (the batch is rejected), ClientError.
        """
        fetcher, _, _ = self._started()
        self._accept_implicitly()
        if fetcher.acknowledgements.unacknowledged:
            raise IllegalState("share_acknowledgement_mode is explicit: acknowledge every record before the next poll")
        return await self._next(timeout_ms, max_records or self._config["max_poll_records"])

    async def __aiter__(self) -> AsyncIterator[ShareRecord[Key_co, Value_co]]:
        """Records as they arrive, without end. Raises as `poll`.

        With implicit acknowledgement, each record is accepted when the next one is asked for; `commit` accepts the
        last. With explicit acknowledgement, the program acknowledges each before it asks for the next.
        """
        loop = asyncio.get_running_loop()
        while not self._closed:
            for record in await self.poll(_IDLE_S * 1000, 1):
                if loop.time() >= self._flush_at:
                    self._started()[0].send_acknowledgements()
                    self._flush_at = loop.time() + _FLUSH_S
                yield record

    def acknowledge(self, record: ShareRecord[Any, Any], kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Note what becomes of a record of the last poll; the next poll or commit sends it.

        A renewed record stays in the program's hands, and is acknowledged again when it is done. Raises IllegalState
        with implicit acknowledgement, and for a record that is not acquired.
        """
        self.acknowledge_offset(record.topic_partition, record.offset, kind)

    def acknowledge_offset(
        self, partition: TopicPartition, offset: int, kind: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """As `acknowledge`, for a record that is named by its place."""
        if self._config["share_acknowledgement_mode"] != "explicit":
            raise IllegalState("acknowledge needs share_acknowledgement_mode='explicit'")
        self._started()[0].acknowledgements.acknowledge(TopicPartition(*partition), offset, AcknowledgeType(kind))

    # --- commits ---

    async def commit(self, timeout_ms: float | None = None) -> CommitOutcome:
        """Send the acknowledgements, and wait for the outcome by partition.

        With implicit acknowledgement, this accepts the records of the last poll. Raises CallTimedOut.
        """
        self._accept_implicitly()
        return await self._commit(self._config["default_api_timeout_ms"] if timeout_ms is None else timeout_ms)

    def commit_async(self) -> None:
        """As `commit`, without waiting; `on_acknowledgement` learns of the outcome."""
        fetcher, _, _ = self._started()
        self._accept_implicitly()
        fetcher.send_acknowledgements()

    # --- inside ---

    async def _next(self, timeout_ms: float, limit: int) -> list[ShareRecord[Key_co, Value_co]]:
        fetcher, membership, _ = self._started()
        if not self._topics:
            raise IllegalState("the share consumer has no subscription")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        assert self._measures is not None
        self._measures.consumer.polled(loop.time())
        while not self._closed:
            membership.drive()
            if fetcher.failure is not None:
                failure, fetcher.failure = fetcher.failure, None
                raise failure
            records = fetcher.take(limit)
            if records:
                return cast("list[ShareRecord[Key_co, Value_co]]", records)
            fetcher.fetch(self._config["max_poll_records"])
            left = deadline - loop.time()
            if left <= 0:
                # A poll that never waits must still let the loop turn, or no answer would ever arrive.
                await asyncio.sleep(0)
                return []
            await fetcher.wait(min(left, _IDLE_S))
        return []

    async def _commit(self, timeout_ms: float) -> CommitOutcome:
        fetcher, _, _ = self._started()
        outcome: CommitOutcome = {}
        self._outcomes.append(outcome)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while fetcher.is_acknowledging:
                    fetcher.send_acknowledgements()
                    await fetcher.wait(_IDLE_S)
        except TimeoutError:
            raise CallTimedOut(f"commit of acknowledgements: no answer within {timeout_ms:g} ms") from None
        finally:
            self._outcomes.remove(outcome)
        return outcome

    def _accept_implicitly(self) -> None:
        if self._config["share_acknowledgement_mode"] == "implicit":
            self._started()[0].acknowledgements.acknowledge_all(AcknowledgeType.ACCEPT)

    def _acknowledged(self, partition: TopicPartition, offsets: frozenset[int], error: Exception | None) -> None:
        for outcome in self._outcomes:
            if error is not None or partition not in outcome:
                outcome[partition] = error
        if self._on_acknowledgement is not None:
            try:
                self._on_acknowledgement(partition, offsets, error)
            except Exception:  # the user's code: the other acknowledgements are still reported
                logger.exception("acknowledgement callback %r failed for %s", self._on_acknowledgement, partition)
        elif error is not None and not self._outcomes:
            logger.warning(
                "%d records of %s were not acknowledged: %s; the group delivers them again",
                len(offsets), partition, error, extra={"client_id": self._config["client_id"]},
            )  # fmt: skip

    def _assigned(self) -> None:
        fetcher, membership, cluster = self._fetcher, self._membership, self._cluster
        assert fetcher is not None
        assert membership is not None
        assert cluster is not None
        fetcher.assignment = membership.assignment
        if any(topic_id not in cluster.metadata.names_by_id for topic_id, _ in membership.assignment):
            cluster.want_metadata()
        fetcher.wake()

    def _started(self) -> tuple[ShareFetcher, ShareMembership, Cluster]:
        if self._closed and self._cluster is None:
            raise ClientClosed("the consumer was closed")
        if self._fetcher is None or self._membership is None or self._cluster is None:
            raise IllegalState("the consumer is not started: use it in `async with`, or call start()")
        if self._closed:
            raise ClientClosed("the consumer was closed")
        return self._fetcher, self._membership, self._cluster
