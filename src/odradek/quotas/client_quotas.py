"""Byte-rate quotas of producers and consumers (KIP-13, KIP-124, KIP-219): who exceeds one has to pause."""

from __future__ import annotations

from odradek.metadata.image import ClientEntity
from odradek.quotas.quota_table import Bound, Configs, QuotaTable
from odradek.quotas.windowed_rate import WindowedRate

_FIRST_SWEEP = 1024


class ByteRateQuota:
    """One kind of quota for all clients. `active` is False while nobody has one: then nothing needs to be asked."""

    __slots__ = ("_bounds", "_key", "_rates", "_samples", "_sweep_at", "_table", "_window_ms", "active")

    def __init__(self, key: str, samples: int, window_ms: int) -> None:
        self._key = key
        self._samples = samples
        self._window_ms = window_ms
        self._rates: dict[ClientEntity, WindowedRate] = {}
        self._sweep_at = _FIRST_SWEEP
        self.update({})

    def update(self, configs: Configs) -> None:
        """These are the quotas from now on; what clients have used so far counts on."""
        self._table = QuotaTable(self._key, configs)
        self.active = len(self._table) > 0
        if not self.active:
            self._rates.clear()

    def record(self, user: str, client_id: str, size: int, now_ms: float) -> int:
        """So many bytes came or went. Milliseconds that the client has to pause; 0 within its quota."""
        found = self._find(user, client_id, now_ms)
        if found is None:
            return 0
        bound, rate = found
        rate.record(size, now_ms)
        return rate.throttle_ms(bound.limit, now_ms)

    def admit(self, user: str, client_id: str, size: int, now_ms: float) -> int:
        """The same of bytes that go only if the quota allows it: those that have to wait are not counted."""
        found = self._find(user, client_id, now_ms)
        if found is None:
            return 0
        bound, rate = found
        # A single batch above the quota of all windows would wait for ever; it goes when nothing else has gone.
        is_first = rate.total(now_ms) == 0
        rate.record(size, now_ms)
        throttle_ms = 0 if is_first else rate.throttle_ms(bound.limit, now_ms)
        if throttle_ms:
            rate.take_back(size)
        return throttle_ms

    def most_at_once(self, user: str, client_id: str) -> int | None:
        """Bytes that a client who has been silent may get in one answer; more would never be allowed."""
        bound = self._table.find(user, client_id)
        return None if bound is None else int(bound.limit * max(1, self._samples - 1) * self._window_ms / 1000)

    def _find(self, user: str, client_id: str, now_ms: float) -> tuple[Bound, WindowedRate] | None:
        bound = self._table.find(user, client_id)
        if bound is None:
            return None
        rate = self._rates.get(bound.shared_by)
        if rate is None:
            if len(self._rates) >= self._sweep_at:
                self._sweep(now_ms)
            rate = self._rates[bound.shared_by] = WindowedRate(self._samples, self._window_ms)
        return bound, rate

    def _sweep(self, now_ms: float) -> None:
        """Drop those of whom nothing is remembered: clients invent ids for as long as a broker lives."""
        self._rates = {entity: rate for entity, rate in self._rates.items() if not rate.is_fresh(now_ms)}
        self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._rates))


class ClientQuotas:
    """The quotas that this broker enforces."""

    __slots__ = ("fetch", "produce")

    def __init__(self, samples: int, window_seconds: int) -> None:
        self.produce = ByteRateQuota("producer_byte_rate", samples, window_seconds * 1000)
        self.fetch = ByteRateQuota("consumer_byte_rate", samples, window_seconds * 1000)

    def update(self, configs: Configs) -> None:
        self.produce.update(configs)
        self.fetch.update(configs)
