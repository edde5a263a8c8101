"""Quotas of clients: bytes (KIP-13), time that requests take (KIP-124), changes of topics (KIP-599).

Who exceeds one has to pause (KIP-219).
"""

from __future__ import annotations

from odradek.metadata.image import ClientEntity
from odradek.quotas.connection_rates import ConnectionRates
from odradek.quotas.mutation_quota import MutationQuota
from odradek.quotas.quota_table import Bound, Configs, QuotaTable
from odradek.quotas.windowed_rate import MAX_THROTTLE_MS, WindowedRate

_FIRST_SWEEP = 1024


class ClientRateQuota:
    """One kind of quota for all clients. `active` is False while no client has one: then nothing needs to be asked.

    No pause is longer than `most_ms`.
    """

    __slots__ = ("_key", "_most_ms", "_rates", "_samples", "_sweep_at", "_table", "_window_ms", "active")

    def __init__(self, key: str, samples: int, window_ms: int, most_ms: int = MAX_THROTTLE_MS) -> None:
        self._key = key
        self._most_ms = most_ms
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

    def record(self, user: str, client_id: str, amount: float, now_ms: float) -> int:
        """So many bytes came or went. Milliseconds that the client has to pause; 0 within its quota."""
        found = self._find(user, client_id, now_ms)
        if found is None:
            return 0
        bound, rate = found
        rate.record(amount, now_ms)
        return min(rate.throttle_ms(bound.limit, now_ms), self._most_ms)

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
    """The quotas that this broker enforces.

    `request` counts percents of a second that the event loop spends on a client's requests: there is one thread, so
    100 are all of it. As in Kafka no pause is longer than a window.
    """

    __slots__ = ("connections", "fetch", "mutations", "produce", "request")

    def __init__(
        self, samples: int, window_seconds: int, mutation_samples: int = 11, mutation_window_seconds: int = 1
    ) -> None:
        window_ms = window_seconds * 1000
        self.produce = ClientRateQuota("producer_byte_rate", samples, window_ms)
        self.fetch = ClientRateQuota("consumer_byte_rate", samples, window_ms)
        self.request = ClientRateQuota("request_percentage", samples, window_ms, window_ms)
        self.connections = ConnectionRates(samples, window_ms)
        self.mutations = MutationQuota(mutation_samples * mutation_window_seconds)

    def update(self, configs: Configs) -> None:
        """Apply the quotas of the cluster image."""
        self.produce.update(configs)
        self.fetch.update(configs)
        self.request.update(configs)
        self.connections.update(configs)
        self.mutations.update(configs)
