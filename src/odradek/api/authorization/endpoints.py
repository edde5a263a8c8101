"""Endpoints with their guards, for a dispatcher whose broker has an authorizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.api.authorization.guarding import Entries, Guard, Guarded, joined, merge, split, with_list
from odradek.api.authorization.guards import GUARDS, OWN_PARTS, open_to_all
from odradek.api.requests.context import RequestContext
from odradek.api.requests.failures import failure_response
from odradek.api.requests.registry import Endpoint, Handler, OwnPart, endpoint
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError

_guarded: dict[int, Endpoint] = {}


def guarded_endpoint(key: int) -> Endpoint | None:
    """The endpoint of a key, whose handler serves what the client may ask for; None when the key is not served."""
    found = _guarded.get(key)
    if found is None:
        plain = endpoint(key)
        if plain is None:
            return None
        guard = GUARDS.get(plain.key, _refuse)
        own_part = plain.own_part
        if own_part is not None:
            own_part = _guarded_part(plain.key, own_part, OWN_PARTS[plain.key])
        found = _guarded[key] = plain._replace(handle=_guarded_handler(plain, guard), own_part=own_part)
    return found


def _guarded_handler(plain: Endpoint, guard: Guard) -> Handler:
    handle, name = plain.handle, plain.key.name

    # These run with every request: they look at the session's access themselves, as `authorization.access` would.

    def guarded(request: Any, context: RequestContext[Guarded]) -> Any:
        session = context.connection.session
        access = session.access
        if (
            access is None
            or access.principal is not session.principal
            or access.is_broker is (session.broker_id is None)
        ):
            access = context.access
        access.request, access.client_id = name, context.client_id
        return guard(request, context, access, handle)

    def unguarded(request: Any, context: RequestContext[Guarded]) -> Any:
        # Without the call of a guard that only calls the handler: Fetch and Metadata are frequent.
        session = context.connection.session
        access = session.access
        if (
            access is None
            or access.principal is not session.principal
            or access.is_broker is (session.broker_id is None)
        ):
            access = context.access
        access.request, access.client_id = name, context.client_id
        return handle(request, context)

    return unguarded if guard is open_to_all else guarded


def _refuse(_request: Any, _context: RequestContext[Guarded], _access: Any, _handle: Handler) -> Any:
    """Of an API without a guard."""
    raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _guarded_part(key: ApiKey, own_part: OwnPart, entries: Entries) -> OwnPart:
    def guarded(request: Any, context: RequestContext[Guarded]) -> tuple[Any | None, Callable[[Any | None], Any]]:
        access = context.access
        access.request, access.client_id = key.name, context.client_id
        allowed, refused = split(request, entries, access)
        if not refused:
            return own_part(request, context)
        rest, complete = own_part(with_list(request, entries.field, allowed), context)

        def failed(entry: Any) -> Any:
            code = entries.error(entry)
            of_entry = with_list(request, entries.field, [entry])
            return failure_response(key, of_entry, context.version, code, code.message)

        def completed(answer: Any | None) -> Any:
            return merge(complete(answer), joined([failed(entry) for entry in refused]))

        return (rest if allowed else None), completed

    return guarded
