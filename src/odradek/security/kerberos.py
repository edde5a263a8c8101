"""Kerberos by the system's library (the extra `gssapi`), which loads with the first use of this module.

Every call may block: files are read, and a KDC is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import gssapi
import gssapi.exceptions

from odradek.security.errors import SaslError

T = TypeVar("T")
_KERBEROS: Final = gssapi.MechType.kerberos


class KerberosError(ValueError):
    """A key table, a ticket or the configuration of Kerberos cannot be used."""


class Context:
    """A security context; implements `gssapi_exchange.SecurityContext`."""

    __slots__ = ("_context",)

    def __init__(self, context: Any) -> None:
        # Otherwise an error that has a token for the peer is raised by the next use of any attribute.
        context.__DEFER_STEP_ERRORS__ = False
        self._context = context

    @property
    def is_complete(self) -> bool:
        """Whether both sides know each other."""
        return bool(self._context.complete)

    @property
    def initiator(self) -> str:
        """The client's name, once the context is complete."""
        return str(self._context.initiator_name)

    def step(self, token: bytes | None) -> bytes:
        """The next token for the peer. Raises SaslError."""
        return _checked(lambda: self._context.step(token)) or b""

    def wrap(self, message: bytes) -> bytes:
        """Raises SaslError."""
        return bytes(_checked(lambda: self._context.wrap(message, False)).message)

    def unwrap(self, message: bytes) -> bytes:
        """Raises SaslError."""
        return bytes(_checked(lambda: self._context.unwrap(message)).message)


class Acceptor:
    """A broker's key: makes the context of each login."""

    __slots__ = ("_credentials", "default_realm")

    def __init__(self, principal: str, key_table: str) -> None:
        """Raises KerberosError for a key table without a key of `principal`."""
        try:
            name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
            self._credentials = gssapi.Credentials(
                usage="accept", name=name, mechs=[_KERBEROS], store={"keytab": f"FILE:{key_table}"}
            )
            # The library of Kerberos adds the realm of its configuration.
            local = str(gssapi.Name("x", gssapi.NameType.user).canonicalize(_KERBEROS))
        except gssapi.exceptions.GSSError as error:
            raise KerberosError(_text(error)) from error
        self.default_realm = local.partition("@")[2]
        """The realm of this machine's configuration; empty if it names none."""

    def context(self) -> Context:
        """The context of one login."""
        return Context(gssapi.SecurityContext(usage="accept", creds=self._credentials))


def initiate(service: str, host: str, principal: str = "", key_table: str = "", ticket_cache: str = "") -> Context:
    """The context of one login at a broker: by a key, by the tickets of a cache, or by those of `kinit`.

    Raises SaslError.
    """

    def make() -> Context:
        target = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
        store = {}
        if key_table:
            # The tickets of a key stay in this process; the library gets new ones when they expire.
            store = {"client_keytab": f"FILE:{key_table}", "ccache": f"MEMORY:odradek {key_table} {principal}"}
        elif ticket_cache:
            store = {"ccache": ticket_cache if ":" in ticket_cache else f"FILE:{ticket_cache}"}
        name = gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None
        credentials = gssapi.Credentials(usage="initiate", name=name, mechs=[_KERBEROS], store=store or None)
        flags = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity
        return Context(
            gssapi.SecurityContext(usage="initiate", name=target, creds=credentials, mech=_KERBEROS, flags=flags)
        )

    return _checked(make)


def _checked(call: Callable[[], T]) -> T:
    try:
        return call()
    except gssapi.exceptions.GSSError as error:
        raise SaslError(_text(error)) from error


def _text(error: Any) -> str:
    """Without the numbers of the library, in one line."""
    texts = [*error.get_all_statuses(error.maj_code, True), *error.get_all_statuses(error.min_code, False)]
    return "; ".join(each.decode(errors="replace") if isinstance(each, bytes) else str(each) for each in texts)
