"""One login per class: the state machines of the mechanisms, with the places where credentials are found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from odradek.api.requests.broker_proof import MECHANISM as BROKERS
from odradek.api.requests.broker_proof import AcceptingSide, Claim, ProofError
from odradek.api.requests.session import Principal, Proven
from odradek.security import plain
from odradek.security.errors import SaslError
from odradek.security.plain import PlainUsers
from odradek.security.scram import ClientFirst, Mechanism, ScramCredential, ScramServer, parse_client_first

USER = "User"
"""The type of the principals of clients (Kafka's `KafkaPrincipal.USER_TYPE`)."""


class Found(Protocol):
    """The credential of a name, and the identity behind it."""

    @property
    def credential(self) -> ScramCredential:
        """The credential; of an unknown name one that no password fits."""
        ...

    @property
    def proven(self) -> Proven | None:
        """The identity; None for an unknown name."""
        ...


Find = Callable[[Mechanism, ClientFirst], Awaitable[Found]]
"""Find the credential of the name in a client's first message."""


class PlainLogin:
    """PLAIN."""

    __slots__ = ("_users", "claimed", "mechanism", "proven")

    def __init__(self, users: PlainUsers) -> None:
        self._users = users
        self.mechanism = plain.MECHANISM
        self.claimed: str | None = None
        """See `Login`."""
        self.proven: Proven | None = None
        """The client, once it has proven itself."""

    async def step(self, message: bytes) -> bytes:
        """The empty answer to the only message. Raises SaslError."""
        self.claimed, _password = plain.parse_plain(message)
        self.proven = Proven(Principal(USER, self._users.authenticate(message)))
        return b""


class ScramLogin:
    """SCRAM-SHA-256 or SCRAM-SHA-512, of a user or of a delegation token."""

    __slots__ = ("_find", "_found", "_hash", "_nonce", "_server", "claimed", "mechanism", "proven")

    def __init__(self, mechanism: Mechanism, find: Find, nonce: str) -> None:
        """`nonce` is fresh and printable."""
        self._hash = mechanism
        self._find = find
        self._nonce = nonce
        self._server: ScramServer | None = None
        self._found: Found | None = None
        self.mechanism = mechanism.config_name
        self.claimed: str | None = None
        """See `Login`."""
        self.proven: Proven | None = None
        """The client, once it has proven itself."""

    async def step(self, message: bytes) -> bytes:
        """The challenge, then this side's signature. Raises SaslError."""
        if self._server is None or self._found is None:
            first = parse_client_first(message)
            self.claimed = first.username
            self._found = await self._find(self._hash, first)
            self._server = ScramServer(self._hash, first, self._found.credential, self._nonce)
            return self._server.challenge
        signature = self._server.finish(message)
        if self._found.proven is None:
            raise SaslError("the name is unknown")
        self.proven = self._found.proven
        return signature


class BrokerLogin:
    """A broker of this cluster proves itself (`broker_proof`)."""

    __slots__ = ("_accepting", "_node_id", "_nonce", "_read_secret", "claimed", "mechanism", "proven")

    def __init__(self, node_id: int, read_secret: Callable[[], Awaitable[bytes]], nonce: bytes) -> None:
        self._node_id = node_id
        self._read_secret = read_secret
        self._nonce = nonce
        self._accepting: AcceptingSide | None = None
        self.mechanism = BROKERS
        self.claimed: str | None = None
        """See `Login`."""
        self.proven: Proven | None = None
        """The broker, once it has proven itself."""

    async def step(self, message: bytes) -> bytes:
        """The challenge, then the empty answer to the proof. Raises SaslError, KafkaError if the store fails."""
        try:
            if self._accepting is None:
                claim = Claim.decode(message)
                self._accepting = AcceptingSide(await self._read_secret(), self._node_id, claim, self._nonce)
                return self._accepting.challenge
            self._accepting.verify(message)
        except ProofError as error:
            raise SaslError(str(error)) from error
        broker_id = self._accepting.broker_id
        self.proven = Proven(Principal("Broker", str(broker_id)), broker_id=broker_id)
        return b""


class RejectedLogin:
    """A login that fails at its first message, because a re-authentication may not change the mechanism."""

    __slots__ = ("_reason", "claimed", "mechanism", "proven")

    def __init__(self, mechanism: str, reason: str) -> None:
        self._reason = reason
        self.mechanism = mechanism
        self.claimed: str | None = None
        """See `Login`."""
        self.proven: Proven | None = None
        """None: it proves nothing."""

    async def step(self, message: bytes) -> bytes:
        """Raises SaslError."""
        del message
        raise SaslError(self._reason)
