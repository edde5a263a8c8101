"""Envelope (KIP-590), from a broker to the controller: a client's request with the client's identity.

The answer carries the whole response frame without its size. Errors of the envelope itself are NOT_CONTROLLER, which
makes the broker look for the new controller, PRINCIPAL_DESERIALIZATION_FAILURE, INVALID_REQUEST for an API that is not
forwarded or an invalid address, UNSUPPORTED_VERSION for a request that cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.api.requests.context import Client, LateAnswer, RequestContext, Services
from odradek.api.requests.envelope import answered, decoded_address, decoded_principal
from odradek.api.requests.registry import Endpoint, api
from odradek.api.requests.responses import encode_response, failed_frame
from odradek.api.requests.served_endpoints import endpoint_of
from odradek.api.requests.session import Session
from odradek.api.requests.throttling import pause
from odradek.api.services.controller_service import NotTheController
from odradek.wire.apis import APIS, ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.headers import parse_request_header
from odradek.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from odradek.wire.primitives import DecodeError


class ForwardedClient:
    """The client behind an envelope, as a connection: its broker delays it, and the answer goes back to that."""

    __slots__ = ("identifier", "session")

    def __init__(self, connection: Client, session: Session) -> None:
        self.identifier = connection.identifier
        """That of the broker's connection."""
        self.session = session

    def later(self) -> LateAnswer:
        """Raises TypeError: handlers of forwarded APIs return their response."""
        raise TypeError("the response to a forwarded request returns in its envelope")

    def throttle(self, milliseconds: int) -> None:
        """Nothing: the response says how long, and the broker that has the client's connection delays it."""

    def close(self, reason: str) -> None:
        """Raises TypeError: the connection carries the requests of other clients, too."""
        raise TypeError(f"a forwarded request cannot close the connection of its client: {reason}")

    def end(self, reason: str) -> None:
        """Raises TypeError, as `close`."""
        self.close(reason)


@api(ApiKey.ENVELOPE)
async def handle(request: EnvelopeRequest, context: RequestContext[Services]) -> EnvelopeResponse:
    """Serve the enclosed request as the client's, and return its response frame; NOT_CONTROLLER sends the broker to the
    new controller.
    """
    return await serve_envelope(request, context, endpoint_of(context.services))


async def serve_envelope(
    request: EnvelopeRequest, context: RequestContext[Services], endpoints: Callable[[int], Endpoint | None]
) -> EnvelopeResponse:
    """As `handle`; `endpoints` are those of this node."""
    if not context.services.controller.is_here:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    try:
        session = _session_of(request, context)
        found, inner, message = _opened(request, context, session, endpoints)
        return EnvelopeResponse(await _answered(found, inner, message))
    except KafkaError as error:
        return EnvelopeResponse(error_code=error.code)


def _session_of(request: EnvelopeRequest, context: RequestContext[Services]) -> Session:
    principal = decoded_principal(request.request_principal)
    return Session(context.session.listener_name, decoded_address(request.client_host_address), principal)


def _opened(
    request: EnvelopeRequest,
    context: RequestContext[Services],
    session: Session,
    endpoints: Callable[[int], Endpoint | None],
) -> tuple[Endpoint, RequestContext[Services], Any]:
    """The endpoint, the context and the message of the request inside. Raises KafkaError."""
    frame = memoryview(request.request_data)
    try:
        key, version, correlation_id, client_id, position = parse_request_header(frame)
        found = endpoints(key)
        if found is None or not context.services.controller.accepts_forwarded(found.declared):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Requests of API key {key} are not forwarded.")
        spec = APIS[key]
        if not spec.min_version <= version <= spec.max_version:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        message, _end = found.decode(frame, position, version)
    except DecodeError as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from error
    client = ForwardedClient(context.connection, session)
    return found, RequestContext(context.services, version, correlation_id, client_id, client, len(frame)), message


async def _answered(found: Endpoint, context: RequestContext[Services], request: Any) -> bytes:
    """The response frame without its size. Raises NotTheController."""
    if context.services.quotas.request.active:
        context.begins(context.services.clock.monotonic() * 1000)
    try:
        answer = await answered(found, request, context)
        throttle_ms = pause(context, getattr(answer, "throttle_time_ms", 0))
        if throttle_ms and hasattr(answer, "throttle_time_ms"):
            answer.throttle_time_ms = throttle_ms
        frame = encode_response(answer, found.key, context.version, context.correlation_id)
    except NotTheController:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a handler raises costs this request only
        frame = failed_frame(error, found.key, request, context)
    return bytes(memoryview(frame)[4:])
