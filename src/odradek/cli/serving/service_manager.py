"""State reports to the service manager that started this process, as systemd's `Type=notify` expects (sd_notify(3)).

A datagram of NAME=VALUE lines goes to the Unix socket that NOTIFY_SOCKET names. Without that variable nothing is sent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import MutableMapping
from typing import Final, Self

logger = logging.getLogger(__name__)

SOCKET_VARIABLE: Final = "NOTIFY_SOCKET"
WATCHDOG_VARIABLE: Final = "WATCHDOG_USEC"
WATCHDOG_PID_VARIABLE: Final = "WATCHDOG_PID"


class ServiceManager:
    """Reports that this process is ready, what it does, and that it stops. Never raises: the reports are advisory."""

    __slots__ = ("_address", "_is_broken", "watchdog_seconds")

    def __init__(self, address: str | None, watchdog_seconds: float | None = None) -> None:
        """`address` is a path, or @NAME for a socket in the abstract namespace of Linux; None sends nothing."""
        self._address = address
        self._is_broken = False
        self.watchdog_seconds = watchdog_seconds
        """The manager restarts a service without a sign of life for this long; None where it does not watch."""

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> Self:
        """Read the variables and remove them, so that child processes do not report as this one."""
        address = environment.pop(SOCKET_VARIABLE, "") or None
        microseconds = environment.pop(WATCHDOG_VARIABLE, "")
        pid = environment.pop(WATCHDOG_PID_VARIABLE, "")
        watched = address is not None and microseconds.isdecimal() and pid in ("", str(os.getpid()))
        return cls(address, int(microseconds) / 1e6 if watched and int(microseconds) else None)

    def ready(self, status: str) -> None:
        """The service has started; `status` is for `systemctl status`."""
        self._send("READY=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        """Replace the line that `systemctl status` shows."""
        self._send(f"STATUS={status}")

    def stopping(self, status: str) -> None:
        """The service has begun to stop."""
        self._send("STOPPING=1", f"STATUS={status}")

    async def keep_alive(self) -> None:
        """Send signs of life from the event loop until cancelled: if the loop hangs, the manager restarts it."""
        if self.watchdog_seconds is None:
            return
        while True:
            self._send("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_seconds / 3)

    def _send(self, *lines: str) -> None:
        if self._address is None:
            return
        name = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        content = "\n".join(line.replace("\n", " ") for line in lines).encode()
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(content, name)
            self._is_broken = False
        except OSError as error:
            if not self._is_broken:
                self._is_broken = True
                logger.warning("cannot report to the service manager at %s: %s", self._address, error)
