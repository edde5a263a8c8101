"""What a broker wants of a client's metrics, and when (KIP-714; Kafka's ClientTelemetryReporter). No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from odradek.records.compression import Codec
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from odradek.wire.primitives import ZERO_UUID

DEFAULT_INTERVAL_MS: Final = 300_000
"""The time between two attempts while no broker has named an interval above zero, as in Kafka's client."""
_FATAL: Final = (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_VERSION)
_AT_ONCE: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_ALL: Final = ("*", "")


class Subscription(NamedTuple):
    """An answer to GetTelemetrySubscriptions."""

    subscription_id: int
    codecs: tuple[int, ...]
    interval_ms: int
    max_bytes: int
    is_delta: bool
    prefixes: tuple[str, ...]

    def wants(self, name: str) -> bool:
        """Whether the metric is asked for."""
        return any(each in _ALL or name.startswith(each) for each in self.prefixes)


class TelemetryState:
    """Where a client is between subscribing and pushing."""

    __slots__ = ("_refused_codecs", "has_ended", "instance_id", "subscription", "wait_s")

    def __init__(self) -> None:
        self._refused_codecs: set[int] = set()
        self.instance_id = ZERO_UUID
        """The id that the first broker gave this client; zeros before."""
        self.subscription: Subscription | None = None
        """What to push; None while it has to be asked for."""
        self.wait_s = 0.0
        """The time until the next request."""
        self.has_ended = False
        """Whether brokers do not want anything of this client."""

    @property
    def codec(self) -> int:
        """The broker's favourite among the codecs that are known here and that no broker has refused."""
        known = set(Codec) - self._refused_codecs
        codecs = () if self.subscription is None else self.subscription.codecs
        return next((each for each in codecs if each in known), Codec.NONE)

    def subscribed(self, response: GetTelemetrySubscriptionsResponse, chance: float) -> None:
        """Use an answer. `chance`, 0 to 1, spreads the first pushes of clients that started together."""
        if response.error_code:
            self._failed(response.error_code)
            return
        self.instance_id = response.client_instance_id
        found = Subscription(
            response.subscription_id,
            tuple(response.accepted_compression_types),
            response.push_interval_ms if response.push_interval_ms > 0 else DEFAULT_INTERVAL_MS,
            response.telemetry_max_bytes,
            response.delta_temporality,
            _compact(response.requested_metrics),
        )
        if found.prefixes:
            self.subscription = found
            self.wait_s = found.interval_ms * (0.5 + chance) / 1000
        else:
            self.subscription = None
            self.wait_s = found.interval_ms / 1000

    def pushed(self, error_code: int, codec: int) -> None:
        """Use the answer to a push that had this codec."""
        if error_code:
            if error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
                self._refused_codecs.add(codec)
            self._failed(error_code)
        else:
            self._wait_an_interval()

    def skipped(self) -> None:
        """Nothing was pushed this time."""
        self._wait_an_interval()

    def lost(self) -> None:
        """A request got no answer: the next one is due after an interval."""
        self._wait_an_interval()

    def end(self) -> None:
        """No broker offers the API."""
        self.has_ended = True
        self.subscription = None

    def _wait_an_interval(self) -> None:
        interval_ms = DEFAULT_INTERVAL_MS if self.subscription is None else self.subscription.interval_ms
        self.wait_s = interval_ms / 1000

    def _failed(self, code: int) -> None:
        """As Kafka's `maybeFetchErrorIntervalMs`: whatever failed, the subscription is asked for again."""
        if code in _FATAL:
            self.end()
            return
        self._wait_an_interval()
        if code in _AT_ONCE:
            self.wait_s = 0.0
        self.subscription = None


def _compact(names: Iterable[str]) -> tuple[str, ...]:
    given = tuple(names)
    return _ALL[:1] if any(each in _ALL for each in given) else given
