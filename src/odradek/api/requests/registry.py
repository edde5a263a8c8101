"""Which API keys this broker answers, and by what.

`declarations.py` says which APIs there are and what each is; a module `api_NN_name.py` in this package holds the
function under `@api(ApiKey.X)` that serves it. Modules load on their first request.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

from odradek.api.requests.declarations import DECLARATIONS, Audience, Declaration
from odradek.ports.network import Part
from odradek.wire.apis import APIS, Api, ApiKey, request_class
from odradek.wire.errors import ErrorCode

Handler = Callable[..., Any]
Decoder = Callable[[memoryview, int, int], tuple[Any, int]]
Failed = Callable[[Any, Any, ErrorCode], list[Part] | None]
OwnPart = Callable[[Any, Any], tuple[Any | None, Callable[[Any | None], Any]]]


class Endpoint(NamedTuple):
    """How requests of one key are served.

    `handle(request, context)` answers with the response message, with an awaitable of it, or with None when nothing is
    to be sent. A raw endpoint, one that has `failed`, answers with the finished frame as a list of parts, with an
    awaitable of that list, or with what the connection's `later()` gave it; `failed(request, context, code)` makes the
    frame that says that all of it failed.

    `own_part(request, context)` does the part of a forwarded request that concerns this broker alone. It returns the
    request for the controller, None if there is nothing left, and what completes the controller's response.
    """

    declared: Declaration
    decode: Decoder
    handle: Handler
    failed: Failed | None = None
    own_part: OwnPart | None = None
    is_guarded: bool = False
    """Whether something is to be decided before the handler: only brokers may send it, or it may be forwarded."""

    @property
    def key(self) -> ApiKey:
        """The API key."""
        return self.declared.key


_endpoints: dict[int, Endpoint] = {}


def api(
    key: ApiKey, *, decode: Decoder | None = None, failed: Failed | None = None, own_part: OwnPart | None = None
) -> Callable[[Handler], Handler]:
    """Make the decorated function the one that serves `key`, as it is declared. KeyError for one that is not."""
    declared = DECLARATIONS[key]

    def register(handle: Handler) -> Handler:
        may_be_forwarded = declared.is_forwarded or declared.is_decided_by_quorum
        is_guarded = may_be_forwarded or declared.audience is not Audience.CLIENTS
        _endpoints[key] = Endpoint(declared, decode or request_class(key).decode, handle, failed, own_part, is_guarded)
        return handle

    return register


def endpoint(key: int) -> Endpoint | None:
    """The endpoint of a key, loading its module on first use; None when the key is not served."""
    found = _endpoints.get(key)
    if found is None and (declared := DECLARATIONS.get(key)) is not None:
        importlib.import_module(f"odradek.api.{declared.module}")
        found = _endpoints[key]
    return found


def apis_for_clients(*, with_sasl: bool = False, with_telemetry: bool = False) -> dict[int, Api]:
    """The schema's entry (name, versions) of every key that the ApiVersions answer lists."""
    return {
        key: APIS[key]
        for key, declared in DECLARATIONS.items()
        if declared.audience is Audience.CLIENTS
        and (with_sasl or not declared.is_for_sasl)
        and (with_telemetry or not declared.is_for_telemetry)
    }
