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
from odradek.metadata.image import ClusterImage, PartitionState
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


def test_fetch_of_a_topic_that_the_client_may_not_read_is_rejected(tmp_path: Path) -> None:
    partition = leader_of(tmp_path)
    context = context_of(lambda: partition)
    asked = []

    def allows(*right: object) -> bool:
        asked.append(right)
        return False

    context.services.authorization = SimpleNamespace(access=lambda _session: SimpleNamespace(allows=allows))
    context.services.image = ClusterImage
    context.connection.session = SimpleNamespace(listener_name="PLAINTEXT")
    answer = api_01_fetch.handle(request(), context)
    frame = memoryview(b"".join(bytes(part) for part in cast(list[bytes], answer)))[4:]
    _, position = parse_response_header(frame, ApiKey.FETCH, 12)
    message, _ = FetchResponse.decode(frame, position, 12)
    assert message.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert asked == [(AclOperation.READ, ResourceType.TOPIC, "topic")]
