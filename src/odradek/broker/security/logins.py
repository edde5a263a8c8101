"""Logins of all connections: which mechanism, whose credential, what an answer says, and when the connection ends."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from odradek.api.requests.broker_proof import MECHANISM as BROKERS
from odradek.api.requests.session import Authentication, Login, Principal, Proven, Session
from odradek.api.services.login_service import Choice, LoginAnswer
from odradek.broker.network.repeated_lines import RepeatedLines
from odradek.broker.security.exchanges import USER, BrokerLogin, PlainLogin, RejectedLogin, ScramLogin
from odradek.broker.security.gate import SaslGate
from odradek.broker.security.stored_tokens import StoredTokens
from odradek.controller.scram_credentials import scram_credential
from odradek.metadata.image import ClientEntity, ClusterImage
from odradek.ports.clock import Clock
from odradek.security import plain
from odradek.security.errors import ReportedSaslError, SaslError
from odradek.security.login_limits import LoginLimits
from odradek.security.scram import (
    MECHANISMS,
    MIN_ITERATIONS,
    ClientFirst,
    Mechanism,
    PretendedCredentials,
    ScramCredential,
)
from odradek.wire.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.api.audit.trail import AuditTrail
    from odradek.broker.security.sasl_listeners import SaslListener

logger = logging.getLogger("odradek.security")

_BLOCKED: Final = "too many logins of this address have failed"
_DEFAULT: Final = ScramCredential(bytes(16), b"", b"", MIN_ITERATIONS)


class LoginSettings(Protocol):
    """The part of a broker's configuration that is read here."""

    def number(self, name: str) -> int:
        """A numeric setting."""
        ...


class Secret(Protocol):
    """The secret by which brokers of a cluster know each other."""

    def nonce(self) -> bytes:
        """Random bytes for one proof."""
        ...

    async def read(self) -> bytes:
        """Raises KafkaError if the metadata store cannot be read."""
        ...


class FoundCredential(NamedTuple):
    """The credential of a name; `proven` is None for an unknown one."""

    credential: ScramCredential
    proven: Proven | None


class Credentials(NamedTuple):
    """Where credentials are found."""

    secret: Secret
    """Of brokers, by which they also make challenges for unknown users."""
    image: Callable[[], ClusterImage]
    """Has the SCRAM credentials of users."""
    tokens: StoredTokens | None = None
    """Delegation tokens; None where there are none."""


class Logins:
    """Serves SaslHandshake and SaslAuthenticate on all listeners."""

    __slots__ = (
        "_audit",
        "_clock",
        "_config",
        "_example_credentials",
        "_image",
        "_known_image",
        "_limits",
        "_lines",
        "_listeners",
        "_node_id",
        "_pretended",
        "_secret",
        "_tokens",
    )

    def __init__(
        self,
        node_id: int,
        config: LoginSettings,
        listeners: Mapping[str, SaslListener],
        credentials: Credentials,
        clock: Clock,
        audit: AuditTrail | None = None,
    ) -> None:
        """`listeners` are those with SASL, by name."""
        self._node_id = node_id
        self._config = config
        self._listeners = listeners
        self._secret, self._image, self._tokens = credentials
        self._clock = clock
        self._audit = audit
        self._limits = LoginLimits()
        self._lines = RepeatedLines(logger, clock)
        self._known_image: Mapping[ClientEntity, Mapping[str, str]] | None = None
        self._example_credentials: dict[Mechanism, list[ScramCredential]] = {}
        self._pretended: PretendedCredentials | None = None

    def guards(self, listener_name: str) -> bool:
        """Whether a listener has SASL."""
        return listener_name in self._listeners

    def admit(self, session: Session) -> None:
        """Let a new connection to a SASL listener do nothing but authenticate itself."""
        if self.guards(session.listener_name):
            session.authentication = Authentication.REQUIRED
            session.gate = SaslGate(session, self, self._clock, self._lines)

    # --- SaslHandshake ---

    def choose(self, session: Session, mechanism: str, version: int) -> Choice:
        """Begin an exchange; implements LoginService."""
        gate = session.gate
        if mechanism == BROKERS:
            return self._choose_brokers(session, version)
        if not isinstance(gate, SaslGate) or not gate.admits_handshake:
            if not self.guards(session.listener_name):
                self._lines.log(
                    logging.INFO,
                    "%s asks for the SASL mechanism %r on listener %s, which has no SASL: the client needs "
                    "security.protocol=PLAINTEXT or SSL, or another port",
                    session.peer_host, mechanism[:40], session.listener_name,
                )  # fmt: skip
            return Choice(ErrorCode.ILLEGAL_SASL_STATE)
        listener = self._listeners[session.listener_name]
        if self._is_blocked(session):
            return Choice(ends=_BLOCKED)
        if mechanism not in listener.mechanisms:
            self._log_failure(session, mechanism, "the listener does not have the mechanism", None)
            return Choice(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM, listener.mechanisms, "the SASL mechanism is not enabled"
            )
        if gate.mechanism not in ("", mechanism):
            reason = f"a re-authentication cannot change the mechanism from {gate.mechanism} to {mechanism}"
            session.login = RejectedLogin(mechanism, reason)
        else:
            session.login = self._exchange(session, listener, mechanism)
        session.authentication = Authentication.IN_PROGRESS
        gate.expect_tokens(version)
        return Choice(ErrorCode.NONE, listener.mechanisms)

    def _choose_brokers(self, session: Session, version: int) -> Choice:
        gate = session.gate
        is_late = session.authentication is Authentication.COMPLETE
        if version < 1 or is_late or (isinstance(gate, SaslGate) and not gate.admits_handshake):
            # After a handshake of version 0 tokens would follow without SaslAuthenticate around them.
            return Choice(ErrorCode.ILLEGAL_SASL_STATE)
        session.authentication = Authentication.IN_PROGRESS
        session.login = BrokerLogin(self._node_id, self._secret.read, self._secret.nonce())
        if isinstance(gate, SaslGate):
            gate.expect_tokens(version)
        return Choice(ErrorCode.NONE, [BROKERS])

    def _exchange(self, session: Session, listener: SaslListener, mechanism: str) -> Login:
        if mechanism == plain.MECHANISM and listener.users is not None:
            return PlainLogin(listener.users)
        if listener.bearer is not None:
            from odradek.broker.security.oauth import BearerLogin  # loaded with the listener, as Kerberos
            from odradek.security import oauthbearer

            if mechanism == oauthbearer.MECHANISM:
                report = partial(self._log_failure, session, mechanism)
                return BearerLogin(listener.bearer, report)
        if listener.kerberos is not None:
            from odradek.broker.security.kerberos_logins import KerberosLogin
            from odradek.security import gssapi_exchange

            if mechanism == gssapi_exchange.MECHANISM:
                return KerberosLogin(listener.kerberos)
        return ScramLogin(MECHANISMS[mechanism], self._find, base64.b64encode(self._secret.nonce()).decode())

    # --- SaslAuthenticate ---

    async def step(self, session: Session, message: bytes) -> LoginAnswer:
        """Serve the next message of the exchange; implements LoginService."""
        login = session.login
        if login is None or session.authentication is not Authentication.IN_PROGRESS:
            # Kafka's words, also for a listener without SASL.
            return LoginAnswer(
                ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received after successful authentication"
            )
        if login.mechanism != BROKERS and self._is_blocked(session):
            # Else an address could choose the mechanism on many connections before the first of its guesses fails.
            return self._ended(session, login, _BLOCKED)
        try:
            self._check_size(session, message)
            data = await login.step(message)
            if login.proven is None:
                return LoginAnswer(data=data)
            self._check_unchanged(session, login.proven)
        except SaslError as error:
            return self._failed(session, login, str(error), is_reported=isinstance(error, ReportedSaslError))
        return LoginAnswer(data=data, lifetime_ms=self._complete(session, login, login.proven))

    async def delay(self) -> None:
        """Implements LoginService."""
        await asyncio.sleep(self._config.number("connection.failed.authentication.delay.ms") / 1000)

    def _check_size(self, session: Session, message: bytes) -> None:
        listener = self._listeners.get(session.listener_name)
        if listener is not None and len(message) > listener.max_message_bytes:
            raise SaslError("the message exceeds sasl.server.max.receive.size")

    def _check_unchanged(self, session: Session, proven: Proven) -> None:
        gate = session.gate
        if isinstance(gate, SaslGate) and gate.is_reauthenticating and str(proven.principal) != str(session.principal):
            raise SaslError(
                f"a re-authentication cannot change the principal from {str(session.principal)!r} "
                f"to {str(proven.principal)!r}"
            )

    def _complete(self, session: Session, login: Login, proven: Proven) -> int:
        """The session from here on; its lifetime in milliseconds, 0 without a limit (KIP-368)."""
        session.authentication, session.login = Authentication.COMPLETE, None
        session.principal = proven.principal
        session.broker_id = proven.broker_id
        if self._audit is not None and proven.broker_id is None:
            self._audit.logged_in(session, login.mechanism, str(proven.principal))
        gate = session.gate
        if not isinstance(gate, SaslGate):
            return 0
        lifetime_ms = 0
        if proven.broker_id is None:
            limits = [float(self._listeners[session.listener_name].max_reauth_ms[login.mechanism])]
            if proven.expires_ms is not None:
                limits.append(max(1.0, proven.expires_ms - self._clock.now_ms()))
            lifetime_ms = int(min((limit for limit in limits if limit > 0), default=0))
        gate.open(login.mechanism, lifetime_ms)
        return lifetime_ms

    def _failed(self, session: Session, login: Login, reason: str, *, is_reported: bool) -> LoginAnswer:
        if not isinstance(session.gate, SaslGate):
            session.login = None
            session.authentication = Authentication.NOT_REQUIRED
            self._lines.log(logging.WARNING, "rejected the proof of a broker from %s: %s", session.peer_host, reason)
            if self._audit is not None:
                self._audit.login_failed(session.peer_host, session.listener_name, login.mechanism, None, reason)
            return LoginAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, "Authentication failed.")
        if not is_reported:
            self._log_failure(session, login.mechanism, reason, login.claimed)
        return self._ended(session, login)

    def _ended(self, session: Session, login: Login, why: str = "") -> LoginAnswer:
        """The answer that ends the connection of a client."""
        gate = session.gate
        session.login = None
        is_again = isinstance(gate, SaslGate) and gate.is_reauthenticating
        what = "re-authentication" if is_again else "authentication"
        # The same for an unknown user and a wrong password.
        message = (
            f"Authentication failed during {what} due to invalid credentials with SASL mechanism {login.mechanism}"
        )
        return LoginAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, message, ends=why or f"{what} failed")

    # --- limits ---

    def _is_blocked(self, session: Session) -> bool:
        limit = self._config.number("odradek.login.max.failures")
        window_ms = self._config.number("odradek.login.failure.window.ms")
        return self._limits.is_blocked(session.peer_host, limit, window_ms, self._clock.monotonic() * 1000)

    def _log_failure(self, session: Session, mechanism: str, reason: str, claimed: str | None = None) -> None:
        limit = self._config.number("odradek.login.max.failures")
        window_ms = self._config.number("odradek.login.failure.window.ms")
        host, name = session.peer_host, session.listener_name
        count = self._limits.failed(host, limit, window_ms, self._clock.monotonic() * 1000)
        line = "login of %s by %r on listener %s failed: %s"
        self._lines.log(logging.INFO, line, host, mechanism[:40], name, reason)
        if self._audit is not None:
            self._audit.login_failed(host, name, mechanism, claimed, reason)
        if limit and count == limit:
            logger.warning(
                "%d logins of %s have failed; its next ones are rejected for up to %d ms "
                "(odradek.login.max.failures, odradek.login.failure.window.ms)",
                count, host, window_ms,
            )  # fmt: skip

    # --- credentials ---

    def _find(self, mechanism: Mechanism, first: ClientFirst) -> Awaitable[FoundCredential]:
        return (self._find_token if first.is_token else self._find_user)(mechanism, first.username)

    async def _find_token(self, mechanism: Mechanism, token_id: str) -> FoundCredential:
        """The credential of a delegation token, or one that no password fits."""
        found = None if self._tokens is None else await self._tokens.credential(mechanism, token_id)
        if found is not None:
            return FoundCredential(*found)
        pretended = await self._pretended_credentials()
        return FoundCredential(pretended.credential(mechanism, token_id, [_DEFAULT]), None)

    async def _pretended_credentials(self) -> PretendedCredentials:
        if self._pretended is None:
            self._pretended = PretendedCredentials(await self._secret.read())
        return self._pretended

    async def _find_user(self, mechanism: Mechanism, user: str) -> FoundCredential:
        """The credential of a user, or one that no password fits: both take the same way."""
        pretended = (await self._pretended_credentials()).credential(mechanism, user, self._examples(mechanism))
        try:
            credential = scram_credential(self._image(), user, mechanism)
        except ValueError:
            logger.warning("the %s credential of user %r in the store cannot be read", mechanism.config_name, user)
            credential = None
        if credential is None:
            return FoundCredential(pretended, None)
        return FoundCredential(credential, Proven(Principal(USER, user)))

    def _examples(self, mechanism: Mechanism) -> list[ScramCredential]:
        """Credentials that differ in iterations or in the length of the salt: an unknown user resembles one of them."""
        configs = self._image().client_configs
        if configs is not self._known_image:
            self._known_image = configs
            self._example_credentials.clear()
        found = self._example_credentials.get(mechanism)
        if found is None:
            kinds: dict[tuple[int, int], ScramCredential] = {}
            for entity, values in configs.items():
                text = values.get(mechanism.config_name)
                if text is None or entity.user is None or entity.client_id is not None:
                    continue
                try:
                    each = ScramCredential.parse(text)
                except ValueError:
                    continue
                kinds[each.iterations, len(each.salt)] = each
            found = self._example_credentials[mechanism] = [kinds[key] for key in sorted(kinds)] or [_DEFAULT]
        return found
