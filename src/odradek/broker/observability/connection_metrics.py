"""Metrics of connections: how many, what waits on them, and the requests whose answers wait (Kafka's purgatories)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from odradek.broker.network.connection import InboundConnection
from odradek.metrics.definition import Family, Metric, counter, gauge, label, several, single

_STEP: Final = 64
"""Connections that are looked at in one step."""

_PURGATORY: Final = "kafka.server:type=DelayedOperationPurgatory,name="
_OPERATION: Final = ("delayedOperation",)

CONNECTIONS: Final = gauge(
    "kafka_server_socket_server_metrics_connection_count",
    "Open connections by listener",
    "kafka.server:type=socket-server-metrics,name=connection-count",
    ("listener",),
)
SOFTWARE: Final = gauge(
    "kafka_server_socket_server_metrics_connections_software",
    "Open connections by listener and by the software that clients name (unknown for those that name none): the most "
    "frequent ones, the others together as other",
    "kafka.server:type=socket-server-metrics,clientSoftwareName=NAME,clientSoftwareVersion=VERSION",
    ("clientSoftwareName", "clientSoftwareVersion", "listener"),
)
MAX_SOFTWARE: Final = 100
"""Series of software: clients choose their names."""
_MAX_NAME: Final = 64
"""Characters of a client's name that a label has."""
ACCEPTED: Final = counter("odradek_connections_accepted", "Connections that were accepted since the start")
QUEUED_REQUESTS: Final = gauge(
    "kafka_network_requestchannel_requestqueuesize",
    "Requests received that wait for an earlier request of their connection, or for the end of a pause",
    "kafka.network:type=RequestChannel,name=RequestQueueSize",
)
QUEUED_ANSWERS: Final = gauge(
    "kafka_network_requestchannel_responsequeuesize",
    "Answers that wait for the answer to an earlier request of their connection",
    "kafka.network:type=RequestChannel,name=ResponseQueueSize",
)
PURGATORY: Final = gauge(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "Requests of open connections whose answers wait: Produce (disk, followers), Fetch (records), DeleteRecords "
    "(followers), Rebalance (JoinGroup and SyncGroup: members), ElectLeader (the controller)",
    f"{_PURGATORY}PurgatorySize",
    _OPERATION,
)
DELAYED: Final = gauge(
    "kafka_server_delayedoperationpurgatory_numdelayedoperations",
    "The same: an operation leaves the moment it is complete",
    f"{_PURGATORY}NumDelayedOperations",
    _OPERATION,
)
WAITING: Final = gauge(
    "odradek_waiting_requests", "Requests of open connections whose answers wait, of all APIs", "", ("request",)
)

_OPERATIONS: Final = {
    "Produce": ("Produce",),
    "Fetch": ("FetchConsumer", "FetchFollower"),
    "DeleteRecords": ("DeleteRecords",),
    "Rebalance": ("JoinGroup", "SyncGroup"),
    "ElectLeader": ("ElectLeaders",),
}
"""The APIs that wait by Kafka's name of the delayed operation."""


class Connections(Protocol):
    """The connections of a broker."""

    @property
    def accepted(self) -> int:
        """Connections accepted since the start."""
        ...

    @property
    def connections(self) -> dict[int, InboundConnection]:
        """The open connections."""
        ...


class ConnectionMetrics:
    """Reads the connections of a broker: a scrape looks at each of them, a request does nothing for it."""

    __slots__ = ("_apis", "_server")

    metrics = (CONNECTIONS, SOFTWARE, ACCEPTED, QUEUED_REQUESTS, QUEUED_ANSWERS, PURGATORY, DELAYED, WAITING)
    """See `Collector`."""

    def __init__(self, server: Connections, apis: Callable[[], Iterable[str]]) -> None:
        """`apis` are the names of the APIs that have been asked for: each has a series of waiting requests."""
        self._server = server
        self._apis = apis

    def collect(self) -> Iterator[Family | None]:
        """See `Collector`."""
        by_listener: Counter[str] = Counter()
        software: Counter[tuple[str, str, str]] = Counter()
        waiting: Counter[str] = Counter()
        requests = answers = 0
        for number, connection in enumerate(list(self._server.connections.values())):
            if number % _STEP == _STEP - 1:
                yield None
            session = connection.session
            by_listener[session.listener_name] += 1
            software[session.client_software_name, session.client_software_version, session.listener_name] += 1
            requests += connection.queued_requests
            for pending in connection.open_requests:
                if pending.ready:
                    answers += 1
                elif pending.timing is not None:
                    waiting[pending.timing.api] += 1
        yield several(CONNECTIONS, ((label("listener", name), count) for name, count in by_listener.items()))
        yield _of_software(software)
        yield single(ACCEPTED, self._server.accepted)
        yield single(QUEUED_REQUESTS, requests)
        yield single(QUEUED_ANSWERS, answers)
        yield _of_operations(PURGATORY, waiting)
        yield _of_operations(DELAYED, waiting)
        yield several(WAITING, [(label("request", name), waiting[name]) for name in self._apis()])


def _of_software(counts: Counter[tuple[str, str, str]]) -> Family:
    shown: Counter[tuple[str, str, str]] = Counter()
    for number, ((name, version, listener), count) in enumerate(counts.most_common()):
        if number < MAX_SOFTWARE:
            shown[name[:_MAX_NAME] or "unknown", version[:_MAX_NAME] or "unknown", listener] += count
        else:
            shown["other", "other", listener] += count
    names = ("clientSoftwareName", "clientSoftwareVersion", "listener")
    return several(SOFTWARE, ((",".join(map(label, names, values)), count) for values, count in shown.items()))


def _of_operations(metric: Metric, waiting: Counter[str]) -> Family:
    return several(
        metric,
        [(label("delayedOperation", name), sum(waiting[api] for api in apis)) for name, apis in _OPERATIONS.items()],
    )
