"""The Spark session of a worker: one for all of its queries, on any master, started by the first one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from odradek.connect.errors import ConnectError
from odradek.ports.installation import install_hint

logger = logging.getLogger(__name__)

_NAME: Final = "odradek connect"


class SparkSettings(NamedTuple):
    """Which Spark queries run on."""

    master: str = "local[*]"
    """URL of the master."""
    conf: Mapping[str, str] = {}
    """Settings of Spark."""
    log: Path | None = None
    """File for Spark's messages; None: a temporary one, which goes with the session."""


class SharedSession:
    """Starts the session, again where it has ended since, and ends it with the worker."""

    def __init__(self, settings: SparkSettings) -> None:
        self._settings = settings
        self._session: Any = None
        self._log: Path | None = None
        self._lock = asyncio.Lock()

    async def get(self) -> Any:
        """A session with views of its own, on the context that all share. Raises ConnectError."""
        async with self._lock:
            if self._session is not None:
                await asyncio.to_thread(self._drop_unusable)
            if self._session is None:
                self._session = await asyncio.to_thread(self._start)
        return self._session.newSession()

    async def close(self) -> None:
        """End the session, if it was started."""
        async with self._lock:
            session, self._session = self._session, None
            if session is not None:
                await asyncio.to_thread(self._stop, session)

    def _start(self) -> Any:
        try:
            from odradek.spark.java import NoJavaError
            from odradek.spark.session import prepare_environment, settings_for, start_session
        except ImportError as error:
            raise ConnectError(f"Spark is missing ({error.name}): {install_hint('spark')}") from error
        try:
            prepare_environment(self._settings.master)
        except NoJavaError as error:
            raise ConnectError(str(error)) from error
        log = self._settings.log or self._log
        if log is None:
            handle, path = tempfile.mkstemp(prefix="odradek-connect-", suffix=".log")
            os.close(handle)
            log = self._log = Path(path)
        logger.info("starting Spark on %s; its messages are in %s", self._settings.master, log)
        try:
            session = start_session(
                self._settings.master, _NAME, settings_for(self._settings.master, self._settings.conf), log
            )
        except Exception as error:  # what the JVM and py4j raise has no common class
            raise ConnectError(f"Spark did not start on {self._settings.master}: {error}; see {log}") from error
        session.sparkContext.setLogLevel("WARN")
        return session

    def _drop_unusable(self) -> None:
        """Forget a session whose JVM has ended, or whose context was stopped."""
        from odradek.spark.session import end_session, is_usable

        if not is_usable(self._session):
            logger.warning("Spark on %s has ended; starting another session", self._settings.master)
            session, self._session = self._session, None
            end_session(session)

    def _stop(self, session: Any) -> None:
        from odradek.spark.session import end_session

        with contextlib.suppress(Exception):  # whatever the JVM raises, the worker ends
            end_session(session)
        if self._log is not None:
            self._log.unlink(missing_ok=True)
