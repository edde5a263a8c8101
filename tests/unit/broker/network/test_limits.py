"""How much a request may hold: what is too much is rejected before it is decoded, and before it has a buffer."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.requests.declarations import DECLARATIONS, Audience
from odradek.api.requests.registry import Endpoint
from odradek.api.requests.session import Authentication, Session
from odradek.broker.network.connection import Disconnect
from odradek.broker.network.dispatch import Dispatcher
from odradek.broker.network.limits import RequestLimits
from odradek.ports.clock import SystemClock
from odradek.quotas.client_quotas import ClientQuotas
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.frames import SHARED_BYTES, FrameReader, FrameTooLarge
from odradek.wire.headers import encode_request_header, parse_response_header
from odradek.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from odradek.wire.primitives import write_unsigned_varint

CLIENT = Session("PLAINTEXT", "10.0.0.1")
BROKER = Session("PLAINTEXT", "10.0.0.2")
BROKER.broker_id = 2
LIMITS = RequestLimits()


def varint(number: int) -> bytes:
    out = bytearray()
    write_unsigned_varint(out, number)
    return bytes(out)


def frame_of(key: ApiKey, version: int, body: bytes, tags: bytes = b"\0") -> memoryview:
    out = bytearray()
    encode_request_header(out, key, version, 7, "client")
    return memoryview(out[:-1] + tags + body)


def reason_for_closing(frame: memoryview) -> str:
    async def serve() -> str:
        services: Any = SimpleNamespace(authorization=None, audit=None, quotas=ClientQuotas(11, 1), clock=SystemClock())
        connection: Any = SimpleNamespace(session=CLIENT)
        with pytest.raises(Disconnect) as raised:
            Dispatcher(services, asyncio.get_running_loop())(frame, connection)
        return str(raised.value)

    return asyncio.run(serve())


MANY = 100_000
TAGS = varint(MANY) + b"\1\0" * MANY
LEAVE_GROUP = b"\2g" + varint(MANY + 1) + b"\1\0\0\0" * MANY + b"\0"
DELETE_TOPICS = varint(4 * MANY + 1) + b"\1" * 4 * MANY
PARTITION_TAGS = b"\0\0\1\0\0\0\0\2\2t\2\0\0\0\0\0" + varint(4 * MANY) + b"\1\0" * 4 * MANY
PARTITIONS = b"\0\0\1\0\0\0\0\2\2t" + varint(4 * MANY + 1) + bytes(6 * 4 * MANY)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (frame_of(ApiKey.API_VERSIONS, 3, b"", TAGS), "API_VERSIONS request of 2.* bytes, the limit is 65536"),
        (frame_of(ApiKey.METADATA, 12, b"", TAGS), "more than 64 tagged fields in the header"),
        (frame_of(ApiKey.LEAVE_GROUP, 5, b"\2g\1" + TAGS), "more elements"),
        (frame_of(ApiKey.LEAVE_GROUP, 5, LEAVE_GROUP), "more elements"),
        (frame_of(ApiKey.DELETE_TOPICS, 5, DELETE_TOPICS), "more elements"),
        (frame_of(ApiKey.PRODUCE, 9, PARTITIONS), "more elements"),
        (frame_of(ApiKey.PRODUCE, 9, PARTITION_TAGS), "more elements"),
        (frame_of(ApiKey.LEADER_AND_ISR, 7, bytes(70_000)), "LEADER_AND_ISR request of .* the limit is 65536"),
    ],
    ids=[
        "a large request of a small API",
        "tags in the header",
        "tags in the body",
        "members",
        "names",
        "partitions",
        "tags of a partition",
        "a large request between brokers",
    ],
)
def test_request_is_rejected_before_its_elements_are_read(frame: memoryview, reason: str) -> None:
    assert re.search(reason, reason_for_closing(frame))


@pytest.mark.parametrize("key", DECLARATIONS, ids=lambda key: ApiKey(key).name)
def test_bytes_of_a_request_are_bounded_by_its_declaration(key: int) -> None:
    most = LIMITS.most_bytes(CLIENT, key)
    if (
        key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
        or DECLARATIONS[key].audience is not Audience.CLIENTS
    ):
        assert most == 65_536
    else:
        assert most == (None if key == ApiKey.PRODUCE else LIMITS.control_bytes)
    assert LIMITS.most_bytes(BROKER, key) is None, "between brokers they are as large as the cluster"


def test_bytes_of_an_unknown_request_are_few() -> None:
    assert LIMITS.most_bytes(CLIENT, 999) == 65_536


def test_elements_are_as_many_as_topics_and_partitions_may_be() -> None:
    few, many = DECLARATIONS[ApiKey.LEAVE_GROUP], DECLARATIONS[ApiKey.METADATA]
    assert RequestLimits().most_elements(few) == 20_000
    assert RequestLimits().most_elements(many) == 300_000
    assert RequestLimits(topics=1, partitions=1).most_elements(many) == 300_000
    assert RequestLimits(topics=1_000_000).most_elements(many) == 1_200_000


def read(reader: FrameReader, data: bytes) -> list[int]:
    """Sizes of the frames in what a socket delivers."""
    sizes = []
    while data:
        space = reader.space()
        part, data = data[: len(space)], data[len(space) :]
        space[: len(part)] = part
        sizes += [len(frame) for frame in reader.received(len(part))]
    return sizes


def test_frame_gets_no_buffer_when_its_api_has_smaller_ones() -> None:
    size = 90_000_000
    reader = FrameReader(100_000_000, None, lambda key: 65_536 if key == 18 else None)
    begin = size.to_bytes(4, "big") + b"\0\x12\0\3" + bytes(SHARED_BYTES)
    with pytest.raises(FrameTooLarge) as raised:
        read(reader, begin + bytes(SHARED_BYTES))
    assert raised.value.size == size
    assert not reader.buffers.in_use


def test_large_frame_of_another_api_is_read() -> None:
    reader = FrameReader(100_000_000, None, lambda key: 65_536 if key == 18 else None)
    frame = b"\0\0\0\3" + bytes(500_000)
    assert read(reader, len(frame).to_bytes(4, "big") + frame) == [len(frame)]


@pytest.mark.parametrize(
    ("session", "topics", "error"),
    [
        (CLIENT, 3, ErrorCode.INVALID_REQUEST),
        (CLIENT, 2, ErrorCode.TOPIC_ALREADY_EXISTS),
        (BROKER, 3, ErrorCode.TOPIC_ALREADY_EXISTS),
    ],
    ids=["client beyond the limit", "client at the limit", "broker beyond the limit of clients"],
)
def test_topics_of_a_request_are_limited_for_clients_only(session: Session, topics: int, error: ErrorCode) -> None:
    """The handler answers TOPIC_ALREADY_EXISTS if it is called."""

    def reject(request: Any, _context: Any) -> Any:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)

    found = Endpoint(DECLARATIONS[ApiKey.CREATE_TOPICS], CreateTopicsRequest.decode, reject, None)
    request = CreateTopicsRequest([CreateTopicsRequestTopic(f"t{number}", 1, 1) for number in range(topics)])
    body = bytearray()
    request.encode(body, 7)

    async def serve() -> Any:
        services: Any = SimpleNamespace(authorization=None, audit=None, quotas=ClientQuotas(11, 1), clock=SystemClock())
        connection: Any = SimpleNamespace(session=session)
        limits = RequestLimits(topics=2)
        served = Dispatcher(services, asyncio.get_running_loop(), limits, endpoints=lambda _key: found)
        return served(frame_of(ApiKey.CREATE_TOPICS, 7, bytes(body)), connection)

    view = memoryview(b"".join(asyncio.run(serve())))[4:]
    _, position = parse_response_header(view, ApiKey.CREATE_TOPICS, 7)
    answer, _ = CreateTopicsResponse.decode(view, position, 7)
    assert [each.error_code for each in answer.topics] == [error] * topics


def test_request_with_as_many_topics_and_partitions_as_allowed_is_served() -> None:
    limits = RequestLimits(topics=2, partitions=3)

    def request(*partitions: int) -> Any:
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[0] * count) for count in partitions])

    assert limits.excess(request(1, 2)) is None
    assert "more than 3 partitions" in str(limits.excess(request(2, 2)))
    assert "more than 2 topics" in str(limits.excess(request(1, 1, 1)))


def test_frame_of_a_peer_that_has_not_logged_in_is_small() -> None:
    """It cannot make the broker reserve buffers of the size that clients may use."""
    stranger = Session("SASL_PLAINTEXT", "10.0.0.3")
    stranger.authentication = Authentication.REQUIRED
    assert LIMITS.frame_bytes(stranger, 100_000_000) == 65_536
    assert LIMITS.frame_bytes(stranger, 1000) == 1000
    assert LIMITS.frame_bytes(CLIENT, 100_000_000) == 100_000_000
