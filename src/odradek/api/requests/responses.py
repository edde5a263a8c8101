"""From a handler's answer or failure to bytes, for the dispatcher and for what comes in an Envelope."""

from __future__ import annotations

import logging
from struct import Struct
from typing import Any

from odradek.api.requests.context import RequestContext
from odradek.api.requests.failures import failure_response
from odradek.wire.apis import ApiKey, response_header_version
from odradek.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("odradek.requests")

_pack_head = Struct(">ii").pack
_pack_flexible = Struct(">iiB").pack
_pack_size_into = Struct(">i").pack_into


def encode_response(message: Any, key: int, version: int, correlation_id: int) -> bytearray:
    """A whole response frame: size, correlation id, tagged fields where the header has them, body.

    Raises EncodeError.
    """
    is_flexible = response_header_version(key, version)
    out = bytearray(_pack_flexible(0, correlation_id, 0) if is_flexible else _pack_head(0, correlation_id))
    message.encode(out, version)
    _pack_size_into(out, 0, len(out) - 4)
    return out


def error_of(error: Exception, key: ApiKey, context: RequestContext[object]) -> tuple[ErrorCode, str | None]:
    """The error code and the message that a client gets for what a handler raised.

    An exception that is no KafkaError is a mistake of ours: the client gets UNKNOWN_SERVER_ERROR, the log a traceback.
    """
    if isinstance(error, KafkaError):
        return error.code, error.message
    logger.error("%s v%d from %s failed", key.name, context.version, context.client_id, exc_info=error)
    return ErrorCode.UNKNOWN_SERVER_ERROR, None


def failed_frame(error: Exception, key: ApiKey, request: Any, context: RequestContext[object]) -> bytearray:
    """The response frame for a request whose handler raised."""
    code, message = error_of(error, key, context)
    response = failure_response(key, request, context.version, code, message)
    return encode_response(response, key, context.version, context.correlation_id)
