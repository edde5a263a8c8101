"""Listening sockets and the connections accepted on them, within the limits of the configuration."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.api.requests.session import ANONYMOUS, Session
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.network.connection import Dispatch, InboundConnection, Shared
from odradek.broker.network.deadlines import Deadlines
from odradek.broker.network.limits import RequestLimits
from odradek.broker.network.repeated_lines import RepeatedLines
from odradek.broker.network.tls_listeners import TlsListeners
from odradek.broker.network.turns import Turns
from odradek.broker.security.logins import Logins
from odradek.metadata.configs.catalog import address_limit
from odradek.ports.clock import Clock
from odradek.ports.hosts import normalized
from odradek.ports.network import Listener, Network, Stream
from odradek.quotas.connection_rates import ConnectionRates
from odradek.wire.frames import SPEAKS_TLS, FrameReader, ReceiveBuffers

if TYPE_CHECKING:
    from odradek.api.audit.trail import AuditTrail
    from odradek.broker.network.handshakes import Handshakes
    from odradek.ports.tls import TlsStream

logger = logging.getLogger("odradek.connections")

CERTIFICATE: Final = "TLS"
"""What the audit calls the login by a certificate."""
_UNLIMITED = 2_147_483_647


class Allowance(NamedTuple):
    """How much clients may use."""

    requests: RequestLimits
    """Sizes of a request."""
    connections: ConnectionRates
    """New connections per second."""
    buffers: ReceiveBuffers
    """Bytes of requests that are not served yet."""
    turns: Turns
    """Time of a turn of the event loop."""


class Guards(NamedTuple):
    """What clients have to do before they are served."""

    tls: TlsListeners | None = None
    """The TLS of listeners."""
    logins: Logins | None = None
    """The SASL of listeners."""
    audit: AuditTrail | None = None
    """The record of logins by certificates."""


NO_GUARDS: Final = Guards()


class Server:
    """All listeners of a broker and their connections.

    `max.connections`, `max.connections.per.ip`, `max.connection.creation.rate` and the quotas of addresses (KIP-612)
    are enforced here, `connections.max.idle.ms` and `odradek.unauthenticated.timeout.ms` by `Deadlines`;
    `socket.request.max.bytes`, the limits of APIs and `odradek.max.in.flight.requests` by each connection,
    `queued.max.request.bytes` by all of them together.
    """

    __slots__ = (
        "_audit",
        "_broker_listener",
        "_buffers",
        "_clock",
        "_closed_listener",
        "_config",
        "_deadlines",
        "_early",
        "_handshakes",
        "_limits",
        "_lines",
        "_listeners",
        "_logins",
        "_network",
        "_next_identifier",
        "_open",
        "_per_ip",
        "_rates",
        "_shared",
        "_shut",
        "_tls",
        "_waiting",
        "accepted",
        "connections",
    )

    def __init__(
        self,
        network: Network,
        dispatch: Dispatch,
        config: BrokerConfig,
        clock: Clock,
        allowance: Allowance,
        guards: Guards = NO_GUARDS,
    ) -> None:
        self._network = network
        self._shared = Shared(dispatch, self._closed, allowance.turns)
        self._config = config
        self._broker_listener = config.inter_broker_listener_name if config.joins_quorum else None
        self._clock = clock
        self._rates = allowance.connections
        self._limits = allowance.requests
        self._buffers = allowance.buffers
        self._lines = RepeatedLines(logger, clock)
        self._tls = guards.tls
        self._logins = guards.logins
        self._audit = guards.audit
        self._handshakes: Handshakes | None = None
        self._waiting: deque[tuple[Stream, str]] = deque()
        self._listeners: list[Listener] = []
        self._next_identifier = 0
        self._per_ip: Counter[str] = Counter()
        self._open = False
        self._shut: set[str] = set()
        """Names of the listeners that are not open yet."""
        self._early: list[tuple[Stream, str]] = []
        self._closed_listener: Callable[[int], None] | None = None
        self.accepted = 0
        """Connections accepted since the start."""
        self.connections: dict[int, InboundConnection] = {}
        self._deadlines = Deadlines(config, clock, self.connections, self._buffers)

    def on_closed(self, listener: Callable[[int], None]) -> None:
        """Call the listener with the identifier of each connection that has ended."""
        self._closed_listener = listener

    def listen(self, name: str, host: str, port: int) -> Listener:
        """Bind one listener; OSError when the address cannot be bound. Connections wait until `open`."""
        if not self._open:
            self._shut.add(name)
        listener = self._network.listen(host, port, lambda stream: self._accept(stream, name))
        self._listeners.append(listener)
        return listener

    def adopt(self, name: str, open_listener: Callable[[Callable[[Stream], None]], Listener]) -> None:
        """Accept connections of one more socket as those of a listener that is bound. Raises OSError."""
        self._listeners.append(open_listener(lambda stream: self._accept(stream, name)))

    def open(self, *names: str) -> None:
        """Serve the clients that have connected so far, and all from now on; by these listeners, or by all of them."""
        if names:
            self._shut.difference_update(names)
        else:
            self._open = True
            self._shut.clear()
        early, self._early = self._early, []
        for stream, name in early:
            self._accept(stream, name)

    def _accept(self, stream: Stream, listener_name: str) -> None:
        if listener_name in self._shut:
            self._early.append((stream, listener_name))
            return
        config = self._config
        host = stream.peer_host
        if len(self.connections) + len(self._waiting) + self._open_handshakes() >= config.number("max.connections"):
            self._lines.log(logging.WARNING, "connection from %s refused: max.connections reached", host)
            stream.close()
            return
        if self._per_ip[host] >= self._most_from(host):
            self._lines.log(logging.WARNING, "connection from %s refused: max.connections.per.ip reached", host)
            stream.close()
            return
        if self._rates.active:
            early_ms = self._rates.from_address(host, self._clock.monotonic() * 1000)
            if early_ms:
                # As Kafka does: a peer whose connection is closed at once would reconnect at once.
                asyncio.get_running_loop().call_later(early_ms / 1000, stream.close)
                return
        self._per_ip[host] += 1
        if self._waiting or config.number("max.connection.creation.rate") < _UNLIMITED:
            self._waiting.append((stream, listener_name))
            if len(self._waiting) == 1:
                self._next_waiting()
            return
        self._serve(stream, listener_name)

    def _most_from(self, host: str) -> int:
        """`max.connections.per.ip`, or the address's own number in `max.connections.per.ip.overrides`."""
        if overrides := self._config.words("max.connections.per.ip.overrides"):
            own = normalized(host)
            for address, most in map(address_limit, overrides):
                if address == own:
                    return most
        return self._config.number("max.connections.per.ip")

    def _next_waiting(self) -> None:
        """Serve those that wait, in their order and no faster than `max.connection.creation.rate`."""
        while self._waiting:
            limit = self._config.number("max.connection.creation.rate")
            wait_ms = self._rates.from_anybody(limit, self._clock.monotonic() * 1000) if limit < _UNLIMITED else 0
            if wait_ms:
                asyncio.get_running_loop().call_later(wait_ms / 1000, self._waited)
                return
            self._serve(*self._waiting.popleft())

    def _waited(self) -> None:
        if self._waiting:  # else the broker stops
            self._serve(*self._waiting.popleft())
            self._next_waiting()

    def _serve(self, stream: Stream, listener_name: str) -> None:
        host = stream.peer_host
        self.accepted += 1
        context = None if self._tls is None else self._tls.server_context(listener_name)
        if context is None:
            self._open_connection(stream, Session(listener_name, host))
        else:
            self._tls_handshakes().begin(
                stream, context, listener_name, partial(self._secured, listener_name), partial(self._gone, host)
            )

    def _open_handshakes(self) -> int:
        return 0 if self._handshakes is None else len(self._handshakes)

    def _tls_handshakes(self) -> Handshakes:
        if self._handshakes is None:
            from odradek.broker.network.handshakes import Handshakes

            seconds = self._config.number("odradek.unauthenticated.timeout.ms") / 1000
            audit = self._audit
            report = None if audit is None else partial(_report_handshake, audit)
            self._handshakes = Handshakes(self._clock, seconds, report)
        return self._handshakes

    def _secured(self, listener_name: str, stream: TlsStream) -> None:
        """The handshake is complete: the certificate names the client."""
        assert self._tls is not None, "the listener has TLS"
        host = stream.peer_host
        if self._logins is not None and self._logins.guards(listener_name):
            # Whatever the certificate says, the login gives the principal.
            self._open_connection(stream, Session(listener_name, host))
            return
        try:
            principal = self._tls.principal(listener_name, stream)
        except ValueError as error:
            self._lines.log(logging.INFO, "connection from %s on listener %s rejected: %s", host, listener_name, error)
            stream.close()
            self._gone(host)
            if self._audit is not None:
                self._audit.login_failed(host, listener_name, CERTIFICATE, None, str(error))
            return
        session = Session(listener_name, host, principal)
        if self._audit is not None and principal != ANONYMOUS:
            self._audit.logged_in(session, CERTIFICATE, str(principal))
        self._open_connection(stream, session)

    def _open_connection(self, stream: Stream, session: Session) -> None:
        config = self._config
        session.is_between_brokers = session.listener_name == self._broker_listener
        if self._logins is not None:
            self._logins.admit(session)
        self._next_identifier += 1
        most = config.number("socket.request.max.bytes")
        connection = InboundConnection(
            stream,
            self._shared,
            self._next_identifier,
            session,
            FrameReader(
                most if session.is_admitted else partial(self._limits.frame_bytes, session, most),
                self._buffers,
                partial(self._limits.most_bytes, session),
            ),
            config.number("odradek.max.in.flight.requests"),
        )
        self.connections[connection.identifier] = connection
        self._deadlines.begin(connection)

    def _closed(self, connection: InboundConnection, reason: str) -> None:
        self.connections.pop(connection.identifier, None)
        self._deadlines.end(connection)
        if self._closed_listener is not None:
            self._closed_listener(connection.identifier)
        host = connection.session.peer_host
        self._gone(host)
        # A client that is configured for TLS comes again and again, and its own log shows a closed connection only.
        write = partial(self._lines.log, logging.INFO) if reason == SPEAKS_TLS else logger.debug
        name = connection.session.listener_name
        write("connection %d from %s on listener %s ended: %s", connection.identifier, host, name, reason)

    def _gone(self, host: str) -> None:
        self._per_ip[host] -= 1
        if not self._per_ip[host]:
            del self._per_ip[host]

    def stop_listening(self) -> None:
        """Accept no further connection; open ones stay."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def close(self) -> None:
        """Stop listening and close every connection and handshake."""
        self.stop_listening()
        for stream, _ in (*self._early, *self._waiting):
            stream.close()
        self._early.clear()
        self._waiting.clear()
        if self._handshakes is not None:
            self._handshakes.close()
        self._deadlines.close()
        for connection in list(self.connections.values()):
            connection.close("the broker stops")


def _report_handshake(audit: AuditTrail, host: str, listener_name: str, reason: str) -> None:
    audit.login_failed(host, listener_name, CERTIFICATE, None, reason)
