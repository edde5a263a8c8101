"""The users of the console: logins are kept on the server, and a cookie names them."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from odradek.client.errors import AuthenticationFailed, Disconnected
from odradek.console.clusters import Clusters
from odradek.ports.hosts import normalized

if TYPE_CHECKING:
    from odradek.console.openid import AccessTokens

logger = logging.getLogger(__name__)

COOKIE: Final = "odradek_console"
MAX_SESSIONS: Final = 1_000
"""Logins at a time; each has connections to a cluster."""
MAX_AGE_S: Final = 12 * 3600.0
"""A login ends after this time even if it is used."""
SWEEP_S: Final = 20.0
"""Time between two looks at all logins: less than `openid.EARLY_S`, so that no access token ends between them."""
MAX_FAILURES: Final = 10
FAILURE_WINDOW_S: Final = 60.0
_ID: Final = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(slots=True, eq=False)
class Session:
    """A login: the user, and clients that act as that user."""

    user: str
    clusters: Clusters
    created_s: float
    used_s: float
    tokens: AccessTokens | None = field(default=None, repr=False)
    """The access tokens of a login at an issuer."""
    id: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)


class Sessions:
    """Logins by the id in the cookie, and the tokens that forms must carry."""

    __slots__ = ("_clock", "_failures", "_idle_s", "_open", "_secret", "_trying")

    def __init__(self, idle_s: float, clock: Callable[[], float]) -> None:
        self._idle_s = idle_s
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._open: dict[str, Session] = {}
        self._failures: dict[str, list[float]] = {}
        self._trying: Counter[str] = Counter()

    def find(self, visitor: str, *, is_use: bool = True) -> Session | None:
        """The login of a cookie's id; None if it has ended. With `is_use` it counts as used now."""
        session = self._open.get(visitor)
        if session is None or self._has_ended(session):
            return None
        if is_use:
            session.used_s = self._clock()
        return session

    def is_open(self, session: Session) -> bool:
        """Whether a login has not ended; unlike `find`, this is no use of it."""
        return self._open.get(session.id) is session and not self._has_ended(session)

    async def open(self, user: str, clusters: Clusters, tokens: AccessTokens | None = None) -> Session:
        """Remember a login, under a new id. The least recently used one ends if there are too many."""
        while len(self._open) >= MAX_SESSIONS:
            await self.close(min(self._open.values(), key=lambda each: each.used_s).id)
        now = self._clock()
        session = Session(user, clusters, now, now, tokens)
        self._open[session.id] = session
        return session

    async def close(self, session_id: str) -> None:
        """End a login and its connections."""
        session = self._open.pop(session_id, None)
        if session is not None:
            await session.clusters.close()

    async def close_ended(self) -> None:
        """Close logins that were idle for too long or are too old."""
        for session in [each for each in self._open.values() if self._has_ended(each)]:
            await self.close(session.id)

    async def renew_tokens(self) -> None:
        """Exchange access tokens that end soon, and close logins whose issuer rejects that.

        Connections that are open already need no new token: only this notices that a person may no longer log in.
        """
        await asyncio.gather(
            *(self._renew(each, each.tokens) for each in self._open.values() if each.tokens is not None)
        )

    async def _renew(self, session: Session, tokens: AccessTokens) -> None:
        try:
            await tokens.token()
        except AuthenticationFailed:
            await self.close(session.id)
        except Disconnected as error:
            logger.warning("could not renew the access token of user %s: %s; retrying", session.user, error)

    async def close_all(self) -> None:
        """End all logins."""
        for session_id in list(self._open):
            await self.close(session_id)

    async def run(self) -> None:
        """Renew access tokens and close ended logins until cancelled."""
        while True:
            await asyncio.sleep(min(SWEEP_S, self._idle_s))
            await self.close_ended()
            await self.renew_tokens()

    def _has_ended(self, session: Session) -> bool:
        now = self._clock()
        if session.tokens is not None and session.tokens.has_ended:
            return True
        return now - session.used_s > self._idle_s or now - session.created_s > MAX_AGE_S

    # --- failed logins ---

    def may_try(self, address: str) -> bool:
        """Whether an address has failed seldom enough in the last minute. Logins that run count as failed."""
        now, source = self._clock(), _source_of(address)
        recent = [each for each in self._failures.get(source, ()) if now - each < FAILURE_WINDOW_S]
        if recent:
            self._failures[source] = recent
        else:
            self._failures.pop(source, None)
        return len(recent) + self._trying[source] < MAX_FAILURES

    @contextmanager
    def trying(self, address: str) -> Iterator[None]:
        """Count a login of the address as one that runs: many at a time must not pass the limit together."""
        source = _source_of(address)
        self._trying[source] += 1
        try:
            yield
        finally:
            self._trying[source] -= 1
            if not self._trying[source]:
                del self._trying[source]

    def count_failure(self, address: str) -> None:
        """A login from the address failed."""
        now = self._clock()
        if len(self._failures) > MAX_SESSIONS:
            self._failures = {key: times for key, times in self._failures.items() if now - times[-1] < FAILURE_WINDOW_S}
        self._failures.setdefault(_source_of(address), []).append(now)

    # --- forms ---

    @staticmethod
    def new_visitor() -> str:
        """An id for a browser without a login."""
        return secrets.token_urlsafe(32)

    @staticmethod
    def is_visitor(text: str) -> bool:
        """Whether a cookie's value has the form of an id."""
        return _ID.fullmatch(text) is not None

    def token(self, visitor: str) -> str:
        """The token that forms of this browser carry; other sites cannot compute it."""
        return hmac.new(self._secret, visitor.encode(), hashlib.sha256).hexdigest()

    def is_token(self, visitor: str, token: str) -> bool:
        """Whether a form carries the browser's token."""
        return hmac.compare_digest(self.token(visitor).encode(), token.encode())


def _source_of(address: str) -> str:
    """What failures of an address count for: its network in IPv6, in which a host may have any address."""
    text = normalized(address)
    if ":" not in text:
        return text
    try:
        return str(ipaddress.ip_network((text, 64), strict=False))
    except ValueError:
        return text
