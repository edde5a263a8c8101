"""Logins by Kerberos: the broker's key, and the exchange of one connection, outside of the event loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from odradek.api.requests.session import Principal, Proven
from odradek.broker.configuration.config_errors import ConfigError
from odradek.ports.disk import Disk
from odradek.ports.installation import install_hint
from odradek.security.errors import SaslError
from odradek.security.gssapi_exchange import MECHANISM, GssapiServer
from odradek.security.kerberos_names import KerberosName, KerberosNameError, parse_rules, user_name

if TYPE_CHECKING:
    from odradek.security.kerberos import Context

_LANE: Final = "kerberos"


class KerberosKey:
    """The key of one listener, and the rules for the names of its users."""

    __slots__ = ("_acceptor", "_rules", "disk")

    def __init__(self, principal: str, key_table: str, rules: Sequence[str], disk: Disk) -> None:
        """Raises ConfigError without the extra `gssapi`, for a key that cannot be used, and for wrong rules."""
        try:
            from odradek.security.kerberos import Acceptor, KerberosError
        except (ImportError, OSError) as error:
            # The package loads the system's library of Kerberos, which may be missing, too.
            raise ConfigError(
                f"GSSAPI needs {getattr(error, 'name', None) or 'Kerberos'}: {install_hint('gssapi')}"
            ) from error
        try:
            self._rules = parse_rules(rules)
        except KerberosNameError as error:
            raise ConfigError(f"sasl.kerberos.principal.to.local.rules: {error}") from error
        try:
            self._acceptor = Acceptor(principal, key_table)
        except KerberosError as error:
            raise ConfigError(f"the key of {principal} in {key_table} cannot be used: {error}") from error
        self.disk = disk

    def context(self) -> Context:
        """The context of one login."""
        return self._acceptor.context()

    def principal(self, initiator: str) -> Principal:
        """The principal of a client's Kerberos name. Raises SaslError."""
        try:
            name = user_name(KerberosName.parse(initiator), self._rules, self._acceptor.default_realm)
        except KerberosNameError as error:
            raise SaslError(str(error)) from error
        return Principal("User", name)


class KerberosLogin:
    """GSSAPI."""

    __slots__ = ("_context", "_key", "_server", "claimed", "mechanism", "proven")

    def __init__(self, key: KerberosKey) -> None:
        self._key = key
        self._context: Context | None = None
        self._server: GssapiServer | None = None
        self.mechanism = MECHANISM
        self.claimed: str | None = None
        """See `Login`."""
        self.proven: Proven | None = None
        """The client, once it has proven itself."""

    async def step(self, message: bytes) -> bytes:
        """The next answer of the exchange. Raises SaslError."""
        answer = await self._key.disk.run(_LANE, self._blocking_step, message)
        if self._server is not None and self._context is not None and self._server.is_complete:
            self.proven = Proven(self._key.principal(self._context.initiator))
        return answer

    def _blocking_step(self, message: bytes) -> bytes:
        if self._server is None:
            self._context = self._key.context()
            self._server = GssapiServer(self._context)
        return self._server.step(message)
