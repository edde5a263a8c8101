"""Fetches of followers: when they are answered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api import api_01_fetch
from odradek.api.requests.context import RequestContext
from odradek.api.requests.long_work import LongWork
from odradek.metadata.image import Broker, ClusterImage, PartitionState
from odradek.ports.disk import SystemDisk
from odradek.ports.randomness import SeededRandom
from odradek.replication.partition import Partition
from odradek.replication.replica_sessions import ReplicaSessions
from odradek.wire.apis import ApiKey
from odradek.wire.fetch import decode_request
from odradek.wire.headers import parse_response_header
from odradek.wire.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)
from odradek.wire.replica_fetch import ReplicaFetchRequest
from tests.unit.log.support import NOW, batch, open_log

TOPIC_ID = b"t" * 16
VERSION = 17


class Leader:
    """The leader of one partition; broker 2 follows."""

    def __init__(self, root: Path, *, reports_commits: bool = False) -> None:
        self.partition = Partition("topic", TOPIC_ID, 0, 1, open_log(root))
        self.partition.apply_state(PartitionState(1, 0, (1, 2), (1, 2)))
        self.late: list[Any] = []
        """Frames of answers that were given later."""
        self.image = ClusterImage().with_brokers({2: Broker(2, 8, None, {})})
        services: Any = SimpleNamespace(
            config=SimpleNamespace(number=lambda _: 1 << 30),
            disk=SystemDisk(),
            fetchers=SimpleNamespace(admit=lambda *_: True),
            image=lambda: self.image,
            long_work=LongWork(lambda: 0.0, 0),
            partitions=SimpleNamespace(require=lambda *_: self.partition),
            replica_sessions=ReplicaSessions(
                SeededRandom("follower"), now_ms=lambda: 0, reports_commits=reports_commits
            ),
        )
        connection: Any = SimpleNamespace(
            identifier=1,
            session=SimpleNamespace(broker_id=2),
            later=lambda: SimpleNamespace(answer=self.late.append),
        )
        self.context: Any = RequestContext(services, VERSION, 1, "broker-2-fetcher-0", connection)

    def fetch(
        self, session: int, epoch: int, *, max_wait_ms: int, offset: int | None = None, partitions: int = 1
    ) -> Any:
        request = ReplicaFetchRequest(2, 0, max_wait_ms, 1, 1 << 20)
        request.session_id, request.session_epoch = session, epoch
        if offset is not None:
            request.topics = [(TOPIC_ID, [(index, 0, offset, 0, 0, 1 << 20) for index in range(partitions)])]
        out = bytearray()
        request.encode(out, VERSION)
        return api_01_fetch.handle(decode_request(memoryview(out), 0, VERSION)[0], self.context)


def response(frame: Any) -> FetchResponse:
    view = memoryview(b"".join(bytes(part) for part in frame))[4:]
    _, position = parse_response_header(view, ApiKey.FETCH, VERSION)
    return FetchResponse.decode(view, position, VERSION)[0]


@pytest.mark.parametrize("max_wait_ms", [0, 3_600_000])
def test_fetch_that_begins_a_session_is_answered_at_once(tmp_path: Path, max_wait_ms: int) -> None:
    """The follower can name more partitions only when it knows the session."""

    async def scenario() -> None:
        leader = Leader(tmp_path)
        assert response(leader.fetch(0, 0, max_wait_ms=max_wait_ms, offset=0)).session_id
        assert not leader.late

    asyncio.run(scenario())


def test_fetch_without_a_wait_is_answered_at_once_though_nothing_is_new(tmp_path: Path) -> None:
    async def scenario() -> None:
        leader = Leader(tmp_path)
        session = response(leader.fetch(0, 0, max_wait_ms=0, offset=0)).session_id
        found = response(leader.fetch(session, 1, max_wait_ms=0))
        assert (found.session_id, found.responses) == (session, [])

    asyncio.run(scenario())


def test_fetch_that_waits_is_answered_with_the_next_record(tmp_path: Path) -> None:
    async def scenario() -> None:
        leader = Leader(tmp_path)
        session = response(leader.fetch(0, 0, max_wait_ms=0, offset=0)).session_id
        leader.fetch(session, 1, max_wait_ms=3_600_000)
        await asyncio.sleep(0)
        assert not leader.late
        leader.partition.append(batch(), now_ms=NOW)
        assert not leader.late, "later appends of the same turn belong to the answer"
        leader.partition.append(batch(), now_ms=NOW)
        await asyncio.sleep(0)
        (topic,) = response(leader.late.pop()).responses
        assert len(topic.partitions[0].records or b"") == 2 * len(batch())

    asyncio.run(scenario())


@pytest.mark.parametrize("partitions", [1, 500, 501])
def test_fetch_of_up_to_500_partitions_waits_for_records(tmp_path: Path, partitions: int) -> None:
    """One of more partitions is noted in steps and answered at once: brokers of Odradek send none."""

    async def scenario() -> None:
        leader = Leader(tmp_path)
        session = response(leader.fetch(0, 0, max_wait_ms=0, offset=0)).session_id
        found = leader.fetch(session, 1, max_wait_ms=3_600_000, offset=0, partitions=partitions)
        if partitions <= 500:
            assert isinstance(found, SimpleNamespace), "the place of a later answer"
            leader.partition.append(batch(), now_ms=NOW)
            await asyncio.sleep(0)
            assert len(leader.late) == 1
        else:
            assert response(await found).session_id == session

    asyncio.run(scenario())


def test_waiting_fetch_is_answered_when_its_follower_sends_the_next_one(tmp_path: Path) -> None:
    """It names more partitions, and must not wait for the time of the first."""

    async def scenario() -> None:
        leader = Leader(tmp_path)
        session = response(leader.fetch(0, 0, max_wait_ms=0, offset=0)).session_id
        for epoch in (1, 2):
            leader.fetch(session, epoch, max_wait_ms=3_600_000)
            assert len(leader.late) == epoch - 1
        assert response(leader.late.pop()).responses == []

    asyncio.run(scenario())


def test_high_watermark_is_reported_once_to_a_follower_without_new_records(tmp_path: Path) -> None:
    async def scenario() -> None:
        leader = Leader(tmp_path)
        leader.partition.append(batch(), now_ms=NOW)
        first = response(leader.fetch(0, 0, max_wait_ms=0, offset=0))
        caught_up = response(leader.fetch(first.session_id, 1, max_wait_ms=0, offset=1))
        answers = [first, caught_up, response(leader.fetch(first.session_id, 2, max_wait_ms=0))]
        assert [
            [(row.high_watermark, len(row.records or b"")) for topic in each.responses for row in topic.partitions]
            for each in answers
        ] == [[(0, len(batch()))], [(1, 0)], []]

    asyncio.run(scenario())


def test_answer_has_the_records_of_all_partitions(tmp_path: Path) -> None:
    async def scenario() -> None:
        leader = Leader(tmp_path)
        leader.partition.append(batch(), now_ms=NOW)
        (topic,) = response(leader.fetch(0, 0, max_wait_ms=0, offset=0, partitions=3)).responses
        assert [(row.partition_index, len(row.records or b"")) for row in topic.partitions] == [
            (index, len(batch())) for index in range(3)
        ]

    asyncio.run(scenario())


@pytest.mark.parametrize("reports_commits", [False, True])
def test_high_watermark_is_reported_at_once_for_consumers_of_followers(tmp_path: Path, reports_commits: bool) -> None:
    async def scenario() -> None:
        leader = Leader(tmp_path, reports_commits=reports_commits)
        leader.partition.append(batch(), now_ms=NOW)
        session = response(leader.fetch(0, 0, max_wait_ms=0, offset=0)).session_id
        caught_up = leader.fetch(session, 1, max_wait_ms=3_600_000, offset=1)
        assert isinstance(caught_up, SimpleNamespace) is not reports_commits
        if reports_commits:
            (topic,) = response(caught_up).responses
            assert topic.partitions[0].high_watermark == 1
            again = leader.fetch(session, 2, max_wait_ms=3_600_000)
            assert isinstance(again, SimpleNamespace), "it is reported once"

    asyncio.run(scenario())


@pytest.mark.parametrize("version", [13, 14])
def test_follower_that_names_no_epoch_fetches_under_its_registration(tmp_path: Path, version: int) -> None:
    """Brokers of Apache Kafka up to metadata.version 3.5-IV0: outside of the ISR they stayed there."""

    async def scenario() -> None:
        leader = Leader(tmp_path)
        leader.context.version = version
        wanted = FetchRequestPartition(current_leader_epoch=0, fetch_offset=0)
        request = FetchRequest(replica_id=2, topics=[FetchRequestTopic(topic_id=TOPIC_ID, partitions=[wanted])])
        out = bytearray()
        request.encode(out, version)
        api_01_fetch.handle(decode_request(memoryview(out), 0, version)[0], leader.context)
        progress = leader.partition.followers.progress[2]
        assert (progress.end_offset, progress.broker_epoch) == (0, 8)
        leader.image = leader.image.with_brokers({})
        leader.partition.append(batch(), now_ms=NOW)
        wanted.fetch_offset = 1
        out = bytearray()
        request.encode(out, version)
        api_01_fetch.handle(decode_request(memoryview(out), 0, version)[0], leader.context)
        assert progress.end_offset == 0, "a broker that is not registered makes no progress"

    asyncio.run(scenario())
