"""A rate over a few past windows, and how long who exceeds a bound has to pause. Pure: time comes in as an argument.

Source: Kafka's `SampledStat`, `Rate` and `QuotaUtils`: a bound may be exceeded for as long as the mean over all
windows, of which at least all but one count from the first event on, does not exceed it.
"""

from __future__ import annotations

MAX_THROTTLE_MS = 0x7FFFFFFF


class WindowedRate:
    """`samples` windows of `window_ms` each; the oldest one goes when a new one begins."""

    __slots__ = ("_amounts", "_samples", "_starts", "_window_ms")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._starts: list[float] = []
        self._amounts: list[float] = []

    def record(self, amount: float, now_ms: float) -> None:
        """Something of this amount happens now."""
        if not self._starts or now_ms - self._starts[-1] >= self._window_ms:
            self._forget(now_ms)
            self._starts.append(now_ms)
            self._amounts.append(amount)
        else:
            self._amounts[-1] += amount

    def take_back(self, amount: float) -> None:
        """What was recorded last did not happen after all."""
        self._amounts[-1] -= amount

    def total(self, now_ms: float) -> float:
        """The amount in the windows that are not over."""
        self._forget(now_ms)
        return sum(self._amounts)

    def span_ms(self, now_ms: float) -> float:
        """The time that the total is spread over."""
        self._forget(now_ms)
        elapsed = now_ms - self._starts[0] if self._starts else 0.0
        missing = self._samples - 1 - int(elapsed // self._window_ms)
        if missing > 0:
            elapsed += missing * self._window_ms
        return max(elapsed, self._window_ms)

    def per_second(self, now_ms: float) -> float:
        """The rate over the span of all windows (Kafka's Rate)."""
        return self.total(now_ms) * 1000 / self.span_ms(now_ms)

    def simple_per_second(self, now_ms: float) -> float:
        """The rate over the time since the oldest window began, at least one window (Kafka's SimpleRate)."""
        total = self.total(now_ms)
        elapsed = now_ms - self._starts[0] if self._starts else 0.0
        return total * 1000 / max(elapsed, self._window_ms)

    def throttle_ms(self, bound: float, now_ms: float) -> int:
        """How long nothing may happen until the rate (per second) is down to the bound again; 0 when it is."""
        rate = self.per_second(now_ms)
        if rate <= bound:
            return 0
        return min(int((rate - bound) / bound * self.span_ms(now_ms)), MAX_THROTTLE_MS)

    def is_fresh(self, now_ms: float) -> bool:
        """Whether nothing is remembered: a new one would behave the same."""
        self._forget(now_ms)
        return not self._starts

    def _forget(self, now_ms: float) -> None:
        expired = now_ms - self._samples * self._window_ms
        while self._starts and (self._starts[0] <= expired or len(self._starts) > self._samples):
            del self._starts[0], self._amounts[0]
