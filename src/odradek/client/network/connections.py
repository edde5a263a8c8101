"""The connections of one client: at most one per broker and purpose, opened on first use, reopened with backoff."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from odradek.client.config import CommonOptions, parse_servers
from odradek.client.errors import (
    AuthenticationFailed,
    ClientClosed,
    ClientError,
    Disconnected,
    IdleConnection,
    TransportError,
)
from odradek.client.metrics.counts import NodeTraffic
from odradek.client.metrics.windows import Windows
from odradek.client.network.connection import Connection, open_connection
from odradek.client.network.failure_log import FailureLog
from odradek.client.security.tls import secure_connections, uses_sasl
from odradek.ports.network import BufferSizes, Network, canonical_names
from odradek.ports.randomness import Random

if TYPE_CHECKING:
    from odradek.client.security.sasl import Login, Reauthentication

logger = logging.getLogger(__name__)

DATA: Final = "data"
GROUP: Final = "group"
"""Purposes. A group's coordinator gets a connection of its own, so that no heartbeat waits behind a long fetch."""


class BrokerAddress(NamedTuple):
    """Where a broker listens, and in which rack it is (None: it does not say)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def backoff_seconds(failures: int, base_ms: float, limit_ms: float, random: Random) -> float:
    """Exponential backoff with 20 % jitter, as Kafka's ExponentialBackoff; `failures` counts from 1."""
    if failures <= 0 or base_ms <= 0:
        return 0.0
    delay = min(float(limit_ms), base_ms * 2.0 ** min(failures - 1, 30))
    return delay * (0.8 + 0.4 * random.random()) / 1000


class _Slot:
    """State of one (address, purpose): the connection, the attempt under way, failures so far."""

    __slots__ = ("attempt", "connection", "failures", "retry_at")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.attempt: asyncio.Task[Connection] | None = None
        self.failures = 0
        self.retry_at = 0.0


class Connections:
    """Hands out open connections by broker id."""

    __slots__ = (
        "_bootstrap",
        "_buffers",
        "_by_address",
        "_closed",
        "_failures",
        "_idle_s",
        "_idle_timer",
        "_log_in",
        "_loop",
        "_network",
        "_opened",
        "_options",
        "_random",
        "_secure",
        "_windows",
        "brokers",
        "traffic",
    )  # fmt: skip

    def __init__(self, network: Network, random: Random, options: CommonOptions, windows: Windows) -> None:
        """`windows` track what is sent and received. Raises ConfigError for certificates that cannot be used."""
        self._secure = secure_connections(options)
        self._log_in: Login | None = None
        if uses_sasl(options):
            from odradek.client.security.sasl import logins  # a client without SASL does not load it

            self._log_in = logins(options, random)
        self._network = network
        self._random = random
        self._options = options
        self._bootstrap = parse_servers(options["bootstrap_servers"])
        self._buffers = BufferSizes(options["send_buffer_bytes"], options["receive_buffer_bytes"])
        # Negative: idle connections are not closed.
        self._idle_s = options["connections_max_idle_ms"] / 1000
        self._idle_timer: asyncio.TimerHandle | None = None
        self._by_address: dict[tuple[str, int, str], _Slot] = {}
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._failures = FailureLog(logger, self._loop.time, {"client_id": options["client_id"]})
        self.brokers: dict[int, BrokerAddress] = {}
        self._windows = windows
        self._opened: Callable[[Connection], None] | None = None
        self.traffic: dict[tuple[str, int], NodeTraffic] = {}
        """What was sent and received, by host and port."""

    def watch_opened(self, listener: Callable[[Connection], None] | None) -> None:
        """Call the listener, instead of an earlier one, with each connection that can be used; None for no listener."""
        self._opened = listener

    @property
    def open_count(self) -> int:
        """Connections that are open now."""
        return sum(slot.connection is not None for slot in self._by_address.values())

    def _traffic(self, host: str, port: int) -> NodeTraffic:
        found = self.traffic.get((host, port))
        if found is None:
            found = self.traffic[host, port] = self._windows.track(NodeTraffic())
        return found

    def update_brokers(self, brokers: Mapping[int, BrokerAddress]) -> None:
        """Replace the known brokers."""
        self.brokers = dict(brokers)

    def add_broker(self, broker: BrokerAddress) -> None:
        """Add a coordinator: an answer may name it before the metadata does, or at a new address after a restart."""
        known = self.brokers.get(broker.node_id)
        if known is None or (known.host, known.port) != (broker.host, broker.port):
            self.brokers[broker.node_id] = broker

    def opened(self, node_id: int, purpose: str = DATA) -> Connection | None:
        """The broker's connection if it is open now."""
        broker = self.brokers.get(node_id)
        if broker is None:
            return None
        slot = self._by_address.get((broker.host, broker.port, purpose))
        return slot.connection if slot is not None else None

    async def get(self, node_id: int, purpose: str = DATA) -> Connection:
        """An open connection to a broker. Raises TransportError, UnsupportedByBroker, ClientClosed."""
        broker = self.brokers.get(node_id)
        if broker is None:
            raise Disconnected(f"broker {node_id} is not known")
        return await self._connect(broker.host, broker.port, purpose)

    async def any(self, other_than: Connection | None = None) -> Connection:
        """The connection of any broker: the least busy open one, else of the first broker that can be reached.

        Brokers whose connection was closed or failed are tried last: one that stands still accepts connections, and
        answers none of them until the request timeout. The broker of `other_than` is the very last.

        Raises Disconnected when none can be reached, AuthenticationFailed when one rejects this client.
        """
        opened = [
            slot.connection
            for (_, _, purpose), slot in self._by_address.items()
            if slot.connection is not None and slot.connection is not other_than and purpose == DATA
        ]
        if opened:
            return min(opened, key=lambda each: each.in_flight)
        candidates = [(each.host, each.port) for each in self.brokers.values()]
        start = self._random.randrange(len(candidates)) if candidates else 0
        candidates = candidates[start:] + candidates[:start]
        if self._options["metadata_recovery_strategy"] == "rebootstrap" or not candidates:
            candidates += [each for each in await self._bootstrap_addresses() if each not in candidates]
        candidates.sort(key=lambda address: self._doubts(address, other_than))
        failures: list[str] = []
        for host, port in candidates:
            try:
                return await self._connect(host, port, DATA)
            except (ClientClosed, AuthenticationFailed):
                raise
            except ClientError as error:
                failures.append(str(error))
        raise Disconnected(f"no broker can be reached: {'; '.join(failures)}")

    async def _bootstrap_addresses(self) -> list[tuple[str, int]]:
        """Bootstrap servers, or the canonical names of all their addresses (client_dns_lookup)."""
        if self._options["client_dns_lookup"] != "resolve_canonical_bootstrap_servers_only":
            return self._bootstrap
        found: list[tuple[str, int]] = []
        for host, port in self._bootstrap:
            try:
                found += [(name, port) for name in await canonical_names(host, port)]
            except OSError as error:
                self._failures.failed(f"look-up of bootstrap server {host}", error, "using the others")
        return found

    def rebootstrap(self, reason: TransportError) -> None:
        """Forget the known brokers, and close their connections: the bootstrap servers are next (KIP-899)."""
        self.brokers = {}
        for slot in list(self._by_address.values()):
            if slot.connection is not None:
                slot.connection.close(reason)

    def _doubts(self, address: tuple[str, int], other_than: Connection | None) -> tuple[bool, int]:
        """Whether this is the broker to avoid, and how often its connections failed since the last one was opened."""
        slot = self._by_address.get((*address, DATA))
        if slot is None:
            return False, 0
        return other_than is not None and slot.connection is other_than, slot.failures

    async def close(self) -> None:
        """Close all connections; requests in flight fail with ClientClosed."""
        self._closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        reason = ClientClosed("the client was closed")
        attempts = []
        for slot in self._by_address.values():
            if slot.connection is not None:
                slot.connection.close(reason)
            if slot.attempt is not None:
                slot.attempt.cancel()
                attempts.append(slot.attempt)
        for attempt in attempts:
            with contextlib.suppress(asyncio.CancelledError, ClientError):
                await attempt
        self._by_address.clear()

    async def _connect(self, host: str, port: int, purpose: str) -> Connection:
        if self._closed:
            raise ClientClosed("the client was closed")
        slot = self._by_address.setdefault((host, port, purpose), _Slot())
        if slot.connection is not None:
            return slot.connection
        if slot.attempt is None:
            slot.attempt = self._loop.create_task(self._attempt(slot, host, port))
            # All callers may have given up waiting by then.
            slot.attempt.add_done_callback(retrieve_failure)
        # Shielded: one caller's timeout must not take the connection from the others.
        return await asyncio.shield(slot.attempt)

    async def _attempt(self, slot: _Slot, host: str, port: int) -> Connection:
        options = self._options
        traffic = self._traffic(host, port)
        shortest_ms, longest_ms = (
            options["socket_connection_setup_timeout_ms"],
            options["socket_connection_setup_timeout_max_ms"],
        )
        try:
            wait = slot.retry_at - self._loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            connection = await open_connection(
                self._network,
                host,
                port,
                client_id=options["client_id"],
                setup_timeout_ms=max(shortest_ms, min(longest_ms, shortest_ms << min(slot.failures, 16))),
                request_timeout_ms=options["request_timeout_ms"],
                secure=self._secure,
                traffic=traffic,
                buffers=self._buffers,
            )
            again = await self._authenticate(connection)
        except ClientError as error:
            self._failed(slot)
            pause_ms = max(0.0, slot.retry_at - self._loop.time()) * 1000
            why = str(error).removeprefix(f"{host}:{port}: ")
            self._failures.failed(f"connection to broker at {host}:{port}", why, f"retrying in {pause_ms:.0f} ms")
            raise
        except asyncio.CancelledError:
            if self._closed:  # the callers that wait are not to look cancelled
                raise ClientClosed("the client was closed") from None
            raise
        finally:
            slot.attempt = None
        slot.connection = connection
        slot.failures = 0
        traffic.connections_opened += 1
        self._failures.succeeded(f"connection to broker at {host}:{port}")

        def gone(closed: Connection) -> None:
            slot.connection = None
            traffic.connections_closed += 1
            if again is not None:
                again.cancel()
            if not isinstance(closed.closed, IdleConnection):
                self._failed(slot)
            if not self._closed:
                logger.info(
                    "connection to broker at %s:%d (client %s) is closed: %s",
                    host, port, options["client_id"], closed.closed,
                )  # fmt: skip

        connection.watch_close(gone)
        self._check_idle_at(connection.used_at + self._idle_s)
        if self._opened is not None:
            self._opened(connection)
        return connection

    async def _authenticate(self, connection: Connection) -> Reauthentication | None:
        """Log in by SASL if the options say so; the connection is closed if that fails. Raises ClientError."""
        if self._log_in is None:
            return None
        timeout_ms = self._options["request_timeout_ms"]
        try:
            lifetime_ms = await self._log_in(connection, timeout_ms)
        except BaseException as error:
            connection.traffic.failed_authentications += isinstance(error, AuthenticationFailed)
            connection.close()
            raise
        connection.traffic.authentications += 1
        from odradek.client.security.sasl import Reauthentication

        again = Reauthentication(connection, self._log_in, self._random, timeout_ms)
        again.schedule(lifetime_ms)
        return again

    def _check_idle_at(self, when: float) -> None:
        if self._idle_s >= 0 and self._idle_timer is None and not self._closed:
            self._idle_timer = self._loop.call_at(when, self._close_idle)

    def _close_idle(self) -> None:
        """Close connections that had no request for connections_max_idle_ms; those that wait for an answer stay."""
        self._idle_timer = None
        now = self._loop.time()
        next_check = float("inf")
        for slot in list(self._by_address.values()):
            connection = slot.connection
            if connection is None:
                continue
            due = (now if connection.in_flight else connection.used_at) + self._idle_s
            if due <= now and not connection.in_flight:
                idle_ms = self._options["connections_max_idle_ms"]
                connection.close(IdleConnection(f"no request for {idle_ms} ms (connections_max_idle_ms)"))
            else:
                next_check = min(next_check, due)
        if next_check < float("inf"):
            self._check_idle_at(next_check)

    def _failed(self, slot: _Slot) -> None:
        slot.failures += 1
        options = self._options
        slot.retry_at = self._loop.time() + backoff_seconds(
            slot.failures, options["reconnect_backoff_ms"], options["reconnect_backoff_max_ms"], self._random
        )


def retrieve_failure(task: asyncio.Future[Any]) -> None:
    """Retrieve the error of what perhaps has no waiter left: asyncio would log it as never retrieved."""
    if not task.cancelled():
        task.exception()
