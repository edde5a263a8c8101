"""Addresses that listeners are bound to and advertise, and what an operator has to know of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from odradek.broker.configuration.broker_config import Listener
from odradek.metadata.image import Endpoint
from odradek.ports import hosts

_WILDCARDS: Final = frozenset(("", "0.0.0.0", "::"))

_OPEN: Final = (
    "every host that reaches this port can read, write and delete all topics; bind 127.0.0.1, or let only trusted "
    "hosts reach the port"
)


class BoundListener(NamedTuple):
    """A listener as configured, but with its real port, and the host that its socket has."""

    listener: Listener
    host: str

    @property
    def address(self) -> str:
        """HOST:PORT of the socket."""
        return host_port(self.host, self.listener.port)


def host_port(host: str, port: int) -> str:
    """HOST:PORT as clients write it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_wildcard(host: str) -> bool:
    """Whether a socket bound to the host takes connections on all interfaces."""
    return host in _WILDCARDS


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine reach the host; of a name other than localhost it is not known."""
    return hosts.is_loopback(host) or host.startswith("localhost.")


def bootstrap_of(bound: BoundListener, advertised: Mapping[str, Endpoint]) -> str:
    """HOST:PORT for clients of a listener: what it advertises where it is bound to all interfaces."""
    listener = bound.listener
    if not is_wildcard(listener.host):
        return host_port(listener.host, listener.port)
    endpoint = advertised.get(listener.name)
    return bound.address if endpoint is None else host_port(endpoint.host, endpoint.port)


def controller_notice(bound: BoundListener, *, authenticates: bool, has_authorizer: bool) -> str:
    """A warning where strangers can act as a controller or a broker of the cluster; empty where they cannot."""
    if is_loopback(bound.host) or (authenticates and has_authorizer):
        return ""
    everywhere = " (all interfaces)" if is_wildcard(bound.host) else ""
    subject = f"listener {bound.listener.name} is bound to {bound.address}{everywhere}"
    if authenticates:
        return (
            f"{subject} without an authorizer: every client that logs in can act as a controller or a broker; "
            "set authorizer.class.name, and super.users to the principals of all nodes"
        )
    return (
        f"{subject} without authentication: every host that reaches this port can act as a controller or a broker; "
        "let only the cluster's nodes reach the port, or set TLS client certificates or SASL"
    )


def address_notices(
    bound: BoundListener, advertised: Mapping[str, Endpoint], *, is_derived: bool, authenticates: bool = False
) -> Iterator[tuple[int, str]]:
    """Log level and text of each thing to know; `is_derived` if `advertised.listeners` is not set.

    `authenticates` if every client of the listener has to prove its identity.
    """
    name, host = bound.listener.name, bound.host
    if is_loopback(host):
        return
    everywhere = " (all interfaces)" if is_wildcard(host) else ""
    if not authenticates:
        yield (
            logging.WARNING,
            f"listener {name} is bound to {bound.address}{everywhere} without authentication: {_OPEN}",
        )
    endpoint = advertised.get(name)
    if endpoint is None or not is_derived or not is_wildcard(host):
        return
    address = host_port(endpoint.host, endpoint.port)
    setting = f"advertised.listeners={name}://HOST:{endpoint.port}"
    if is_loopback(endpoint.host):
        text = f"clients receive the address {address}, which only this machine reaches: set {setting}"
        yield logging.WARNING, f"listener {name}: {text}"
    else:
        text = f"clients receive the address {address}; if they reach it by another name, set {setting}"
        yield logging.INFO, f"listener {name}: {text}"
