"""What handlers take of the broker: one protocol for each capability, which a handler combines.

A handler takes `RequestContext[HasGroups]`, or of a protocol in its module that combines several, so that its signature
shows all that it can reach, and a test gives it no more. The dispatcher passes `Services`, which has them all.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from odradek.api.requests.context import CertificateService, Configuration, Loggers, PartitionLookup
    from odradek.api.requests.long_work import LongWork
    from odradek.api.services.authorization_service import AuthorizationService
    from odradek.api.services.cluster_service import ClusterMember, ElectedController, PromiseGiver
    from odradek.api.services.controller_service import ControllerService
    from odradek.api.services.log_directory_service import LogDirectoryService
    from odradek.api.services.login_service import LoginService
    from odradek.api.services.telemetry_service import TelemetryService
    from odradek.api.services.token_service import TokenService
    from odradek.groups.service import GroupService
    from odradek.metadata.image import ClusterImage
    from odradek.ports.clock import Clock
    from odradek.ports.disk import Disk
    from odradek.quotas.client_quotas import ClientQuotas
    from odradek.replication.fetch_sessions import FetchSessions
    from odradek.replication.leadership import Leadership
    from odradek.replication.replica_sessions import ReplicaSessions
    from odradek.transactions.connections import NewestConnections
    from odradek.transactions.service import TransactionService


class HasClock(Protocol):
    """Wall and monotonic time."""

    @property
    def clock(self) -> Clock:
        """Wall and monotonic time."""
        ...


class HasAuthorization(Protocol):
    """Decisions about clients; None where each client may do everything."""

    @property
    def authorization(self) -> AuthorizationService | None:
        """Decisions about clients; None where each client may do everything."""
        ...


class HasTokens(Protocol):
    """Delegation tokens."""

    @property
    def tokens(self) -> TokenService:
        """Delegation tokens."""
        ...


class HasTelemetry(Protocol):
    """The receiver of clients' metrics (KIP-714); None without one."""

    @property
    def telemetry(self) -> TelemetryService | None:
        """The receiver of clients' metrics; None without one."""
        ...


class HasCluster(Protocol):
    """This broker, as the controller reaches it."""

    @property
    def cluster(self) -> ClusterMember:
        """This broker, as the controller reaches it."""
        ...


class HasConfig(Protocol):
    """The broker's settings."""

    @property
    def config(self) -> Configuration:
        """The broker's settings."""
        ...


class HasController(Protocol):
    """Changes that the controller decides, wherever it is."""

    @property
    def controller(self) -> ControllerService:
        """Changes that the controller decides, wherever it is."""
        ...


class HasDisk(Protocol):
    """The files of this broker."""

    @property
    def disk(self) -> Disk:
        """The files of this broker."""
        ...


class HasElected(Protocol):
    """The controller in this process, as brokers ask it."""

    @property
    def elected(self) -> ElectedController:
        """The controller in this process, as brokers ask it."""
        ...


class HasFetchSessions(Protocol):
    """Fetch sessions of clients."""

    @property
    def fetch_sessions(self) -> FetchSessions:
        """Fetch sessions of clients."""
        ...


class HasFetchers(Protocol):
    """The newest connection of each follower."""

    @property
    def fetchers(self) -> NewestConnections:
        """The newest connection of each follower."""
        ...


class HasGroups(Protocol):
    """The group coordinator."""

    @property
    def groups(self) -> GroupService:
        """The group coordinator."""
        ...


class HasImage(Protocol):
    """The cluster as this broker knows it."""

    @property
    def image(self) -> Callable[[], ClusterImage]:
        """The cluster as this broker knows it."""
        ...


class HasLeadership(Protocol):
    """The right of this broker to act as a leader; None: it always may."""

    @property
    def leadership(self) -> Leadership | None:
        """The right of this broker to act as a leader; None: it always may."""
        ...


class HasLogDirectories(Protocol):
    """The log directories of this broker."""

    @property
    def log_directories(self) -> LogDirectoryService:
        """The log directories of this broker."""
        ...


class HasLoggers(Protocol):
    """The loggers of this process."""

    @property
    def loggers(self) -> Loggers:
        """The loggers of this process."""
        ...


class HasCertificates(Protocol):
    """The key and trust stores of this broker's listeners."""

    @property
    def certificates(self) -> CertificateService:
        """The key and trust stores of this broker's listeners."""
        ...


class HasLogins(Protocol):
    """Logins of connections."""

    @property
    def logins(self) -> LoginService:
        """Logins of connections."""
        ...


class HasNodeId(Protocol):
    """The id of this broker."""

    @property
    def node_id(self) -> int:
        """The id of this broker."""
        ...


class HasLongWork(Protocol):
    """The turns of requests that are served in slices."""

    @property
    def long_work(self) -> LongWork:
        """The turns of requests that are served in slices."""
        ...


class HasPartitions(Protocol):
    """The replicas of this broker."""

    @property
    def partitions(self) -> PartitionLookup:
        """The replicas of this broker."""
        ...


class HasPromises(Protocol):
    """The promises of this broker to other leaders; None where leaders ask for none."""

    @property
    def promises(self) -> PromiseGiver | None:
        """The promises of this broker to other leaders; None where leaders ask for none."""
        ...


class HasQuotas(Protocol):
    """Quotas of clients."""

    @property
    def quotas(self) -> ClientQuotas:
        """Quotas of clients."""
        ...


class HasReplicaSessions(Protocol):
    """Fetch sessions of followers."""

    @property
    def replica_sessions(self) -> ReplicaSessions:
        """Fetch sessions of followers."""
        ...


class HasTransactions(Protocol):
    """The transaction coordinator."""

    @property
    def transactions(self) -> TransactionService:
        """The transaction coordinator."""
        ...


class HasUnreachable(Protocol):
    """Leaders whose processes seem to be gone."""

    @property
    def unreachable(self) -> AbstractSet[int]:
        """Leaders whose processes seem to be gone."""
        ...
