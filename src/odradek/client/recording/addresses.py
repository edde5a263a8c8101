"""Addresses of brokers in answers, which a proxy replaces by its own. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from odradek.wire.apis import ApiKey
from odradek.wire.messages.api_versions import ApiVersionsResponse


class Address(NamedTuple):
    """Where a broker, or the proxy in its place, accepts connections."""

    host: str
    port: int


_FIELDS: Final = {
    ApiKey.PRODUCE: "node_endpoints",
    ApiKey.FETCH: "node_endpoints",
    ApiKey.METADATA: "brokers",
    ApiKey.FIND_COORDINATOR: "coordinators",
    ApiKey.DESCRIBE_CLUSTER: "brokers",
    ApiKey.SHARE_FETCH: "node_endpoints",
    ApiKey.SHARE_ACKNOWLEDGE: "node_endpoints",
}
_NAMED_ID: Final = {ApiKey.DESCRIBE_CLUSTER: "broker_id"}


def places(key: int, response: Any) -> Iterator[tuple[Any, int]]:
    """Each part of an answer that names a broker's address, by `host` and `port`, with the broker's id."""
    if key not in _FIELDS:
        return
    field, name = _FIELDS[ApiKey(key)], _NAMED_ID.get(ApiKey(key), "node_id")
    parts = list(getattr(response, field) or ())
    if key == ApiKey.FIND_COORDINATOR:
        parts.append(response)  # before version 4, the answer itself
    for each in parts:
        if each.host and each.port > 0:
            yield each, getattr(each, name)


def replace_addresses(key: int, response: Any, address_of: Callable[[Address, int], Address]) -> bool:
    """Replace the addresses in a decoded answer; return whether there were any."""
    changed = False
    for part, node_id in places(key, response):
        part.host, part.port = address_of(Address(part.host, part.port), node_id)
        changed = True
    return changed


def withdraw_bare_sasl(response: ApiVersionsResponse) -> bool:
    """Take version 0 of SaslHandshake from the offer: tokens without a Kafka header would follow it."""
    for each in response.api_keys:
        if each.api_key == ApiKey.SASL_HANDSHAKE and each.min_version == 0 and each.max_version >= 1:
            each.min_version = 1
            return True
    return False
