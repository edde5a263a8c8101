"""Requests of a share consumer when the broker ends its session."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from odradek.client.config import resolve_share_consumer
from odradek.client.consumer.positions import RecordReader
from odradek.client.metrics.measures import ShareMeasures
from odradek.client.metrics.windows import Windows
from odradek.client.network.cluster import Cluster
from odradek.client.network.metadata import MetadataCache
from odradek.client.share.acknowledgements import AcknowledgeType, Source
from odradek.client.share.fetcher import ShareFetcher
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.wire.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from odradek.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse

pytestmark = pytest.mark.usefixtures("each_loop")

TOPIC = b"t" * 16
KEPT, GONE = Source(1, "jobs", TOPIC, 0), Source(1, "jobs", TOPIC, 1)


class PlayedCluster:
    """One broker: answers to fetches are empty, those to acknowledgements have an error code."""

    def __init__(self, acknowledge_error: int) -> None:
        self.metadata = MetadataCache()
        partitions = [MetadataResponsePartition(partition_index=each, leader_id=1) for each in (0, 1)]
        topic = MetadataResponseTopic(name="jobs", topic_id=TOPIC, partitions=partitions)
        brokers = [MetadataResponseBroker(1, "127.0.0.1", 1)]
        self.metadata.update(MetadataResponse(brokers=brokers, topics=[topic]), 0.0, asked=None)
        self.connections = self
        self.sent: list[Any] = []
        self._error = acknowledge_error

    async def get(self, _node_id: int) -> PlayedCluster:
        return self

    def version_of(self, _request: type[Any]) -> int:
        return 2

    async def ask(self, _connection: Any, request: Any, _kind: type[Any], **_: Any) -> ShareAcknowledgeResponse:
        self.sent.append(request)
        return ShareAcknowledgeResponse(error_code=self._error)

    async def request(self, _node_id: int, request: Any, _kind: type[Any], **_: Any) -> ShareFetchResponse:
        self.sent.append(request)
        return ShareFetchResponse(acquisition_lock_timeout_ms=100)

    def backoff(self, _failures: int) -> float:
        return 0.0

    def want_metadata(self) -> None:
        """The metadata never change."""


def measures() -> ShareMeasures:
    return ShareMeasures(Windows(lambda: 0.0, 30, 2))


async def fetch(fetcher: ShareFetcher) -> None:
    fetcher.fetch(10)
    await fetcher.wait(30)


def test_a_new_session_begins_without_acknowledgements() -> None:
    """A broker rejects acknowledgements in the first request of a session, and the fetch with them."""
    outcomes: dict[TopicPartition, Exception | None] = {}

    async def body() -> None:
        cluster = PlayedCluster(ErrorCode.SHARE_SESSION_NOT_FOUND)
        fetcher = ShareFetcher(
            cast(Cluster, cluster),
            resolve_share_consumer({"group_id": "g"}),
            RecordReader(check_crcs=True),
            "member",
            lambda partition, _, error: outcomes.update({partition: error}),
            measures(),
        )
        fetcher.assignment = frozenset({(TOPIC, 0), (TOPIC, 1)})
        await fetch(fetcher)
        fetcher.assignment = frozenset({(TOPIC, 0)})
        for source in (KEPT, GONE):
            fetcher.acknowledgements.deliver(source, 5)
        fetcher.acknowledgements.acknowledge_all(AcknowledgeType.ACCEPT)
        await fetch(fetcher)
        first, apart, again = cluster.sent
        assert isinstance(first, ShareFetchRequest)
        assert isinstance(apart, ShareAcknowledgeRequest)
        assert (first.share_session_epoch, apart.share_session_epoch, again.share_session_epoch) == (0, 1, 0)
        assert [each.partition_index for each in apart.topics[0].partitions] == [1]
        assert [each.acknowledgement_batches for topic in again.topics for each in topic.partitions] == [[]]

    asyncio.run(body())
    assert {type(error) for error in outcomes.values()} == {KafkaError}
    assert outcomes.keys() == {KEPT.topic_partition, GONE.topic_partition}


def test_acknowledgements_leave_with_the_next_fetch() -> None:
    outcomes: list[tuple[TopicPartition, frozenset[int], Exception | None]] = []
    counted = measures()

    async def body() -> None:
        cluster = PlayedCluster(0)
        fetcher = ShareFetcher(
            cast(Cluster, cluster),
            resolve_share_consumer({"group_id": "g"}),
            RecordReader(check_crcs=True),
            "member",
            lambda *outcome: outcomes.append(outcome),
            counted,
        )
        fetcher.assignment = frozenset({(TOPIC, 0)})
        await fetch(fetcher)
        for offset in (5, 6):
            fetcher.acknowledgements.deliver(KEPT, offset)
        fetcher.acknowledgements.acknowledge_all(AcknowledgeType.ACCEPT)
        await fetch(fetcher)
        (batch,) = cluster.sent[1].topics[0].partitions[0].acknowledgement_batches
        assert (batch.first_offset, batch.last_offset, batch.acknowledge_types) == (5, 6, [1])

    asyncio.run(body())
    assert outcomes == [(KEPT.topic_partition, frozenset({5, 6}), None)]
    assert (counted.shared.acknowledgements, counted.shared.failed_acknowledgements) == (2, 0)
    assert counted.consumer.reads.fetches == 2


def test_commit_is_answered_while_a_failure_waits_for_a_poll() -> None:
    """A wait that ended at once let no answer arrive: the commit held up the event loop for ever."""

    async def body() -> None:
        fetcher = ShareFetcher(
            cast(Cluster, PlayedCluster(ErrorCode.NONE)),
            resolve_share_consumer({"group_id": "g"}),
            RecordReader(check_crcs=True),
            "member",
            lambda *_: None,
            measures(),
        )
        fetcher.assignment = frozenset({(TOPIC, 0)})
        await fetch(fetcher)
        fetcher.acknowledgements.deliver(KEPT, 5)
        fetcher.acknowledgements.acknowledge_all(AcknowledgeType.ACCEPT)
        fetcher.failure = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        fetcher.send_acknowledgements()
        await fetcher.wait(30)
        assert not fetcher.is_acknowledging
        assert fetcher.failure is not None

    asyncio.run(body())


def test_record_in_hand_is_acknowledged_although_its_session_is_over() -> None:
    """A request for other records failed: the program learns of the loss by the outcome, not by an exception."""
    outcomes: list[tuple[TopicPartition, frozenset[int], Exception | None]] = []

    async def body() -> None:
        cluster = PlayedCluster(ErrorCode.SHARE_SESSION_NOT_FOUND)
        fetcher = ShareFetcher(
            cast(Cluster, cluster),
            resolve_share_consumer({"group_id": "g"}),
            RecordReader(check_crcs=True),
            "member",
            lambda *outcome: outcomes.append(outcome),
            measures(),
        )
        fetcher.assignment = frozenset({(TOPIC, 0)})
        await fetch(fetcher)
        for offset in (5, 6):
            fetcher.acknowledgements.deliver(KEPT, offset)
        for offset in (5, 6):
            fetcher.acknowledgements.acknowledge(KEPT.topic_partition, offset, AcknowledgeType.ACCEPT)
            fetcher.send_acknowledgements()
            await fetcher.wait(30)

    asyncio.run(body())
    assert [offsets for _, offsets, _ in outcomes] == [frozenset({5}), frozenset({6})]
    assert {getattr(error, "code", None) for _, _, error in outcomes} == {ErrorCode.SHARE_SESSION_NOT_FOUND}
