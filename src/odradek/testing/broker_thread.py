"""A broker in a thread of the test's own process, with an event loop of its own: the other way of `child_process`.

Breakpoints, coverage and `caplog` reach it. It shares the interpreter with the test, and cannot be killed or stopped
without its consent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.start_error import StartError
from odradek.testing.child_process import BrokerFailed, BrokerTimedOut, end_of
from odradek.testing.faulty_broker import FaultyBroker, new_runner

_LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class BrokerThread:
    """One thread at a time, with the methods of `ChildProcess`."""

    __slots__ = ("_broker", "_ended", "_log_path", "_loop", "_stopping", "_thread")

    def __init__(self, log_path: Path) -> None:
        self._log_path = log_path
        self._thread: threading.Thread | None = None
        self._ended: Future[None] = Future()
        self._broker: FaultyBroker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: Future[None] = Future()

    @property
    def pid(self) -> int | None:
        """The number of this process; None while the broker does not run."""
        return os.getpid() if self.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    async def start(self, settings: Mapping[str, str], timeout_s: float) -> dict[str, Any]:
        """As `ChildProcess.start`. A start that takes too long continues, and ends in a stop."""
        if self.is_running:
            raise BrokerFailed("the broker runs already")
        serves: Future[dict[str, Any]] = Future()
        self._ended, self._stopping, self._loop = Future(), Future(), None
        self._thread = threading.Thread(target=self._live, args=(settings, serves), name="odradek", daemon=True)
        self._thread.start()
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(asyncio.wrap_future(serves))
        except TimeoutError:
            self._ask_to_stop()
            raise BrokerTimedOut(f"the broker does not serve after {timeout_s:g} s\n{self.log()}") from None

    def _live(self, settings: Mapping[str, str], serves: Future[dict[str, Any]]) -> None:
        try:
            with _logged(self._log_path), new_runner() as runner:
                runner.run(self._serve(settings, serves))
        finally:
            if not serves.done():
                serves.set_exception(BrokerFailed("the broker failed while it started"))
            self._ended.set_result(None)

    async def _serve(self, settings: Mapping[str, str], serves: Future[dict[str, Any]]) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            broker = self._broker = FaultyBroker(settings)
            found = await broker.start()
        except (StartError, ConfigError) as error:
            serves.set_exception(BrokerFailed(str(error)))
            return
        broker.load_the_rest()
        serves.set_result(found)
        await asyncio.wrap_future(self._stopping)
        await broker.stop()

    def _ask_to_stop(self) -> None:
        if not self._stopping.done():
            self._stopping.set_result(None)

    async def command(self, **command: Any) -> None:
        """As `ChildProcess.command`."""
        if not self.is_running or self._broker is None or self._loop is None:
            raise BrokerFailed("the broker does not run")
        obeyed: Future[None] = Future()

        def obey(broker: FaultyBroker) -> None:
            broker.obey(command)
            obeyed.set_result(None)

        self._loop.call_soon_threadsafe(obey, self._broker)
        await asyncio.wrap_future(obeyed)

    def pause(self) -> NoReturn:
        """Raise BrokerFailed: a thread cannot be stopped from outside."""
        raise BrokerFailed("a broker in the test's process cannot be paused: make it without in_process")

    def resume(self) -> NoReturn:
        """Raise BrokerFailed."""
        raise BrokerFailed("a broker in the test's process cannot be paused or resumed")

    async def kill(self) -> None:
        """Raise BrokerFailed: a thread cannot be killed."""
        raise BrokerFailed("a broker in the test's process cannot be killed: make it without in_process")

    async def stop(self, timeout_s: float) -> None:
        """An orderly stop. Raises BrokerFailed after `timeout_s` seconds; the thread continues then."""
        if self._thread is None:
            return
        self._ask_to_stop()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(asyncio.wrap_future(self._ended))
        except TimeoutError:
            raise BrokerFailed(f"the broker did not stop within {timeout_s:g} s\n{self.log()}") from None
        self._thread.join()
        self._thread = self._broker = self._loop = None

    def log(self) -> str:
        """The end of what the broker's thread has logged, over all starts, at the levels of this process."""
        return end_of(self._log_path)


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    """Append what this thread logs to a file."""
    here = threading.get_ident()
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter(_LOG_FORMAT))
    handler.addFilter(lambda record: record.thread == here)
    logger = logging.getLogger("odradek")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
