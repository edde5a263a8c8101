"""How many partitions a client may create and delete per second (KIP-599, `controller_mutation_rate`).

Source: Kafka's ControllerMutationQuotaManager and TokenBucket: a bucket that fills at the quota's rate up to what is
allowed in all windows, and that a change may overdraw once; after that it has to fill again.
"""

from __future__ import annotations

from odradek.metadata.image import ClientEntity
from odradek.quotas.quota_table import Configs, QuotaTable

_KEY = "controller_mutation_rate"
_FIRST_SWEEP = 1024


class TokenBucket:
    """`rate` tokens come per second, up to `most`; it begins full."""

    __slots__ = ("_at_ms", "_most", "_rate", "_tokens")

    def __init__(self, rate: float, most: float, now_ms: float) -> None:
        self._rate = rate
        self._most = most
        self._tokens = most
        self._at_ms = now_ms

    def take(self, count: float, now_ms: float) -> None:
        """Below zero where need be; a negative count gives back."""
        self._fill(now_ms)
        self._tokens = min(self._tokens - count, self._most)

    def lacking_ms(self, now_ms: float) -> int:
        """Until it is no longer overdrawn, in whole milliseconds; 0 when it is not."""
        self._fill(now_ms)
        # Rounded: a client that paused for the stated time must not be rejected for the last bit of a sum.
        return max(0, round(-self._tokens / self._rate * 1000))

    def is_full(self, now_ms: float) -> bool:
        """Whether it has as many tokens as a new bucket."""
        self._fill(now_ms)
        return self._tokens >= self._most

    def change(self, rate: float, most: float, now_ms: float) -> None:
        """Another rate from now on; what is overdrawn stays so."""
        self._fill(now_ms)
        self._rate, self._most = rate, most
        self._tokens = min(self._tokens, most)

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self._rate

    def _fill(self, now_ms: float) -> None:
        self._tokens = min(self._tokens + (now_ms - self._at_ms) / 1000 * self._rate, self._most)
        self._at_ms = now_ms


class MutationQuota:
    """`active` is False while no client has a quota: then nothing needs to be asked. `seconds` are all windows."""

    __slots__ = ("_buckets", "_seconds", "_sweep_at", "_table", "active")

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._buckets: dict[ClientEntity, TokenBucket] = {}
        self._sweep_at = _FIRST_SWEEP
        self.update({})

    def update(self, configs: Configs) -> None:
        """Apply the quotas of the cluster image."""
        self._table = QuotaTable(_KEY, configs)
        self.active = len(self._table) > 0
        if not self.active:
            self._buckets.clear()

    def bucket(self, user: str, client_id: str, now_ms: float) -> TokenBucket | None:
        """The one that this client takes from; None without a quota."""
        bound = self._table.find(user, client_id)
        if bound is None:
            return None
        found = self._buckets.get(bound.shared_by)
        if found is None:
            if len(self._buckets) >= self._sweep_at:
                self._sweep(now_ms)
            found = TokenBucket(bound.limit, bound.limit * self._seconds, now_ms)
            self._buckets[bound.shared_by] = found
        elif found.rate != bound.limit:
            found.change(bound.limit, bound.limit * self._seconds, now_ms)
        return found

    def _sweep(self, now_ms: float) -> None:
        """A full bucket is like a new one."""
        self._buckets = {entity: bucket for entity, bucket in self._buckets.items() if not bucket.is_full(now_ms)}
        self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._buckets))
