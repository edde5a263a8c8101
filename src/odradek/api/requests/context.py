"""What a handler is given: the request's circumstances and the broker's services, as narrow as each API needs them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from odradek.api.requests.session import Session
from odradek.log.config import LogConfig
from odradek.metadata.image import ClusterImage
from odradek.metrics.requests import RequestCounters
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk
from odradek.ports.network import Part
from odradek.quotas.client_quotas import ClientQuotas
from odradek.replication.fetch_sessions import FetchSessions
from odradek.replication.leadership import Leadership
from odradek.replication.partition import Partition
from odradek.replication.replica_sessions import ReplicaSessions
from odradek.transactions.connections import NewestConnections
from odradek.wire.acls import AclOperation
from odradek.wire.errors import ErrorCode
from odradek.wire.produce import TopicKey

if TYPE_CHECKING:
    from odradek.api.audit.trail import AuditTrail
    from odradek.api.requests.long_work import LongWork
    from odradek.api.services.authorization_service import AuthorizationService
    from odradek.api.services.cluster_service import ClusterMember, ElectedController, PromiseGiver
    from odradek.api.services.controller_service import ControllerService
    from odradek.api.services.log_directory_service import LogDirectoryService
    from odradek.api.services.login_service import LoginService
    from odradek.api.services.telemetry_service import TelemetryService
    from odradek.api.services.token_service import TokenService
    from odradek.authorization.authorizer import Access
    from odradek.controller.configs import ConfigChange, ResourceChanges
    from odradek.groups.service import GroupService
    from odradek.metadata.configs.described import Described
    from odradek.transactions.service import TransactionService

Taken_co = TypeVar("Taken_co", covariant=True)
"""What a handler takes of the broker: see `capabilities`."""


class LateAnswer(Protocol):
    """The place of a response that is given later."""

    def answer(self, parts: list[Part] | None) -> None:
        """The whole frame, or None where the protocol wants none."""
        ...


class Client(Protocol):
    """The connection that a request came on."""

    identifier: int
    session: Session

    def later(self) -> LateAnswer:
        """The place of an answer that a raw endpoint gives later; requests behind it may be served meanwhile."""
        ...

    def throttle(self, milliseconds: int) -> None:
        """Serve nothing more that comes on it for that long; what is answered already goes out (KIP-219)."""
        ...

    def close(self, reason: str) -> None:
        """Close the connection at once, and log the reason."""
        ...

    def end(self, reason: str) -> None:
        """Serve no further request, and close once the answers so far are sent."""
        ...


class Configuration(Protocol):
    """The broker's settings by Kafka's names."""

    def number(self, name: str) -> int:
        """A setting of type int or long."""
        ...

    def text(self, name: str) -> str:
        """A setting of type string."""
        ...

    def flag(self, name: str) -> bool:
        """A setting of type boolean."""
        ...

    def words(self, name: str) -> list[str]:
        """A setting of type list."""
        ...


class Loggers(Protocol):
    """The loggers of this process; both raise KafkaError."""

    def describe(self, broker: str, keys: Iterable[str] | None = None) -> list[Described]:
        """The levels of the loggers named by `keys`, or of all.

        `broker` is the id in the request and must be this one's.
        """
        ...

    def alter(self, broker: str, changes: Sequence[ConfigChange], *, validate_only: bool = False) -> None:
        """Set levels, or only validate them. `broker` is the id in the request and must be this one's."""
        ...


class CertificateService(Protocol):
    """The key and trust stores of this broker's listeners."""

    def check_update(self, resource: ResourceChanges) -> None:
        """Raise KafkaError INVALID_REQUEST where these dynamic settings would break a TLS listener of this broker.

        What is set for other brokers and other resources is not checked.
        """
        ...


class PartitionLookup(Protocol):
    """The replicas of this broker."""

    def find(self, topic: str, index: int) -> Partition | None:
        """The local replica, or None when the topic or partition is not on this broker.

        Raises KafkaError KAFKA_STORAGE_ERROR when its log directory is offline.
        """
        ...

    def require(self, topic: TopicKey, index: int) -> Partition:
        """The same, of a topic named by name or id; raises UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID for none."""
        ...

    def may_lead(self, topic: str, index: int) -> bool:
        """Whether this broker may act as the leader of a partition that it leads; opens no log."""
        ...

    def log_config(self, topic: TopicKey, index: int) -> LogConfig | None:
        """The settings of a replica's log, which is not opened for this; None for a topic that does not exist."""
        ...

    def refused(self, topic: TopicKey, index: int, batches: memoryview, code: ErrorCode, now_ms: int) -> None:
        """Batches were refused, maybe as their replica here cannot be opened yet: those behind are to wait for them."""
        ...


@dataclass(slots=True)
class Services:
    """Everything that serves requests in this broker; built once by `broker.assembly`. Handlers take parts of it."""

    node_id: int
    config: Configuration
    clock: Clock
    disk: Disk
    partitions: PartitionLookup
    long_work: LongWork
    fetch_sessions: FetchSessions
    replica_sessions: ReplicaSessions
    fetchers: NewestConnections
    """Of followers."""
    controller: ControllerService
    elected: ElectedController
    cluster: ClusterMember
    groups: GroupService
    transactions: TransactionService
    loggers: Loggers
    certificates: CertificateService
    quotas: ClientQuotas
    log_directories: LogDirectoryService
    logins: LoginService
    tokens: TokenService
    image: Callable[[], ClusterImage]
    leadership: Leadership | None
    """The right of this broker to act as a leader; None: it always may."""
    promises: PromiseGiver | None
    """Promises to other leaders; None where they ask for none."""
    unreachable: AbstractSet[int]
    """Leaders whose processes seem to be gone, though the controller has not reported it yet."""
    authorization: AuthorizationService | None = None
    """None where every client may do everything."""
    telemetry: TelemetryService | None = None
    """The receiver of clients' metrics; None without one."""
    audit: AuditTrail | None = None
    """The record of logins, denials and changes; None without one."""


class Authorizing(Protocol):
    """Services with an authorizer, perhaps: see `capabilities.HasAuthorization`."""

    @property
    def authorization(self) -> AuthorizationService | None:
        """None where each client may do everything."""
        ...


class RequestContext(Generic[Taken_co]):
    """One request's circumstances, and what its handler takes of the broker."""

    __slots__ = (
        "_began_ms",
        "_busy_ms",
        "client_id",
        "connection",
        "correlation_id",
        "counters",
        "denied",
        "services",
        "size",
        "version",
    )

    def __init__(
        self,
        services: Taken_co,
        version: int,
        correlation_id: int,
        client_id: str | None,
        connection: Client,
        size: int = 0,
        counters: RequestCounters | None = None,
    ) -> None:
        self.services = services
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.connection = connection
        self.size = size
        """Bytes of the request."""
        self.denied: Collection[TopicKey] | None = None
        """Topics of Produce and OffsetCommit that the client may not use; None where it may use all."""
        self.counters = counters
        """Where the request is counted; None without metrics."""
        self._began_ms: float | None = None
        self._busy_ms = 0.0

    @property
    def session(self) -> Session:
        """Who has sent the request."""
        return self.connection.session

    @property
    def access(self: RequestContext[Authorizing]) -> Access:
        """What the client may do; only of a broker with an authorizer (`services.authorization`)."""
        authorization = self.services.authorization
        assert authorization is not None, "the broker has no authorizer"
        return authorization.access(self.connection.session)

    @property
    def may_act_as_broker(self: RequestContext[Authorizing]) -> bool:
        """Whether requests of followers and coordinators are served to the peer.

        It has proven that it is a broker of this cluster; or it uses the listener between brokers of a KRaft cluster,
        where it needs the right to cluster actions, if the broker has an authorizer.
        """
        session = self.connection.session
        if session.broker_id is not None or not session.is_between_brokers:
            return session.broker_id is not None
        return self.services.authorization is None or self.access.allows_cluster(AclOperation.CLUSTER_ACTION)

    @property
    def quota_entity(self) -> tuple[str, str]:
        """User and client id, by which quotas are kept."""
        return self.connection.session.principal.name, self.client_id or ""

    def note_error(self, code: int) -> None:
        """Count an error that the request is answered with, as a whole or for a partition."""
        if self.counters is not None:
            self.counters.errors[code] += 1

    def throttle(self, milliseconds: int) -> None:
        """Let the client pause for this long after the answer, and count it (KIP-219)."""
        if self.counters is not None:
            self.counters.note_throttle(milliseconds)
        self.connection.throttle(milliseconds)

    # The time quota's; not called without one.

    def begins(self, now_ms: float) -> None:
        """The event loop works for the request from here on (monotonic clock)."""
        self._began_ms = now_ms

    def waits(self, now_ms: float) -> None:
        """It works for others now; what comes later counts for little."""
        self._busy_ms, self._began_ms = self.busy_ms(now_ms), None

    def busy_ms(self, now_ms: float) -> float:
        """How long the event loop has worked for the request so far."""
        return self._busy_ms if self._began_ms is None else self._busy_ms + now_ms - self._began_ms
