"""Who is at the other end of a connection: what handlers, quotas and the authorizer know of a client."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from odradek.authorization.authorizer import Access


class Principal(NamedTuple):
    """The identity that a request runs under (Kafka's `KafkaPrincipal`)."""

    type: str
    """`User` for everything that Kafka's default principal builder makes."""
    name: str
    token_authenticated: bool = False
    """Whether a delegation token proved the identity (KIP-48): such a client may not create tokens."""
    roles: tuple[str, ...] = ()
    """Roles (`Role:NAME`) that the proof itself gives, a certificate's or a token's, beside those of ACLs."""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""The principal of a connection without authentication."""


class Authentication(Enum):
    """How far a connection has come in proving its identity."""

    NOT_REQUIRED = "not required"
    """The listener asks for no proof, and the peer has offered none."""
    REQUIRED = "required"
    """The listener asks for a proof (SASL), and the peer has not begun one."""
    IN_PROGRESS = "in progress"
    """The peer has chosen a SASL mechanism; SaslAuthenticate carries its steps."""
    COMPLETE = "complete"
    """The peer has proven its identity."""


class Proven(NamedTuple):
    """The result of a complete login."""

    principal: Principal
    expires_ms: float | None = None
    """When the credential expires, in milliseconds since 1970; None if it does not."""
    broker_id: int | None = None
    """The id of the broker that the peer has proven to be; None for a client."""


class Login(Protocol):
    """One exchange of a mechanism, from the first message of the peer to its last."""

    @property
    def mechanism(self) -> str:
        """The name of the mechanism."""
        ...

    @property
    def proven(self) -> Proven | None:
        """The result, once the exchange is complete."""
        ...

    @property
    def claimed(self) -> str | None:
        """The name of the user that the peer has given so far; None where it has given none that can be read."""
        ...

    async def step(self, message: bytes) -> bytes:
        """The answer to the peer's next message. Raises SaslError."""
        ...


class Gate(Protocol):
    """Decides which frames of a connection are served, while its authentication is not complete or may expire."""

    def __call__(self, frame: memoryview, connection: Any) -> Any:
        """None to serve the frame as any other, else the answer to it. Raises Disconnect."""
        ...


class Session:
    """One connection's circumstances, from its start to its end.

    `principal` is what quotas and ACLs go by. `broker_id` is set once the peer has proven that it is a broker of this
    cluster; requests of the audience BROKERS are served to such a peer only.
    """

    __slots__ = (
        "access",
        "authentication",
        "broker_id",
        "client_software_name",
        "client_software_version",
        "gate",
        "is_between_brokers",
        "listener_name",
        "login",
        "peer_host",
        "principal",
    )

    def __init__(self, listener_name: str, peer_host: str, principal: Principal = ANONYMOUS) -> None:
        self.listener_name = listener_name
        """The listener that the connection was accepted on, by its name in `listeners`."""
        self.peer_host = peer_host
        """The peer's address; of a forwarded request, the client's."""
        self.principal = principal
        self.authentication = Authentication.NOT_REQUIRED
        self.login: Login | None = None
        """The steps so far, while the authentication is in progress."""
        self.gate: Gate | None = None
        """None once every request of the connection is served: the dispatcher checks this for each one."""
        self.broker_id: int | None = None
        self.is_between_brokers = False
        """Whether the listener is the one between brokers of a KRaft cluster, which prove themselves by it alone."""
        self.access: Access | None = None
        """The decisions about this principal so far; the authorizer replaces it with the principal."""
        self.client_software_name = ""
        """As the client's ApiVersions request names it (KIP-511); empty before."""
        self.client_software_version = ""

    def remove_gate(self) -> None:
        """Serve every request from now on, as long as the connection lasts."""
        self.gate = None

    @property
    def is_admitted(self) -> bool:
        """Whether the peer has proven its identity, or need not."""
        return self.authentication is Authentication.NOT_REQUIRED or self.authentication is Authentication.COMPLETE

    @property
    def is_broker(self) -> bool:
        """Whether the peer has proven that it is a broker of this cluster."""
        return self.broker_id is not None
