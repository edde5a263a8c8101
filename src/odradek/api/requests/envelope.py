"""A client's request on its way to the controller: who sent it, and back what the controller answered (KIP-590).

The broker that a client asks passes a request of a forwarded API on before any handler runs, as it came and with the
client's principal, client id and address. The controller serves it as if the client had asked there, and charges the
client's quotas; the broker in between delays the client, since only it has the client's connection.
Source: Kafka's `ForwardingManager`, `EnvelopeUtils`, `DefaultKafkaPrincipalBuilder`.
"""

from __future__ import annotations

from typing import Any, Final

from odradek.api.requests.context import RequestContext, Services
from odradek.api.requests.registry import Endpoint
from odradek.api.requests.session import Principal
from odradek.api.services.controller_service import NotTheController
from odradek.wire.apis import ApiKey, response_class
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.headers import encode_request_header, parse_response_header
from odradek.wire.messages.default_principal import DefaultPrincipalData
from odradek.wire.messages.envelope import EnvelopeRequest
from odradek.wire.primitives import DecodeError

_PRINCIPAL_VERSION: Final = 0
_UNKNOWN_ADDRESS: Final = bytes(4)
_ATTEMPTS: Final = 3
"""Controllers that are asked one after the other while elections follow each other."""


async def decided_by_controller(found: Endpoint, request: Any, context: RequestContext[Services]) -> Any:
    """The response of the controller, wherever it is now. Raises KafkaError, NOT_CONTROLLER if none can be reached."""
    controller = context.services.controller
    for _ in range(_ATTEMPTS):
        try:
            if controller.is_here:
                return await answered(found, request, context)
            envelope = sealed(found.key, request, context)
            answer = await controller.forward(envelope, getattr(request, "timeout_ms", 0))
            return opened(answer, found.key, context)
        except NotTheController:
            continue
    raise KafkaError(ErrorCode.NOT_CONTROLLER)


async def answered(found: Endpoint, request: Any, context: RequestContext[Services]) -> Any:
    """The response of the handler here. A request all of whose entries are refused has one at once."""
    answer = found.handle(request, context)
    return await answer if hasattr(answer, "__await__") else answer


def sealed(key: ApiKey, request: Any, context: RequestContext[Services]) -> EnvelopeRequest:
    """The envelope around a client's request, which keeps its version, correlation id and client id."""
    data = bytearray()
    encode_request_header(data, key, context.version, context.correlation_id, context.client_id)
    request.encode(data, context.version)
    session = context.session
    return EnvelopeRequest(bytes(data), encoded_principal(session.principal), encoded_address(session.peer_host))


def opened(answer: bytes, key: ApiKey, context: RequestContext[Services]) -> Any:
    """The response in an envelope. Raises KafkaError UNKNOWN_SERVER_ERROR for one that does not fit the request."""
    view = memoryview(answer)
    try:
        correlation_id, position = parse_response_header(view, key, context.version)
        if correlation_id != context.correlation_id:
            raise DecodeError(f"correlation id {correlation_id} instead of {context.correlation_id}")
        response, _end = response_class(key).decode(view, position, context.version)
    except DecodeError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"unreadable response of the controller: {error}") from error
    return response


def encoded_principal(principal: Principal) -> bytes:
    """Kafka's serialization of a principal: the version in two bytes, then DefaultPrincipalData."""
    out = bytearray(_PRINCIPAL_VERSION.to_bytes(2, "big"))
    kind, name, is_of_token, roles = principal
    DefaultPrincipalData(kind, name, is_of_token, list(roles)).encode(out, _PRINCIPAL_VERSION)
    return bytes(out)


def decoded_principal(data: bytes | None) -> Principal:
    """Raises KafkaError PRINCIPAL_DESERIALIZATION_FAILURE."""
    version = -1 if data is None or len(data) < 2 else int.from_bytes(data[:2], "big", signed=True)
    if data is None or version != _PRINCIPAL_VERSION:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    try:
        found, end = DefaultPrincipalData.decode(memoryview(data), 2, version)
    except DecodeError as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from error
    if end != len(data):
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    return Principal(found.type, found.name, found.token_authenticated, tuple(found.roles))


def encoded_address(host: str) -> bytes:
    """Four bytes of an IPv4 address or sixteen of an IPv6 one; the unspecified address for an invalid one."""
    from ipaddress import ip_address  # half a megabyte, which only a cluster needs

    try:
        return ip_address(host.partition("%")[0]).packed
    except ValueError:
        return _UNKNOWN_ADDRESS


def decoded_address(data: bytes) -> str:
    """Raises KafkaError INVALID_REQUEST."""
    from ipaddress import ip_address

    if len(data) not in (4, 16):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"An address of {len(data)} bytes.")
    return str(ip_address(data))
