"""Which endpoints a broker serves: the plain ones, or those with guards and with records for the audit."""

from __future__ import annotations

from collections.abc import Callable

from odradek.api.requests.context import Services
from odradek.api.requests.registry import Endpoint, endpoint


def endpoint_of(services: Services) -> Callable[[int], Endpoint | None]:
    """The endpoint of a key as these services serve it: with its guard where there is an authorizer, and recording
    its changes where there is an audit topic.
    """
    trail = services.audit
    found = _with_guards(services)
    if trail is None:
        return found
    from odradek.api.audit.endpoints import audited_endpoint

    return lambda key: audited_endpoint(found(key), trail)


def _with_guards(services: Services) -> Callable[[int], Endpoint | None]:
    if services.authorization is None:
        return endpoint
    from odradek.api.authorization.endpoints import guarded_endpoint  # a broker without an authorizer needs no guards

    return guarded_endpoint
