"""Hosts of ACLs: `*`, an address, or a network such as `10.0.0.0/8`.

Kafka compares the text of addresses. Here addresses are compared by value, so that every spelling of an IPv6 address
is the same host, and a network matches the addresses in it (KIP-1276 proposes that for Kafka).
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address, ip_network

from odradek.ports.hosts import normalized
from odradek.wire.acls import WILDCARD

HostMatcher = Callable[[str], bool]
"""Whether an address, as `normalized` returns it, is one that the ACL is for."""


def is_valid_host(host: str) -> bool:
    """Whether an ACL may have this host: a text with a slash has to be a network."""
    if "/" not in host:
        return bool(host)
    try:
        ip_network(host, strict=False)
    except ValueError:
        return False
    return True


def host_matcher(host: str) -> HostMatcher | None:
    """The predicate that decides whether an ACL with this host applies; None for `*`, which applies to every host."""
    if host == WILDCARD:
        return None
    if "/" in host:
        try:
            network = ip_network(host, strict=False)
        except ValueError:
            return lambda _address: False
        return lambda address: _is_in(address, network)
    return normalized(host).__eq__


def _is_in(address: str, network: object) -> bool:
    try:
        return ip_address(address) in network  # type: ignore[operator]  # a network of either version
    except ValueError:
        return False
