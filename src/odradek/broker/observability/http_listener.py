"""The HTTP listener `odradek.http.listener`: paths and the connections that ask for them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.observability.http_connection import HttpConnection
from odradek.broker.observability.http_messages import Answer
from odradek.ports.network import Listener, Network, Stream

logger = logging.getLogger("odradek.http")

MOST_CONNECTIONS: Final = 64
"""Scrapers and probes are few: more connections than this are closed at once."""
LOOPBACK: Final = "127.0.0.1"
_LOOPBACK_HOSTS: Final = frozenset(("localhost", "127.0.0.1", "::1"))


class HttpAddress(NamedTuple):
    """Where to listen."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine can connect."""
        return self.host in _LOOPBACK_HOSTS


def http_address(text: str) -> HttpAddress | None:
    """The address of `HOST:PORT`, `:PORT` or `PORT`, without a host that of loopback; None for an empty text.

    Raises ConfigError.
    """
    if not text.strip():
        return None
    host, _, port = text.strip().rpartition(":")
    host = host.strip("[]")
    if not port.isdecimal() or int(port) > 65535 or "/" in host:
        raise ConfigError(f"odradek.http.listener: {text} is not HOST:PORT (for instance 127.0.0.1:9644)")
    return HttpAddress(host or LOOPBACK, int(port))


class HttpListener:
    """Serves paths over HTTP until it is closed."""

    __slots__ = ("_connections", "_listener", "_network", "_routes", "address")

    def __init__(self, network: Network, routes: Mapping[str, Answer]) -> None:
        self._network = network
        self._routes = routes
        self._listener: Listener | None = None
        self._connections: set[HttpConnection] = set()
        self.address = ""
        """HOST:PORT that is bound; empty while nothing is."""

    def listen(self, address: HttpAddress) -> None:
        """Bind the address and serve. Raises OSError."""
        listener = self._listener = self._network.listen(address.host, address.port, self._accept)
        host = f"[{listener.host}]" if ":" in listener.host else listener.host
        self.address = f"{host}:{listener.port}"
        if not address.is_loopback:
            logger.warning(
                "metrics and health are served on %s to all who can connect: HTTP has no authentication here",
                self.address,
            )

    def _accept(self, stream: Stream) -> None:
        if len(self._connections) >= MOST_CONNECTIONS:
            logger.warning("HTTP connection from %s rejected: %d are open", stream.peer_host, MOST_CONNECTIONS)
            stream.close()
            return
        self._connections.add(HttpConnection(stream, self._routes, self._connections.discard))

    def close(self) -> None:
        """Stop listening and end all connections."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in list(self._connections):
            connection.close()
        self.address = ""
