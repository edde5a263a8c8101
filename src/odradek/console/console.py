"""The console: its settings, its clusters, its logins, and what requests need of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request

from odradek.console.audit import Audit
from odradek.console.clusters import Clusters, ClusterView
from odradek.console.openid import Attempts, Issuer
from odradek.console.sessions import Session, Sessions
from odradek.console.settings import ConsoleSettings

MAX_READINGS: Final = 32
"""Pages and searches that read records at a time."""


class Console:
    """What the pages share."""

    __slots__ = ("_readings", "_shared", "attempts", "audit", "issuer", "sessions", "settings")

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        """How the console was started."""
        self.sessions = Sessions(settings.idle_s, time.monotonic)
        """Logins."""
        self.audit = Audit(settings.audit_log)
        """Lines about changes."""
        self.issuer = None if settings.openid is None else Issuer(settings.openid)
        """The OpenID provider of logins."""
        self.attempts = Attempts(time.time)
        """Begun logins at that provider."""
        self._readings = 0
        # With logins, no request acts with the console's own credentials.
        self._shared = Clusters({} if settings.login else settings.clusters, settings.sample_s, settings.metrics)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Clients are open, and ended logins are closed, inside the context."""
        await self._shared.start()
        sweeper = asyncio.get_running_loop().create_task(self.sessions.run())
        try:
            yield
        finally:
            sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await sweeper
            await self.sessions.close_all()
            await self._shared.close()
            self.audit.close()

    def clusters_of(self, request: Request) -> Clusters:
        """The clusters as the request's user sees them; none before a login."""
        session: Session | None = request.state.session
        return self._shared if session is None else session.clusters

    def view_of(self, request: Request) -> ClusterView:
        """The cluster that the path names. Raises HTTPException."""
        found = self.clusters_of(request).get(request.path_params["cluster"])
        if found is None:
            raise HTTPException(404, "There is no such cluster in this console.")
        return found

    def has_access(self, request: Request) -> bool:
        """Whether a request that is answered for long may continue: its login, if there is one, has not ended."""
        session: Session | None = request.state.session
        return session is None or self.sessions.is_open(session)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count a reading of records; raises HTTPException if there are too many at a time."""
        if self._readings >= MAX_READINGS:
            raise HTTPException(503, f"{MAX_READINGS} people read records at the moment: try again soon.")
        self._readings += 1
        try:
            yield
        finally:
            self._readings -= 1

    def record_change(self, request: Request, action: str, target: str, **details: Any) -> None:
        """Write a line about a change that was made or rejected."""
        session: Session | None = request.state.session
        self.audit.write(
            user="anonymous" if session is None else session.user,
            address=request.client.host if request.client else "",
            cluster=request.path_params.get("cluster", ""),
            action=action,
            target=target,
            **details,
        )
