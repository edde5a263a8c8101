"""What a fetch answers: bytes within limits, sessions, quotas, replicas elsewhere, errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api import api_01_fetch
from odradek.api.requests.context import RequestContext
from odradek.api.requests.long_work import LongWork
from odradek.api.requests.session import Session
from odradek.log.append import Origin
from odradek.metadata.image import Broker, ClusterImage, Endpoint, PartitionState, Topic
from odradek.metrics.requests import RequestCounters
from odradek.ports.disk import FileRange, SystemDisk
from odradek.ports.randomness import SeededRandom
from odradek.quotas.client_quotas import ClientQuotas
from odradek.replication.fetch_sessions import FetchSessions
from odradek.replication.partition import Partition, PartitionEnvironment
from odradek.replication.read_replicas import RACK_AWARE
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.fetch import decode_request
from odradek.wire.headers import parse_response_header
from odradek.wire.messages.fetch import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from tests.unit.log.support import NOW, StandingClock, batch, marker, open_log, produced

SIZE = len(batch())
Row = FetchRequestPartition


class Fetching:
    """A broker with two partitions of one topic, as far as a fetch needs it."""

    def __init__(self, path: Path, *, long_ms: int = 10) -> None:
        self.partitions: dict[int, Partition] = {}
        for index in range(2):
            (path / str(index)).mkdir()
            around = PartitionEnvironment(is_eligible=lambda _id, _epoch: False)
            partition = Partition("topic", b"t" * 16, index, 1, open_log(path / str(index)), around)
            partition.apply_state(PartitionState(1, 4, (1,), (1,)))
            self.partitions[index] = partition
        self.settings: dict[str, Any] = {"fetch.max.bytes": 1 << 20, "replica.selector.class": RACK_AWARE}
        endpoints = {"PLAINTEXT": Endpoint("host", 9092, "PLAINTEXT")}
        self.image = ClusterImage("cluster")
        self.image.brokers = {i: Broker(i, 1, f"rack-{i}", endpoints) for i in (1, 2)}
        self.quotas = ClientQuotas(11, 1)
        self.sessions = FetchSessions(10, SeededRandom(1))
        self.throttled: list[int] = []
        self.counters = RequestCounters("Fetch")
        session = Session("PLAINTEXT", "127.0.0.1")
        self.client = SimpleNamespace(session=session, throttle=self.throttled.append)
        self.services = SimpleNamespace(
            authorization=None,
            audit=None,
            partitions=SimpleNamespace(require=self._require),
            config=SimpleNamespace(number=self.settings.__getitem__, text=self.settings.__getitem__),
            quotas=self.quotas,
            fetch_sessions=self.sessions,
            clock=StandingClock(),
            disk=SystemDisk(),
            image=lambda: self.image,
            node_id=1,
            long_work=LongWork(lambda: 0.0, long_ms),
        )

    def _require(self, _topic: object, index: int) -> Partition:
        if index not in self.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.partitions[index]

    def begin(self, rows: Iterable[Row], *, version: int = 12, forgotten: Iterable[int] = (), **fields: Any) -> Any:
        """The handler's answer, which may wait."""
        found = list(rows)
        topics = [FetchRequestTopic("topic", partitions=found)] if found else []
        known: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1, **fields}
        message = FetchRequest(topics=topics, **known)
        if indexes := list(forgotten):
            message.forgotten_topics_data = [FetchRequestForgottenTopic("topic", partitions=indexes)]
        out = bytearray()
        message.encode(out, version)
        request = decode_request(memoryview(out), 0, version)[0]
        context = RequestContext(self.services, version, 1, "client", self.client, 0, self.counters)  # type: ignore[arg-type]
        return api_01_fetch.handle(request, context)  # type: ignore[arg-type]

    def fetch(self, *rows: Row, version: int = 12, **fields: Any) -> FetchResponse:
        answer = self.begin(rows, version=version, **fields)
        assert isinstance(answer, list), "it is answered at once"
        return decoded(answer, version)

    def append(self, index: int, count: int = 1) -> None:
        for _ in range(count):
            self.partitions[index].append(batch(), now_ms=NOW)


def decoded(parts: list[Any], version: int = 12) -> FetchResponse:
    data = b"".join(
        part.file.read(part.position, part.size) if isinstance(part, FileRange) else bytes(part) for part in parts
    )
    view = memoryview(data)[4:]
    _, position = parse_response_header(view, ApiKey.FETCH, version)
    return FetchResponse.decode(view, position, version)[0]


def rows_of(response: FetchResponse) -> list[FetchResponsePartition]:
    return [row for topic in response.responses for row in topic.partitions]


def sizes(response: FetchResponse) -> list[tuple[int, int]]:
    """(partition, bytes) of each row."""
    return [(row.partition_index, len(row.records or b"")) for row in rows_of(response)]


def row(index: int = 0, offset: int = 0, most: int = 1 << 20, **fields: Any) -> Row:
    return Row(index, fetch_offset=offset, partition_max_bytes=most, **fields)


@pytest.fixture
def broker(tmp_path: Path) -> Fetching:
    return Fetching(tmp_path)


def test_fetch_shows_offsets_and_records(broker: Fetching) -> None:
    broker.append(0, 3)
    (found,) = rows_of(broker.fetch(row(offset=1)))
    assert (found.error_code, found.high_watermark, found.last_stable_offset, found.log_start_offset) == (0, 3, 3, 0)
    assert len(found.records or b"") == 2 * SIZE
    assert (found.aborted_transactions, found.preferred_read_replica) == (None, -1)
    traffic = broker.partitions[0].traffic
    assert (traffic.fetches, traffic.failed_fetches, traffic.bytes_out) == (1, 0, 2 * SIZE)


@pytest.mark.parametrize(
    ("first", "total", "expected"),
    [
        (1 << 20, 1 << 20, [(0, 2 * SIZE), (1, 2 * SIZE)]),
        (SIZE, 1 << 20, [(0, SIZE), (1, 2 * SIZE)]),
        (1, 1 << 20, [(0, SIZE), (1, 2 * SIZE)]),  # one batch goes however large it is
        (0, 1 << 20, [(0, SIZE), (1, 2 * SIZE)]),
        (1 << 20, 3 * SIZE, [(0, 2 * SIZE), (1, SIZE)]),
        (1 << 20, 3 * SIZE - 1, [(0, 2 * SIZE), (1, 0)]),
        (1 << 20, 2 * SIZE, [(0, 2 * SIZE), (1, 0)]),
        (1 << 20, 1, [(0, SIZE), (1, 0)]),
        (1 << 20, -5, [(0, SIZE), (1, 0)]),
    ],
)
def test_bytes_stay_within_the_limits(
    broker: Fetching, first: int, total: int, expected: list[tuple[int, int]]
) -> None:
    broker.append(0, 2)
    broker.append(1, 2)
    assert sizes(broker.fetch(row(most=first), row(1), max_bytes=total)) == expected
    broker.settings["fetch.max.bytes"] = total
    assert sizes(broker.fetch(row(most=first), row(1))) == expected


def test_first_partition_with_records_may_exceed_the_limit(broker: Fetching) -> None:
    broker.append(1, 2)
    assert sizes(broker.fetch(row(), row(1), max_bytes=1)) == [(0, 0), (1, SIZE)]


def test_error_of_one_partition_leaves_the_others(broker: Fetching) -> None:
    broker.append(1)
    response = broker.fetch(row(9), row(0, 5), row(1), max_wait_ms=60_000, min_bytes=1 << 19)
    assert [(each.partition_index, each.error_code) for each in rows_of(response)] == [
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, ErrorCode.OFFSET_OUT_OF_RANGE),
        (1, 0),
    ]
    assert sizes(response)[2] == (1, SIZE)
    assert broker.counters.errors[ErrorCode.OFFSET_OUT_OF_RANGE] == 1
    traffic = broker.partitions[0].traffic
    assert (traffic.fetches, traffic.failed_fetches) == (1, 1)


@pytest.mark.parametrize("wait_ms", [-1, 0])
def test_fetch_without_time_is_answered_at_once(broker: Fetching, wait_ms: int) -> None:
    assert sizes(broker.fetch(row(), max_wait_ms=wait_ms)) == [(0, 0)]


def test_fetch_of_nothing_is_answered_at_once(broker: Fetching) -> None:
    assert sizes(broker.fetch(max_wait_ms=60_000)) == []


@pytest.mark.parametrize(("min_bytes", "waits"), [(0, False), (SIZE, False), (SIZE + 1, True)])
def test_fetch_waits_for_its_least_bytes(broker: Fetching, min_bytes: int, waits: bool) -> None:
    async def scenario() -> None:
        answer = broker.begin([row()], max_wait_ms=60_000, min_bytes=min_bytes)
        assert isinstance(answer, asyncio.Future) is waits
        if waits:
            broker.append(0)
            assert sizes(decoded(await answer)) == [(0, 2 * SIZE)]
            assert not broker.partitions[0].readers.waiting

    broker.append(0)
    asyncio.run(scenario())


def test_fetch_waits_for_no_more_than_it_may_get(broker: Fetching) -> None:
    """Else one that asks for more than `fetch.max.bytes` would wait until its time is over."""
    broker.append(0, 3)
    broker.settings["fetch.max.bytes"] = 2 * SIZE
    assert sizes(broker.fetch(row(), max_wait_ms=60_000, min_bytes=5 * SIZE)) == [(0, 2 * SIZE)]


def test_fetch_is_answered_when_its_time_is_over(broker: Fetching) -> None:
    async def scenario() -> FetchResponse:
        return decoded(await asyncio.wait_for(broker.begin([row()], max_wait_ms=5), 30))

    assert sizes(asyncio.run(scenario())) == [(0, 0)]
    assert not broker.partitions[0].readers.waiting


def test_cancelled_fetch_waits_no_longer(broker: Fetching) -> None:
    async def scenario() -> None:
        answer = broker.begin([row()], max_wait_ms=60_000)
        answer.cancel()
        await asyncio.sleep(0)
        assert not broker.partitions[0].readers.waiting

    asyncio.run(scenario())


def test_diverging_reader_learns_where_it_departs(broker: Fetching) -> None:
    broker.append(0, 2)
    response = broker.fetch(row(offset=2, last_fetched_epoch=3), max_wait_ms=60_000)
    (found,) = rows_of(response)
    assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (3, 0)
    assert (found.high_watermark, found.log_start_offset, found.last_stable_offset) == (2, 0, 2)
    assert sizes(response) == [(0, 0)]
    assert sizes(broker.fetch(row(offset=1, last_fetched_epoch=4))) == [(0, SIZE)]


@pytest.mark.parametrize(("isolation", "size"), [(0, 2), (1, 1)])
def test_read_committed_ends_before_an_open_transaction(broker: Fetching, isolation: int, size: int) -> None:
    broker.append(0)
    broker.partitions[0].append(produced(7, 0, transactional=True), now_ms=NOW)
    (found,) = rows_of(broker.fetch(row(), isolation_level=isolation))
    assert (len(found.records or b"") // SIZE, found.last_stable_offset, found.high_watermark) == (size, 1, 2)


def test_read_committed_names_aborted_transactions(broker: Fetching) -> None:
    partition = broker.partitions[0]
    partition.append(produced(7, 0, transactional=True), now_ms=NOW)
    partition.append(marker(7, commit=False), now_ms=NOW, origin=Origin.COORDINATOR)
    (found,) = rows_of(broker.fetch(row(), isolation_level=1))
    assert [(each.producer_id, each.first_offset) for each in found.aborted_transactions or []] == [(7, 0)]
    (found,) = rows_of(broker.fetch(row(), isolation_level=0))
    assert found.aborted_transactions is None


# --- leaders and replicas ---


def follow(broker: Fetching, leader: int = 2) -> None:
    broker.partitions[0].apply_state(PartitionState(leader, 5, (1, 2), (1, 2), partition_epoch=1))


@pytest.mark.parametrize(("version", "code"), [(10, ErrorCode.NOT_LEADER_OR_FOLLOWER), (11, ErrorCode.NONE)])
def test_follower_answers_clients_that_may_read_from_it(broker: Fetching, version: int, code: ErrorCode) -> None:
    broker.append(0)
    follow(broker)
    response = broker.fetch(row(), version=version)
    assert rows_of(response)[0].error_code == code
    assert sizes(response) == [(0, 0 if code else SIZE)]


def test_replica_that_knows_no_leader_serves_no_client(broker: Fetching) -> None:
    follow(broker, leader=-1)
    assert rows_of(broker.fetch(row()))[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.partitions[0].apply_state(PartitionState(0, 6, (0, 1), (0, 1), partition_epoch=2))
    assert rows_of(broker.fetch(row()))[0].error_code == 0, "broker 0 is a leader, too"


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(4, ErrorCode.NONE), (3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_leader_epoch_of_a_fetch_is_checked(broker: Fetching, epoch: int, code: ErrorCode) -> None:
    assert rows_of(broker.fetch(row(current_leader_epoch=epoch)))[0].error_code == code


def test_answer_names_the_leader_that_has_moved(broker: Fetching) -> None:
    state = PartitionState(2, 6, (1, 2), (1, 2))
    broker.image = ClusterImage("cluster").with_topics([])
    moved = broker.image.with_topics([_topic(state)])
    moved.brokers = {2: Broker(2, 1, "far", {"PLAINTEXT": Endpoint("other", 9093, "PLAINTEXT")})}
    broker.image = moved
    message = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
        topics=[FetchRequestTopic(topic_id=b"t" * 16, partitions=[row(current_leader_epoch=3)])],
    )  # fmt: skip
    out = bytearray()
    message.encode(out, 16)
    context = RequestContext(broker.services, 16, 1, "client", broker.client)  # type: ignore[arg-type]
    answer: Any = api_01_fetch.handle(decode_request(memoryview(out), 0, 16)[0], context)  # type: ignore[arg-type]
    response = decoded(answer, 16)
    (found,) = rows_of(response)
    assert found.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (2, 6)
    assert [(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints] == [
        (2, "other", 9093, "far")
    ]


def _topic(state: PartitionState) -> Topic:
    return Topic("topic", b"t" * 16, (state,))


def led_with_follower(broker: Fetching) -> None:
    """Broker 2 follows partition 0, in sync."""
    partition = broker.partitions[0]
    partition.apply_state(PartitionState(1, 5, (1, 2), (1, 2), partition_epoch=1))
    broker.append(0, 2)
    partition.followers.fetched(2, 1, 2, 0, 0)


@pytest.mark.parametrize(
    ("rack", "selector", "elsewhere"),
    [
        ("rack-2", RACK_AWARE, 2),
        ("rack-1", RACK_AWARE, -1),
        ("", RACK_AWARE, -1),
        ("rack-2", "", -1),
        ("x", RACK_AWARE, -1),
    ],
)
def test_consumer_is_sent_to_the_replica_of_its_rack(
    broker: Fetching, rack: str, selector: str, elsewhere: int
) -> None:
    led_with_follower(broker)
    broker.settings["replica.selector.class"] = selector
    response = broker.fetch(row(offset=1), rack_id=rack, max_wait_ms=60_000)
    (found,) = rows_of(response)
    assert found.preferred_read_replica == elsewhere
    assert sizes(response) == [(0, SIZE if elsewhere < 0 else 0)]
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (2, 2, 0)


# --- sessions ---


def test_session_names_only_what_has_changed(broker: Fetching) -> None:
    broker.append(0)
    first = broker.fetch(row(), row(1), session_epoch=0)
    assert sizes(first) == [(0, SIZE), (1, 0)]
    assert first.session_id
    fields: dict[str, Any] = {"session_id": first.session_id}
    second = broker.fetch(row(0, 1), session_epoch=1, **fields)
    assert (second.session_id, sizes(second)) == (first.session_id, [])
    broker.append(1)
    assert sizes(broker.fetch(session_epoch=2, **fields)) == [(1, SIZE)]
    assert sizes(broker.fetch(row(1, 1), session_epoch=3, **fields)) == []
    broker.append(0)
    assert sizes(broker.fetch(session_epoch=4, forgotten=[0], **fields)) == []
    assert broker.fetch(session_epoch=4, **fields).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    broker.append(1)
    assert sizes(broker.fetch(session_epoch=5, **fields)) == [(1, SIZE)]


def test_partition_that_failed_is_named_until_it_is_well(broker: Fetching) -> None:
    partition = broker.partitions.pop(1)
    first = broker.fetch(row(), row(1), session_epoch=0)
    fields: dict[str, Any] = {"session_id": first.session_id}
    for epoch in (1, 2):
        assert [each.partition_index for each in rows_of(broker.fetch(session_epoch=epoch, **fields))] == [1]
    broker.partitions[1] = partition
    assert [(each.partition_index, each.error_code) for each in rows_of(broker.fetch(session_epoch=3, **fields))] == [
        (1, 0)
    ]
    assert rows_of(broker.fetch(session_epoch=4, **fields)) == []


def test_partition_that_failed_again_is_named_when_it_is_well_again(broker: Fetching) -> None:
    first = broker.fetch(row(), row(1), session_epoch=0)
    fields: dict[str, Any] = {"session_id": first.session_id}
    partition = broker.partitions.pop(1)
    assert len(rows_of(broker.fetch(session_epoch=1, **fields))) == 1
    broker.partitions[1] = partition
    assert [each.error_code for each in rows_of(broker.fetch(session_epoch=2, **fields))] == [0]


def test_session_ends_with_the_final_epoch_or_a_new_session(broker: Fetching) -> None:
    first = broker.fetch(row(), session_epoch=0)
    assert len(broker.sessions) == 1
    second = broker.fetch(row(), session_epoch=0, session_id=first.session_id)
    assert len(broker.sessions) == 1
    assert second.session_id != first.session_id
    last = broker.fetch(row(), session_epoch=-1, session_id=second.session_id)
    assert (len(broker.sessions), last.session_id) == (0, 0)
    assert broker.fetch(row(), session_epoch=-1).session_id == 0
    assert broker.fetch(session_epoch=1, session_id=second.session_id).error_code == (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    )


def test_partitions_of_a_session_take_turns(broker: Fetching) -> None:
    broker.append(0, 4)
    broker.append(1, 4)
    first = broker.fetch(row(), row(1), session_epoch=0, max_bytes=SIZE)
    assert sizes(first) == [(0, SIZE), (1, 0)]
    fields: dict[str, Any] = {"session_id": first.session_id, "max_bytes": SIZE}
    assert sizes(broker.fetch(session_epoch=1, **fields)) == [(1, SIZE)]
    assert sizes(broker.fetch(session_epoch=2, **fields)) == [(0, SIZE)]


@pytest.mark.parametrize(("version", "named"), [(6, 1), (7, 0)])
def test_whole_fetch_fails_as_its_version_allows(broker: Fetching, version: int, named: int) -> None:
    request = SimpleNamespace(topics=[("topic", [(3,)])])
    context = SimpleNamespace(version=version, correlation_id=1)
    parts = api_01_fetch._all_failed(request, context, ErrorCode.UNKNOWN_SERVER_ERROR)  # type: ignore[arg-type]
    response = decoded(parts, version)
    assert [each.partition_index for each in rows_of(response)] == [3] * named
    if not named:
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_fetch_in_the_name_of_a_broker_needs_proof(broker: Fetching) -> None:
    broker.append(0)
    response = broker.fetch(row(), replica_id=2)
    assert rows_of(response)[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert sizes(response) == [(0, 0)]
    response = broker.fetch(row(), replica_id=0)
    assert rows_of(response)[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


# --- quotas ---


class Quota:
    """One that is active, with fixed answers; `asked` has what was counted against it."""

    def __init__(self, *, most: int | None = None, pause_ms: int = 0, active: bool = True) -> None:
        self.active = active
        self._most = most
        self._pause_ms = pause_ms
        self.asked: list[tuple[Any, ...]] = []

    def most_at_once(self, _user: str, _client_id: str) -> int | None:
        return self._most

    def admit(self, user: str, client_id: str, size: int, now_ms: float) -> int:
        self.asked.append((user, client_id, size, now_ms))
        return self._pause_ms

    def record(self, user: str, client_id: str, _percents: float, now_ms: float) -> int:
        self.asked.append((user, client_id, now_ms))
        return self._pause_ms


def under(broker: Fetching, fetch: Quota, request: Quota | None = None) -> None:
    broker.services.quotas = SimpleNamespace(fetch=fetch, request=request or Quota(active=False))  # type: ignore[assignment]


@pytest.mark.parametrize(("most", "expected"), [(None, 4), (2 * SIZE, 2), (1, 1), (1 << 30, 4)])
def test_answer_is_no_larger_than_the_quota_allows_at_once(broker: Fetching, most: int | None, expected: int) -> None:
    broker.append(0, 4)
    quota = Quota(most=most)
    under(broker, quota)
    assert sizes(broker.fetch(row())) == [(0, expected * SIZE)]
    assert quota.asked == [("ANONYMOUS", "client", expected * SIZE, NOW)]
    assert broker.throttled == []


def test_throttled_fetch_is_empty_and_pauses_the_connection(broker: Fetching) -> None:
    broker.append(0)
    under(broker, Quota(pause_ms=70))
    response = broker.fetch(row())
    assert (response.throttle_time_ms, sizes(response), response.session_id) == (70, [], 0)
    assert broker.throttled == [70]
    assert (broker.counters.throttled, broker.counters.throttled_ms) == (1, 70)
    assert broker.partitions[0].traffic.fetches == 0


def test_throttled_session_is_forgotten_if_it_has_just_begun(broker: Fetching) -> None:
    first = broker.fetch(row(), session_epoch=0)
    under(broker, Quota(pause_ms=70))
    assert broker.fetch(row(1), session_epoch=0).session_id == 0
    assert len(broker.sessions) == 1, "the earlier one"
    second = broker.fetch(session_epoch=1, session_id=first.session_id)
    assert (second.session_id, second.throttle_time_ms) == (first.session_id, 70)


def test_time_quota_throttles_before_bytes_are_counted(broker: Fetching) -> None:
    fetch, request = Quota(pause_ms=5), Quota(pause_ms=30)
    under(broker, fetch, request)
    assert broker.fetch(row()).throttle_time_ms == 30
    assert (len(request.asked), fetch.asked) == (1, [])


@pytest.mark.parametrize(("fetch_active", "pause_ms"), [(True, 5), (False, 0)])
def test_bytes_are_counted_when_the_time_quota_allows_the_fetch(
    broker: Fetching, fetch_active: bool, pause_ms: int
) -> None:
    fetch, request = Quota(pause_ms=5, active=fetch_active), Quota()
    under(broker, fetch, request)
    assert broker.fetch(row()).throttle_time_ms == pause_ms
    assert len(request.asked) == 1
    assert len(fetch.asked) == fetch_active


def test_cold_ranges_are_read_before_the_answer(broker: Fetching, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.append(0)
    read_ahead: list[list[FileRange]] = []

    async def run(_lane: object, _work: object, ranges: list[FileRange]) -> None:
        read_ahead.append(ranges)

    broker.services.disk = SimpleNamespace(run=run)  # type: ignore[assignment]
    monkeypatch.setattr("odradek.log.segments.cold_reads.cold_ranges", list)

    async def scenario() -> FetchResponse:
        return decoded(await broker.begin([row(), row(1), row(7)]))

    assert sizes(asyncio.run(scenario())) == [(0, SIZE), (1, 0), (7, 0)]
    assert [sum(each.size for each in ranges) for ranges in read_ahead] == [SIZE]
    assert [broker.partitions[index].traffic.cold_reads for index in (0, 1)] == [1, 0]


def test_fetch_of_more_partitions_than_a_slice_is_read_in_steps(tmp_path: Path) -> None:
    """With no time left after each step, two partitions take two slices, and a third fetch waits for neither."""
    broker = Fetching(tmp_path, long_ms=0)
    broker.append(1)

    async def scenario() -> list[tuple[int, int]]:
        answer = broker.begin([row(), row(1)], min_bytes=SIZE, max_wait_ms=60_000)
        assert not isinstance(answer, list)
        assert isinstance(broker.begin([row(1)]), list)
        return sizes(decoded(await asyncio.wait_for(answer, 30)))

    assert asyncio.run(scenario()) == [(0, 0), (1, SIZE)]


@pytest.mark.parametrize(("total", "expected"), [(SIZE, [(0, SIZE), (1, 0)]), (2 * SIZE, [(0, SIZE), (1, SIZE)])])
def test_limit_of_bytes_holds_across_slices(tmp_path: Path, total: int, expected: list[tuple[int, int]]) -> None:
    broker = Fetching(tmp_path, long_ms=0)
    broker.append(0)
    broker.append(1)

    async def scenario() -> list[tuple[int, int]]:
        answer = broker.begin([row(), row(1)], max_bytes=total)
        return sizes(decoded(await asyncio.wait_for(answer, 30)))

    assert asyncio.run(scenario()) == expected


def test_error_in_an_early_slice_answers_the_fetch(tmp_path: Path) -> None:
    broker = Fetching(tmp_path, long_ms=0)

    async def scenario() -> list[int]:
        answer = broker.begin([row(9), row(), row(1)], max_wait_ms=60_000)
        return [each.error_code for each in rows_of(decoded(await asyncio.wait_for(answer, 30)))]

    assert asyncio.run(scenario()) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 0]
