"""From a frame to an answer: header, version check, decoding, the endpoint, encoding.

This is the path of every request; what can be decided by the API alone lives in `odradek.api`.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from types import CoroutineType
from typing import Any, cast

from odradek.api.requests.context import RequestContext, Services
from odradek.api.requests.declarations import Audience
from odradek.api.requests.envelope import decided_by_controller
from odradek.api.requests.registry import Endpoint
from odradek.api.requests.responses import encode_response, error_of, failed_frame
from odradek.api.requests.served_endpoints import endpoint_of
from odradek.api.requests.throttling import pause
from odradek.api.services.controller_service import NotTheController
from odradek.broker.network.connection import Disconnect, InboundConnection, Pending
from odradek.broker.network.limits import RequestLimits
from odradek.broker.network.loop_holds import LoopHolds, TimedSteps
from odradek.broker.network.repeated_lines import RepeatedLines
from odradek.broker.network.slow_requests import RequestTiming, SlowRequestLog
from odradek.broker.network.turns import Turns
from odradek.metrics.requests import (
    BOUNDS,
    FIRST_BOUND,
    FOLLOWER_FETCH,
    SECOND_BOUND,
    RequestCounters,
    RequestCounterTable,
)
from odradek.ports.network import Part
from odradek.wire.apis import APIS, ApiKey, response_class
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.headers import parse_request_header
from odradek.wire.primitives import COUNTED_FROM_BYTES, DecodeError, elements_at_most

logger = logging.getLogger("odradek.requests")

_DRAIN_STEP_SECONDS = 0.005
_LATE_KEPT = 1024
_FETCH = int(ApiKey.FETCH)


def _is_barred(found: Endpoint, connection: InboundConnection) -> bool:
    """Whether only brokers may send such requests, and the peer has not proven to be one."""
    return found.declared.audience is not Audience.CLIENTS and not connection.session.is_broker


async def _completed(answer: Awaitable[Any], complete: Callable[[Any], Any]) -> Any:
    return complete(await answer)


class _Route:
    """All that does not change between two requests of an API, in plain slots: reading them takes no call."""

    __slots__ = (
        "counters", "decode", "endpoint", "handle", "is_guarded", "is_raw", "is_throttled", "key", "max_version",
        "min_version", "response",
    )  # fmt: skip

    def __init__(self, found: Endpoint, counters: RequestCounters) -> None:
        spec = APIS[found.key]
        self.endpoint = found
        self.min_version = spec.min_version
        self.max_version = spec.max_version
        self.decode = found.decode
        self.handle = found.handle
        self.is_guarded = found.is_guarded
        self.is_raw = found.failed is not None
        self.is_throttled = found.declared.is_throttled
        self.key = found.key
        self.response = None if self.is_raw else response_class(found.key)
        self.counters = counters


class Dispatcher:
    """Serves the frames of all connections of a broker."""

    __slots__ = (
        "_endpoint",
        "_late",
        "_late_limit",
        "_limits",
        "_lines",
        "_loop",
        "_now",
        "_routes",
        "_services",
        "_small",
        "_tasks",
        "_time_quota",
        "_turns",
        "counters",
        "slow",
    )

    def __init__(
        self,
        services: Services,
        loop: asyncio.AbstractEventLoop,
        limits: RequestLimits | None = None,
        holds: LoopHolds | None = None,
        endpoints: Callable[[int], Endpoint | None] | None = None,
        turns: Turns | None = None,
    ) -> None:
        """`endpoints`: what is served, where it is not all that a broker serves; `turns`: those of its connections."""
        self._limits = limits or RequestLimits()
        # A topic and a partition take a byte each at least: what is smaller exceeds no limit.
        self._small = min(COUNTED_FROM_BYTES, *self._limits)
        self._services = services
        self._lines = RepeatedLines(logger, services.clock)
        # A broker without an authorizer does no work for one.
        self._endpoint = endpoints or endpoint_of(services)
        self._routes: dict[int, _Route] = {}
        self._now = services.clock.monotonic
        self._time_quota = services.quotas.request
        self._turns = Turns() if turns is None else turns
        self.counters = RequestCounterTable({key: spec.name for key, spec in APIS.items()})
        """Requests by API key, and those of followers that fetch."""
        self.slow = SlowRequestLog(holds or LoopHolds(self._now))
        """The log of requests that took long, or held the event loop."""
        self._loop = loop
        self._tasks: dict[asyncio.Future[Any], ApiKey] = {}
        self._late: deque[Pending] = deque()
        self._late_limit = _LATE_KEPT

    def __call__(self, frame: memoryview, connection: InboundConnection) -> list[Part] | Pending | None:
        try:
            started = self._now()
            size = len(frame)
            session = connection.session
            is_counted = size > self._small and not session.is_broker
            if is_counted and (excess := self._limits.excess_bytes(session, frame)) is not None:
                raise Disconnect(excess)
            gate = session.gate
            if gate is not None and (gated := gate(frame, connection)) is not None:
                return gated  # type: ignore[no-any-return]
            key, version, correlation_id, client_id, position = parse_request_header(frame)
            route = self._routes.get(key) or self._route(key)
            if not route.min_version <= version <= route.max_version or (
                route.is_guarded and _is_barred(route.endpoint, connection)
            ):
                return self._rejected(route.endpoint, version, correlation_id, connection)
            decode = partial(self._decode_counted, route) if is_counted else route.decode
            request, _end = decode(frame, position, version)
            follows = key == _FETCH and request.replica_id >= 0
            counters = self.counters[FOLLOWER_FETCH] if follows else route.counters
            counters.bytes_in += size
            answer: Any
            context = RequestContext(self._services, version, correlation_id, client_id, connection, size, counters)
            if self._time_quota.active:
                context.begins(started * 1000)
            if is_counted and (excess := self._limits.excess(request)) is not None:
                error = KafkaError(ErrorCode.INVALID_REQUEST, excess)
                answer = self._failed(route.endpoint, request, context, error)
            else:
                try:
                    handle = partial(self._guarded, route.endpoint) if route.is_guarded else route.handle
                    answer = handle(request, context)
                    if type(answer) is route.response:
                        answer = self._encoded(route, answer, request, context)
                    elif type(answer) is Pending:
                        self._remember(answer, context)
                    elif type(answer) is not list:
                        answer = self._other_answer(route, answer, request, context)
                except Exception as error:  # noqa: BLE001 - whatever a handler raises costs this request only
                    answer = self._failed(route.endpoint, request, context, error)
            took = self._now() - started
            self._turns.worked += took
            if type(answer) is Pending and not answer.ready:
                # Without the keyword handling of a NamedTuple's constructor.
                timing = (context, key, self.slow, self._now, started + took, took)
                answer.timing = tuple.__new__(RequestTiming, timing)
                return answer
            bucket = 0 if took <= FIRST_BOUND else 1 if took <= SECOND_BOUND else bisect_left(BOUNDS, took)
            counters.immediate[bucket] += 1
            counters.immediate_s += took
            if took >= self.slow.least_s:
                self.slow.took(context, key, took)
            return answer  # type: ignore[no-any-return]
        except Disconnect:
            raise
        except DecodeError as error:
            raise Disconnect(f"unreadable request: {error}") from error
        except Exception as error:
            # A mistake of ours outside of any handler. Without an answer or an end the client would wait for ever.
            logger.exception("a request from %s could not be served", connection.session.peer_host)
            raise Disconnect("a request could not be served") from error

    def _route(self, key: int) -> _Route:
        """The route of an API's first request. Raises Disconnect for a key that is not served."""
        found = self._endpoint(key)
        if found is None:
            raise Disconnect(f"request for API key {key}, which is not served")
        route = self._routes[key] = _Route(found, self.counters[key])
        return route

    def _decode_counted(self, route: _Route, frame: memoryview, position: int, version: int) -> tuple[Any, int]:
        """As the route's `decode`, with no more elements than the API may have."""
        with elements_at_most(self._limits.most_elements(route.endpoint.declared)):
            return route.decode(frame, position, version)

    def _other_answer(
        self, route: _Route, answer: Any, request: Any, context: RequestContext[Services]
    ) -> list[Part] | Pending | None:
        """The frame of a response, or the place of one that has to be awaited."""
        if hasattr(answer, "__await__"):
            if self._time_quota.active:
                # Of a coroutine nothing has run yet: its steps count for nothing, as little as a thread's would.
                context.waits(self._now() * 1000)
            return self._wait(route, request, context, answer)
        return self._encoded(route, answer, request, context)

    def _guarded(self, found: Endpoint, request: Any, context: RequestContext[Services]) -> Any:
        """The handler's answer, or the controller's if that is another broker; this one does its own part first."""
        if not self._services.controller.is_forwarded(found.declared):
            return found.handle(request, context)
        if found.own_part is None:
            return decided_by_controller(found, request, context)
        rest, complete = found.own_part(request, context)
        if rest is None:
            return complete(None)
        return _completed(decided_by_controller(found, rest, context), complete)

    def _remember(self, pending: Pending, context: RequestContext[Services]) -> None:
        """`drain` waits for it."""
        if self._time_quota.active:
            context.waits(self._now() * 1000)
        late = self._late
        late.append(pending)
        while late and late[0].ready:
            late.popleft()
        if len(late) > self._late_limit:
            # One that takes its time must not keep all that came after it.
            self._late = deque(each for each in late if not each.ready)
            self._late_limit = max(_LATE_KEPT, 2 * len(self._late))

    def _rejected(
        self, found: Endpoint, version: int, correlation_id: int, connection: InboundConnection
    ) -> list[Part]:
        """The response to a request that is answered without its body: of another version, or for brokers only."""
        key, spec = found.key, APIS[found.key]
        answer: Any
        if spec.min_version <= version <= spec.max_version:
            self._lines.log(
                logging.INFO,
                "rejected %s from %s: not a broker of this cluster",
                key.name,
                connection.session.peer_host,
            )
            answer = response_class(key)()
            answer.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        elif key == ApiKey.API_VERSIONS:
            # KIP-511: the answer has the oldest form, so that a client of any age can read which versions there are.
            from odradek.api.api_18_api_versions import unsupported_version_response

            answer, version = unsupported_version_response(), 0
        else:
            raise Disconnect(f"{key.name} request in version {version}, which is not supported")
        return [encode_response(answer, key, version, correlation_id)]

    def _wait(
        self,
        route: _Route,
        request: Any,
        context: RequestContext[Services],
        answer: Awaitable[Any],
    ) -> Pending:
        found = route.endpoint
        connection = cast("InboundConnection", context.connection)
        if type(answer) is CoroutineType:
            answer = TimedSteps(answer, self.slow.holds, self._now, context, route.key)
        future = asyncio.ensure_future(answer, loop=self._loop)
        # A coroutine has only begun: a write that is not in the log yet must not be overtaken by the next one.
        overtaking = found.declared.is_overtaking and future is answer
        pending = Pending(connection, overtaking, future.cancel if found.key == ApiKey.FETCH else None)
        self._tasks[future] = found.key

        future.add_done_callback(partial(self._finished, route, request, context, pending))
        return pending

    def _finished(
        self,
        route: _Route,
        request: Any,
        context: RequestContext[Services],
        pending: Pending,
        finished: asyncio.Future[Any],
    ) -> None:
        """The handler has its answer. A method, because a closure that names itself is garbage for the collector."""
        del self._tasks[finished]
        connection = cast("InboundConnection", context.connection)
        if finished.cancelled():
            connection.close("the broker stops")
            return
        error, found = finished.exception(), route.endpoint
        if error is not None and not isinstance(error, Exception):
            raise error
        if isinstance(error, NotTheController) and found.declared.is_forwarded:
            # This broker was the controller when the request came, and no longer when it was to be decided.
            forwarded = self._loop.create_task(decided_by_controller(found, request, context))
            self._tasks[forwarded] = found.key
            forwarded.add_done_callback(partial(self._finished, route, request, context, pending))
            return
        started = self._now()
        try:
            if error is None:
                parts = self._encoded(route, finished.result(), request, context)
            else:
                parts = self._failed(found, request, context, error)
        except Exception:
            logger.exception("%s v%d from %s cannot be answered", found.key.name, context.version, context.client_id)
            connection.close("a request could not be answered")
            return
        self.slow.holds.ended(context, route.key, self._now() - started)
        pending.answer(parts)

    def _encoded(
        self, route: _Route, answer: Any, request: Any, context: RequestContext[Services]
    ) -> list[Part] | None:
        if answer is None or route.is_raw:
            return answer  # type: ignore[no-any-return]
        if code := getattr(answer, "error_code", 0):
            context.note_error(code)
        if route.is_throttled:
            throttle_ms: int = getattr(answer, "throttle_time_ms", 0)
            if throttle_ms or self._time_quota.active:
                throttle_ms = pause(context, throttle_ms)
                if throttle_ms and hasattr(answer, "throttle_time_ms"):
                    answer.throttle_time_ms = throttle_ms
        try:
            return [encode_response(answer, route.key, context.version, context.correlation_id)]
        except Exception as error:  # noqa: BLE001 - an answer that cannot be written costs this request only
            return self._failed(route.endpoint, request, context, error)

    def _failed(
        self, found: Endpoint, request: Any, context: RequestContext[Services], error: Exception
    ) -> list[Part] | None:
        """The frame for a request whose handler raised."""
        context.note_error(error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR)
        if found.failed is None:
            return [failed_frame(error, found.key, request, context)]
        return found.failed(request, context, error_of(error, found.key, context)[0])

    async def drain(self, timeout: float) -> None:
        """Wait for the requests being served, then cancel what still waits. It does not wait for fetches that wait
        themselves.
        """
        for task, key in list(self._tasks.items()):
            if key == ApiKey.FETCH:
                task.cancel()
        await asyncio.sleep(0)
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=timeout)
        for task in list(self._tasks):
            task.cancel()
        end = self._loop.time() + timeout
        # A response notifies only its own connection.
        while not all(pending.ready for pending in self._late) and self._loop.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(_DRAIN_STEP_SECONDS)
