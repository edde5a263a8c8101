"""The parent's side of `child`: start, command, pause, kill and stop the process of one broker.

The process is started by `subprocess`, not by the event loop: between fork and exec uvloop runs Python's handlers of a
fork, which may close sockets that other libraries of this process share with the child (PySpark's connection to Java).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_LOG_BYTES: Final = 8_000
_READ_BYTES: Final = 65_536


class BrokerFailed(RuntimeError):
    """The broker did not start, or died; the text has the end of its log."""


class BrokerTimedOut(BrokerFailed, TimeoutError):
    """The broker did not serve in time."""


class ChildProcess:
    """One process at a time; its log goes to `log_path`, over all starts."""

    __slots__ = ("_log_path", "_process", "_rest")

    def __init__(self, log_path: Path) -> None:
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""

    @property
    def pid(self) -> int | None:
        """The process's number; None before the start."""
        return None if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process exists, paused or not."""
        return self._process is not None and self._process.poll() is None

    async def start(self, settings: Mapping[str, str], timeout_s: float) -> dict[str, Any]:
        """Start it and wait until it serves: {"bootstrap": "HOST:PORT", "ports": {listener: port}}.

        Raises BrokerFailed; BrokerTimedOut when that takes longer than `timeout_s` seconds.
        """
        if self.is_running:
            raise BrokerFailed("the broker runs already")
        self._process = _spawn(self._log_path)
        self._rest = b""
        try:
            async with asyncio.timeout(timeout_s):
                found = await self._exchange(settings)
        except TimeoutError:
            await self.kill()
            raise BrokerTimedOut(f"the broker does not serve after {timeout_s:g} s\n{self.log()}") from None
        except BaseException:
            await self.kill()
            raise
        if "serves" not in found:
            await self.kill()
            raise BrokerFailed(found.get("failed", f"the broker ended\n{self.log()}"))
        serves: dict[str, Any] = found["serves"]
        return serves

    async def command(self, **command: Any) -> None:
        """Give the process a command and wait until it was obeyed. Raises BrokerFailed."""
        if not self.is_running:
            raise BrokerFailed("the broker does not run")
        await self._exchange(command)

    async def _exchange(self, line: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(ConnectionError):
            await asyncio.to_thread(self._process.stdin.write, json.dumps(line).encode() + b"\n")
        answer = await self._line(self._process.stdout.fileno())
        if not answer:
            raise BrokerFailed(f"the broker ended\n{self.log()}")
        found: dict[str, Any] = json.loads(answer)
        return found

    async def _line(self, fd: int) -> bytes:
        """The next line of the process; empty at the end."""
        loop = asyncio.get_running_loop()
        while b"\n" not in self._rest:
            readable = asyncio.Event()
            loop.add_reader(fd, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(fd)
            data = os.read(fd, _READ_BYTES)
            if not data:
                return b""
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def pause(self) -> None:
        """SIGSTOP: the process keeps its connections and does nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            raise BrokerFailed("the broker does not run")
        os.killpg(self._process.pid, number)

    async def kill(self) -> None:
        """SIGKILL, as a crash; nothing where it does not run."""
        process = self._process
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.to_thread(process.wait)
        self._forget()

    async def stop(self, timeout_s: float) -> None:
        """SIGTERM and wait for the end. Raises BrokerFailed after `timeout_s` seconds; the process is killed then."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
                os.killpg(process.pid, signal.SIGCONT)
            try:
                async with asyncio.timeout(timeout_s):
                    await asyncio.to_thread(process.wait)
            except TimeoutError:
                await self.kill()
                raise BrokerFailed(f"the broker did not stop within {timeout_s:g} s\n{self.log()}") from None
        self._forget()

    def _forget(self) -> None:
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
        self._process = None

    def log(self) -> str:
        """The end of what the process has logged, over all starts."""
        return end_of(self._log_path)


def _spawn(log_path: Path) -> subprocess.Popen[bytes]:
    # Where bytecode may not be kept, every start would compile all modules.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with log_path.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "odradek.testing.child"],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            env=environment,
        )


def end_of(log_path: Path) -> str:
    """The last lines of a log file; empty where there is none."""
    if not log_path.exists():
        return ""
    with log_path.open("rb") as file:
        file.seek(max(0, log_path.stat().st_size - _LOG_BYTES))
        return file.read().decode(errors="replace")
