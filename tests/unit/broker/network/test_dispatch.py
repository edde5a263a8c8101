"""From a frame to an answer: what handlers return and raise, and whose mistakes cost what."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.requests.declarations import Audience, Declaration
from odradek.api.requests.registry import Endpoint
from odradek.api.requests.session import Session
from odradek.broker.network import dispatch
from odradek.broker.network.connection import Disconnect, Pending
from odradek.broker.network.dispatch import Dispatcher
from odradek.broker.network.loop_holds import LoopHolds
from odradek.broker.network.repeated_lines import LINES_PER_SECOND
from odradek.metrics.requests import FOLLOWER_FETCH
from odradek.ports.clock import SystemClock
from odradek.quotas.client_quotas import ClientQuotas
from odradek.wire.apis import ApiKey, request_class
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.headers import encode_request_header, parse_response_header
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

KEY = ApiKey.HEARTBEAT
VERSION = 4


class Peer:
    """A connection as far as the dispatcher knows it."""

    def __init__(self) -> None:
        self.session = Session("PLAINTEXT", "127.0.0.1")
        self.closed: list[str] = []
        self.answers: list[Any] = []

    def close(self, reason: str) -> None:
        self.closed.append(reason)

    def answered(self, pending: Pending) -> None:
        self.answers.append(pending.parts)


def frame() -> memoryview:
    out = bytearray()
    encode_request_header(out, KEY, VERSION, 7, "test")
    HeartbeatRequest("g", 1, "m").encode(out, VERSION)
    return memoryview(out)


def error_in(parts: Any) -> int:
    (part,) = parts
    view = memoryview(part)[4:]
    correlation_id, position = parse_response_header(view, KEY, VERSION)
    assert correlation_id == 7
    answer, _ = HeartbeatResponse.decode(view, position, VERSION)
    return answer.error_code


def served(
    monkeypatch: pytest.MonkeyPatch, handle: Callable[..., Any], peer: Peer, *, overtaking: bool = False, **more: Any
) -> Any:
    declared = Declaration(KEY, is_overtaking=overtaking)
    found = Endpoint(declared, more.get("decode", request_class(KEY).decode), handle, more.get("failed"))
    monkeypatch.setattr(dispatch, "endpoint_of", lambda _services: lambda _key: found)
    services: Any = SimpleNamespace(authorization=None, audit=None, quotas=ClientQuotas(11, 1), clock=SystemClock())
    connection: Any = peer
    return Dispatcher(services, asyncio.get_running_loop(), holds=more.get("holds"))(frame(), connection)


def answers(monkeypatch: pytest.MonkeyPatch, handle: Callable[..., Any], peer: Peer | None = None, **more: Any) -> Any:
    """The answer's error code, whether it came at once or later; None if the connection was closed instead."""
    caller = peer or Peer()

    async def scenario() -> Any:
        got = served(monkeypatch, handle, caller, **more)
        if isinstance(got, Pending):
            got.queued = True
            while not caller.answers and not caller.closed:
                await asyncio.sleep(0)
            got = caller.answers[0] if caller.answers else None
        return None if got is None else error_in(got)

    return asyncio.run(scenario())


async def _later(answer: Any) -> Any:
    await asyncio.sleep(0)
    if isinstance(answer, Exception):
        raise answer
    return answer


def _now(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


@pytest.fixture(params=[_now, _later], ids=["at once", "later"])
def give(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """How a handler answers: from its call, or from what it returned to wait for."""
    how: Callable[[Any], Any] = request.param
    return how


def test_answers(monkeypatch: pytest.MonkeyPatch, give: Callable[[Any], Any]) -> None:
    assert answers(monkeypatch, lambda *_: give(HeartbeatResponse(error_code=27))) == 27


def test_kafka_error_is_returned(monkeypatch: pytest.MonkeyPatch, give: Callable[[Any], Any]) -> None:
    code = ErrorCode.NOT_COORDINATOR
    assert answers(monkeypatch, lambda *_: give(KafkaError(code))) == code


def test_steps_of_a_handler_that_waits_count_as_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    holds = LoopHolds(SystemClock().monotonic)
    holds.configure(0)
    answers(monkeypatch, lambda *_: _later(HeartbeatResponse()), holds=holds)
    assert holds.count == 3, "two steps of the handler, and the encoding of its response"


@pytest.mark.parametrize("mistake", [ZeroDivisionError("a mistake"), HeartbeatResponse(error_code=1 << 20), object()])
def test_a_mistake_costs_the_request_and_leaves_a_traceback(
    monkeypatch: pytest.MonkeyPatch, give: Callable[[Any], Any], mistake: Any, caplog: pytest.LogCaptureFixture
) -> None:
    peer = Peer()
    with caplog.at_level(logging.ERROR, "odradek.requests"):
        assert answers(monkeypatch, lambda *_: give(mistake), peer) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert not peer.closed
    assert caplog.records[0].exc_info is not None


def test_a_mistake_in_the_answer_to_a_mistake_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failed(*_: Any) -> Any:
        raise ZeroDivisionError

    peer = Peer()
    with caplog.at_level(logging.ERROR, "odradek.requests"):
        assert answers(monkeypatch, lambda *_: _later(ValueError()), peer, failed=failed) is None
        assert peer.closed
        with pytest.raises(Disconnect):
            answers(monkeypatch, lambda *_: _now(ValueError()), failed=failed)


def test_decoder_with_an_unexpected_failure_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def decode(*_: Any) -> Any:
        raise IndexError

    with caplog.at_level(logging.ERROR, "odradek.requests"), pytest.raises(Disconnect):
        answers(monkeypatch, lambda *_: HeartbeatResponse(), decode=decode)


def test_requests_for_brokers_alone_cannot_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Any peer of a listener without a login may send them, as many as it likes."""

    async def scenario() -> None:
        found = Endpoint(
            Declaration(KEY, audience=Audience.BROKERS), request_class(KEY).decode, lambda *_: None, is_guarded=True
        )
        clock: Any = SimpleNamespace(monotonic=lambda: 5.0)
        services: Any = SimpleNamespace(quotas=ClientQuotas(11, 1), clock=clock)
        dispatcher = Dispatcher(services, asyncio.get_running_loop(), endpoints=lambda _key: found)
        connection: Any = Peer()
        for _ in range(3 * LINES_PER_SECOND):
            assert error_in(dispatcher(frame(), connection)) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    caplog.set_level(logging.INFO)
    asyncio.run(scenario())
    assert caplog.messages == ["rejected HEARTBEAT from 127.0.0.1: not a broker of this cluster"] * LINES_PER_SECOND


def test_only_what_is_dispatched_may_be_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken(answer: Awaitable[Any], *, endpoint: bool) -> bool:
        pending = served(monkeypatch, lambda *_: answer, Peer(), overtaking=endpoint)
        return bool(pending.overtaking)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert overtaken(loop.create_future(), endpoint=True)
        assert not overtaken(loop.create_future(), endpoint=False)
        assert not overtaken(_later(HeartbeatResponse()), endpoint=True)
        await asyncio.sleep(0)

    asyncio.run(scenario())


def test_an_answer_that_takes_its_time_does_not_keep_those_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_LATE_KEPT", 8)
    peer: Any = Peer()
    given: list[Pending] = []

    def handle(*_: Any) -> Pending:
        pending = Pending(peer, True)
        given.append(pending)
        if len(given) > 1:
            pending.answer([])
        return pending

    found = Endpoint(Declaration(KEY, is_overtaking=True), request_class(KEY).decode, handle)
    monkeypatch.setattr(dispatch, "endpoint_of", lambda _services: lambda _key: found)

    async def scenario() -> None:
        services: Any = SimpleNamespace(authorization=None, audit=None, quotas=ClientQuotas(11, 1), clock=SystemClock())
        dispatcher = Dispatcher(services, asyncio.get_running_loop())
        for _ in range(100):
            dispatcher(frame(), peer)
        assert dispatcher._late[0] is given[0]
        assert len(dispatcher._late) <= 9

    asyncio.run(scenario())


@pytest.mark.parametrize(("replica_id", "key"), [(-1, ApiKey.FETCH), (2, FOLLOWER_FETCH)], ids=["consumer", "follower"])
def test_fetches_of_followers_are_counted_apart(replica_id: int, key: int) -> None:
    """Kafka's metrics have FetchConsumer and FetchFollower."""

    async def serve() -> None:
        found = Endpoint(Declaration(ApiKey.FETCH), FetchRequest.decode, lambda *_: [b""], None)
        services: Any = SimpleNamespace(authorization=None, audit=None, quotas=ClientQuotas(11, 1), clock=SystemClock())
        dispatcher = Dispatcher(services, asyncio.get_running_loop(), endpoints=lambda _key: found)
        out = bytearray()
        encode_request_header(out, ApiKey.FETCH, 12, 7, "test")
        FetchRequest(replica_id=replica_id).encode(out, 12)
        peer: Any = Peer()
        dispatcher(memoryview(out), peer)
        counted = {each: dispatcher.counters[each].bytes_in for each in (ApiKey.FETCH, FOLLOWER_FETCH)}
        assert counted == {ApiKey.FETCH: 0, FOLLOWER_FETCH: 0} | {key: len(out)}

    asyncio.run(serve())


def test_answer_says_for_how_long_its_client_is_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "pause", lambda _context, throttle_ms: throttle_ms + 35)
    peer = Peer()

    async def scenario() -> int:
        (part,) = served(monkeypatch, lambda *_: HeartbeatResponse(throttle_time_ms=7), peer)
        view = memoryview(part)[4:]
        _, position = parse_response_header(view, KEY, VERSION)
        return HeartbeatResponse.decode(view, position, VERSION)[0].throttle_time_ms

    assert asyncio.run(scenario()) == 42
