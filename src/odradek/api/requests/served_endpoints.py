"""Which endpoints a broker serves: the plain ones, or with an authorizer those with guards."""

from __future__ import annotations

from collections.abc import Callable

from odradek.api.requests.context import Services
from odradek.api.requests.registry import Endpoint, endpoint


def endpoint_of(services: Services) -> Callable[[int], Endpoint | None]:
    """The endpoint of a key as these services serve it: with its guard where there is an authorizer."""
    if services.authorization is None:
        return endpoint
    from odradek.api.authorization.endpoints import guarded_endpoint  # a broker without an authorizer needs no guards

    return guarded_endpoint
