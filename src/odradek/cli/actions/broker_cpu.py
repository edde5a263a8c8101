"""Processor time of brokers, from their HTTP listeners: Kafka's protocol does not report it."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Final

from odradek.cli.arguments.errors import UsageError

METRIC: Final = "process_cpu_seconds_total"
_TIMEOUT_S: Final = 2.0
_MOST_BYTES: Final = 1 << 20


def parse_addresses(texts: list[str]) -> dict[int, str]:
    """Addresses by broker id of `ID=HOST:PORT`. Raises UsageError."""
    addresses = {}
    for text in texts:
        broker, _, address = text.partition("=")
        if not broker.isdecimal() or not address.rpartition(":")[2].isdecimal() or "/" in address:
            raise UsageError(f"--metrics {text}: ID=HOST:PORT expected, the id of a broker and its HTTP listener")
        addresses[int(broker)] = address
    return addresses


class BrokerCpu:
    """The share of one processor that each broker used between two calls of `measure`."""

    __slots__ = ("_addresses", "_before", "_now", "_read")

    def __init__(
        self,
        addresses: Mapping[int, str],
        read: Callable[[str], float | None] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`read` answers the processor seconds of the broker at an address, or None; `now` is in seconds."""
        self._addresses = addresses
        self._read = read or read_cpu_seconds
        self._now = now
        self._before: dict[int, tuple[float, float]] = {}

    async def measure(self) -> dict[int, float]:
        """Percent by broker id, without brokers that do not answer or have no earlier value."""
        read = await asyncio.gather(*(asyncio.to_thread(self._read, each) for each in self._addresses.values()))
        now = self._now()
        found, percents = {}, {}
        for broker, used in zip(self._addresses, read, strict=True):
            if used is None:
                continue
            found[broker] = now, used
            earlier = self._before.get(broker)
            # A broker that was restarted begins at zero.
            if earlier is not None and now > earlier[0] and used >= earlier[1]:
                percents[broker] = 100 * (used - earlier[1]) / (now - earlier[0])
        self._before = found
        return percents


def read_cpu_seconds(address: str) -> float | None:
    """The processor seconds of the process behind an HTTP listener; None if it does not answer with them."""
    # No proxy: the address is in the cluster's network, and a proxy of the user's would see it.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{address}/metrics?name[]={METRIC}", timeout=_TIMEOUT_S) as response:
            text = response.read(_MOST_BYTES).decode(errors="replace")
        return next((float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{METRIC} ")), None)
    except (OSError, ValueError):
        return None
