"""Which API keys this broker answers, and by what.

A module `api_NN_name.py` in this package holds one function under `@api(ApiKey.X)`. That the file exists is the
registration, the entry in the ApiVersions answer and the dispatch; nothing lists the keys a second time. Modules load
on their first request, because a broker that starts must not pay for sixty APIs of which a client uses ten.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import odradek.api
from odradek.ports.network import Part
from odradek.wire.apis import APIS, Api, ApiKey, request_class
from odradek.wire.errors import ErrorCode

Handler = Callable[..., Any]
Decoder = Callable[[memoryview, int, int], tuple[Any, int]]
Failed = Callable[[Any, Any, ErrorCode], list[Part] | None]


class Endpoint(NamedTuple):
    """How requests of one key are served.

    `handle(request, context)` answers with the response message, with an awaitable of it, or with None when nothing is
    to be sent. A raw endpoint, one that has `failed`, answers with the finished frame as a list of parts, with an
    awaitable of that list, or with what the connection's `later()` gave it; `failed(request, context, code)` makes the
    frame that says that all of it failed. An `overtaking` endpoint lets the connection's next request start while its
    own answer still waits.
    """

    key: ApiKey
    decode: Decoder
    handle: Handler
    overtaking: bool
    failed: Failed | None


_endpoints: dict[int, Endpoint] = {}


def api(
    key: ApiKey, *, decode: Decoder | None = None, overtaking: bool = False, failed: Failed | None = None
) -> Callable[[Handler], Handler]:
    """Declare the decorated function as the one that serves `key`."""

    def register(handle: Handler) -> Handler:
        _endpoints[key] = Endpoint(key, decode or request_class(key).decode, handle, overtaking, failed)
        return handle

    return register


BETWEEN_BROKERS = frozenset(
    (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    )
)
"""What brokers say among themselves: served, and no client's business."""


@cache
def served_keys() -> dict[int, str]:
    """API key -> module name, in the order of the keys."""
    modules = (module.name for module in pkgutil.iter_modules(odradek.api.__path__))
    return dict(sorted((int(name.split("_")[1]), name) for name in modules if name.startswith("api_")))


def endpoint(key: int) -> Endpoint | None:
    """The endpoint of a key, loading its module on first use; None when the key is not served."""
    found = _endpoints.get(key)
    if found is None and key in served_keys():
        importlib.import_module(f"odradek.api.{served_keys()[key]}")
        found = _endpoints[key]
    return found


def served_apis() -> dict[int, Api]:
    """The schema's entry (name, versions) of every key that clients are told of."""
    return {key: APIS[key] for key in served_keys() if key not in BETWEEN_BROKERS}
