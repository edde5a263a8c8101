"""Logins of connections, as the handlers of SaslHandshake and SaslAuthenticate use them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from odradek.api.requests.session import Session
from odradek.wire.errors import ErrorCode


class Choice(NamedTuple):
    """The answer to the choice of a mechanism."""

    code: ErrorCode = ErrorCode.NONE
    mechanisms: Sequence[str] = ()
    """The mechanisms of the listener."""
    ends: str = ""
    """Why the connection is closed after the answer, or in its place if `code` is NONE; empty if it is not."""


class LoginAnswer(NamedTuple):
    """The answer to one message of a mechanism."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    data: bytes = b""
    lifetime_ms: int = 0
    """How long the connection is served before it must authenticate again; 0 without a limit (KIP-368)."""
    ends: str = ""
    """Why the connection is closed after the answer; empty if it is not."""


class LoginService(Protocol):
    """Logins of all connections of a broker."""

    def choose(self, session: Session, mechanism: str, version: int) -> Choice:
        """Begin an exchange; `version` is that of SaslHandshake. After 0, messages have no request around them."""
        ...

    async def step(self, session: Session, message: bytes) -> LoginAnswer:
        """Serve the next message of the exchange."""
        ...

    async def delay(self) -> None:
        """Wait for the time after which a failed login is answered (`connection.failed.authentication.delay.ms`)."""
        ...
