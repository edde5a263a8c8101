"""How many connections a second are accepted, in all and from one address (KIP-612). Pure.

Source: Kafka's ConnectionQuotas: rates over the windows of the client quotas, and no wait above one window.
"""

from __future__ import annotations

from odradek.metadata.image import ANY
from odradek.ports.hosts import normalized
from odradek.quotas.quota_table import Configs
from odradek.quotas.windowed_rate import WindowedRate

_KEY = "connection_creation_rate"
_FIRST_SWEEP = 1024


class ConnectionRates:
    """`active` is False while no address has a quota."""

    __slots__ = ("_addresses", "_all", "_limits", "_samples", "_sweep_at", "_window_ms", "active")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._all = WindowedRate(samples, window_ms)
        self._addresses: dict[str, WindowedRate] = {}
        self._sweep_at = _FIRST_SWEEP
        self._limits: dict[str, float] = {}
        self.active = False

    def update(self, configs: Configs) -> None:
        """The quotas of addresses, and of those that have none of their own, from now on."""
        self._limits = {
            normalized(str(entity.ip)): float(settings[_KEY])
            for entity, settings in configs.items()
            if entity.ip is not None and _KEY in settings
        }
        self.active = bool(self._limits)
        if not self.active:
            self._addresses.clear()

    def from_address(self, address: str, now_ms: float) -> int:
        """One more from there. 0, or for how many milliseconds it came too early; then it is not counted."""
        address = normalized(address)
        limit = self._limits.get(address, self._limits.get(str(ANY)))
        if limit is None:
            return 0
        rate = self._addresses.get(address)
        if rate is None:
            if len(self._addresses) >= self._sweep_at:
                self._sweep(now_ms)
            rate = self._addresses[address] = WindowedRate(self._samples, self._window_ms)
        rate.record(1, now_ms)
        early_ms = self._wait_ms(rate, limit, now_ms)
        if early_ms:
            rate.take_back(1)
        return early_ms

    def from_anybody(self, limit: int, now_ms: float) -> int:
        """One more, with a bound for all together. Milliseconds that it has to wait before it is served."""
        self._all.record(1, now_ms)
        return self._wait_ms(self._all, limit, now_ms)

    def _wait_ms(self, rate: WindowedRate, limit: float, now_ms: float) -> int:
        if limit <= 0:
            return self._window_ms
        return min(rate.throttle_ms(limit, now_ms), self._window_ms)

    def _sweep(self, now_ms: float) -> None:
        self._addresses = {address: rate for address, rate in self._addresses.items() if not rate.is_fresh(now_ms)}
        self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._addresses))
