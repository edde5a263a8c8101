"""What handlers of requests may use on a controller: a part of what they may use on a broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from odradek.api.audit.trail import AuditTrail
from odradek.api.requests.context import CertificateService, Configuration, Loggers
from odradek.api.services.authorization_service import AuthorizationService
from odradek.api.services.login_service import LoginService
from odradek.api.services.telemetry_service import TelemetryService
from odradek.api.services.token_service import TokenService
from odradek.broker.quorum.broker_requests import BrokerRequests
from odradek.broker.quorum.controller_service import DecidingController
from odradek.broker.quorum.raft_requests import RaftRequests
from odradek.metadata.image import ClusterImage
from odradek.ports.clock import Clock
from odradek.quotas.client_quotas import ClientQuotas


@dataclass(slots=True)
class ControllerServices:
    """Everything that serves requests in this controller; the names are those of `api.requests.context.Services`."""

    node_id: int
    config: Configuration
    clock: Clock
    controller: DecidingController
    elected: DecidingController
    raft: RaftRequests
    """Requests of the quorum's replicas."""
    brokers: BrokerRequests
    """Requests of brokers."""
    loggers: Loggers
    certificates: CertificateService
    quotas: ClientQuotas
    logins: LoginService
    image: Callable[[], ClusterImage]
    tokens: TokenService
    authorization: AuthorizationService | None = None
    audit: AuditTrail | None = None
    telemetry: TelemetryService | None = None
