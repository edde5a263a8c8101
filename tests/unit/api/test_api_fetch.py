"""A fetch that waits: what wakes it, and who pays when it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.api import api_01_fetch
from odradek.api.requests.context import RequestContext
from odradek.api.requests.long_work import LongWork
from odradek.authorization.authorizer import Access, Authorizer, Question, Settings
from odradek.metadata.image import NO_LEADER, ClusterImage, PartitionState
from odradek.ports.disk import FileRange, SystemDisk
from odradek.ports.randomness import SeededRandom
from odradek.quotas.client_quotas import ClientQuotas
from odradek.replication.fetch_sessions import FetchSessions
from odradek.replication.partition import Partition
from odradek.wire.acls import AclOperation, ResourceType
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.fetch import FetchRequest, decode_request
from odradek.wire.headers import parse_response_header
from odradek.wire.messages.fetch import FetchRequest as FetchMessage
from odradek.wire.messages.fetch import FetchRequestPartition, FetchRequestTopic, FetchResponse
from tests.unit.log.support import NOW, StandingClock, batch, open_log


def request(min_bytes: int = 1) -> FetchRequest:
    wanted = FetchRequestTopic("topic", partitions=[FetchRequestPartition(0, partition_max_bytes=1 << 20)])
    message = FetchMessage(
        max_wait_ms=60_000, min_bytes=min_bytes, max_bytes=1 << 20, session_epoch=-1, topics=[wanted]
    )
    out = bytearray()
    message.encode(out, 12)
    return decode_request(memoryview(out), 0, 12)[0]


def leader_of(tmp_path: Path) -> Partition:
    partition = Partition("topic", b"t" * 16, 0, 1, open_log(tmp_path))
    partition.apply_state(PartitionState(1, 0, (1,), (1,)))
    return partition


def context_of(find: Callable[[], Partition]) -> Any:
    services = SimpleNamespace(
        authorization=None,
        audit=None,
        partitions=SimpleNamespace(require=lambda *_: find()),
        config=SimpleNamespace(number=lambda _: 1 << 30),
        quotas=ClientQuotas(11, 1),
        fetch_sessions=FetchSessions(0, SeededRandom("")),
        clock=StandingClock(),
        disk=SystemDisk(),
        long_work=LongWork(lambda: 0.0, 0),
    )
    return RequestContext(services, 12, 1, "client", SimpleNamespace())  # type: ignore[arg-type]


def test_a_fetch_is_woken_when_enough_has_been_appended(tmp_path: Path) -> None:
    partition = leader_of(tmp_path)
    size = len(batch())

    async def scenario() -> None:
        waiting = api_01_fetch.handle(request(min_bytes=size + 1), context_of(lambda: partition))
        assert isinstance(waiting, asyncio.Future)
        partition.append(batch(), now_ms=NOW)
        assert not waiting.done()
        partition.append(batch(), now_ms=NOW)
        (found,) = [part for part in await waiting if isinstance(part, FileRange)]
        assert found.size == 2 * size

    asyncio.run(scenario())


def test_mistake_in_a_fetch_is_not_reported_to_the_producer_that_woke_it(tmp_path: Path) -> None:
    partition = leader_of(tmp_path)
    broken = False

    def find() -> Partition:
        if broken:
            raise ZeroDivisionError
        return partition

    async def scenario() -> None:
        nonlocal broken
        waiting = api_01_fetch.handle(request(), context_of(find))
        assert isinstance(waiting, asyncio.Future)
        broken = True
        assert partition.append(batch(), now_ms=NOW).first_offset == 0
        with pytest.raises(ZeroDivisionError):
            await waiting

    asyncio.run(scenario())


def test_cancelled_fetch_waits_no_longer(tmp_path: Path) -> None:
    """Its connection is closed."""
    partition = leader_of(tmp_path)

    async def scenario() -> None:
        waiting = api_01_fetch.handle(request(), context_of(lambda: partition))
        assert isinstance(waiting, asyncio.Future)
        assert len(partition.readers.waiting) == 1
        waiting.cancel()
        await asyncio.sleep(0)
        assert not partition.readers.waiting

    asyncio.run(scenario())


def test_fetch_of_a_topic_that_the_client_may_not_read_is_rejected(tmp_path: Path) -> None:
    partition = leader_of(tmp_path)
    context = context_of(lambda: partition)
    reported: list[Question] = []
    authorizer = Authorizer(Settings(), lambda question, _decision, _quiet: reported.append(question))
    access = Access(authorizer, "User:alice", "127.0.0.1")
    context.services.authorization = SimpleNamespace(access=lambda _session: access)
    context.services.image = ClusterImage
    context.connection.session = SimpleNamespace(listener_name="PLAINTEXT", access=None)
    answer = api_01_fetch.handle(request(), context)
    frame = memoryview(b"".join(bytes(part) for part in cast(list[bytes], answer)))[4:]
    _, position = parse_response_header(frame, ApiKey.FETCH, 12)
    message, _ = FetchResponse.decode(frame, position, 12)
    assert message.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [each[1:4] for each in reported] == [(AclOperation.READ, ResourceType.TOPIC, "topic")]


def wide_request(count: int) -> FetchRequest:
    rows = [FetchRequestPartition(index, partition_max_bytes=1 << 20) for index in range(count)]
    message = FetchMessage(
        max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
        topics=[FetchRequestTopic("topic", partitions=rows)],
    )  # fmt: skip
    out = bytearray()
    message.encode(out, 12)
    return decode_request(memoryview(out), 0, 12)[0]


async def fetched_in_slices(tmp_path: Path, *steps: Callable[[list[Partition]], object]) -> list[tuple[int, int, int]]:
    """(partition, error, bytes) of a fetch of three partitions; the steps follow each other, a slice apart."""
    partitions = []
    for index in range(3):
        (tmp_path / str(index)).mkdir()
        partitions.append(leader_of(tmp_path / str(index)))
    context = context_of(lambda: partitions[0])
    context.services.partitions = SimpleNamespace(require=lambda _topic, index: partitions[index])
    context.services.image = ClusterImage
    context.services.cluster = SimpleNamespace()
    context.connection.session = SimpleNamespace(listener_name="PLAINTEXT")
    answer: Any = api_01_fetch.handle(wide_request(3), context)
    task = asyncio.ensure_future(answer)
    for step in steps:
        step(partitions)
        for _ in range(4):
            await asyncio.sleep(0)
    parts = await asyncio.wait_for(task, 30)
    head = b"".join(bytes(part.size) if isinstance(part, FileRange) else bytes(part) for part in parts)
    view = memoryview(head)[4:]
    _, position = parse_response_header(view, ApiKey.FETCH, 12)
    response, _ = FetchResponse.decode(view, position, 12)
    return [
        (row.partition_index, row.error_code, len(row.records or b""))
        for topic in response.responses
        for row in topic.partitions
    ]


def append_to(index: int) -> Callable[[list[Partition]], object]:
    return lambda partitions: partitions[index].append(batch(), now_ms=NOW)


def nothing(_partitions: list[Partition]) -> None:
    return None


SIZE = len(batch())


@pytest.mark.parametrize(
    "steps",
    [
        (append_to(0),),  # its step was the first one: the fetch waits for nothing there yet
        (append_to(2),),
        (nothing, nothing, nothing, append_to(0)),
    ],
)
def test_sliced_fetch_answers_with_what_is_appended(
    tmp_path: Path, steps: tuple[Callable[[list[Partition]], object], ...]
) -> None:
    rows = asyncio.run(fetched_in_slices(tmp_path, *steps))
    assert [(index, error) for index, error, _ in rows] == [(0, 0), (1, 0), (2, 0)]
    assert sum(size for _, _, size in rows) == SIZE


def test_sliced_fetch_notices_a_leader_that_resigned_between_slices(tmp_path: Path) -> None:
    def resign(partitions: list[Partition]) -> None:
        partitions[0].apply_state(PartitionState(NO_LEADER, 1, (1, 2), (2,), partition_epoch=1))

    rows = asyncio.run(fetched_in_slices(tmp_path, resign))
    assert [error for _, error, _ in rows] == [ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 0]


def test_sliced_fetch_gives_a_turn_to_others_before_each_piece_of_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each slice is over at once: three partitions, the look for what is not in memory, and the answer."""
    turns = 0
    turn = LongWork.turn

    def counted(work: LongWork) -> asyncio.Future[None]:
        nonlocal turns
        turns += 1
        return turn(work)

    monkeypatch.setattr(LongWork, "turn", counted)
    rows = asyncio.run(fetched_in_slices(tmp_path, append_to(2)))
    assert sum(size for _, _, size in rows) == SIZE
    assert turns == 5
