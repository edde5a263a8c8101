"""What the telemetry APIs use of the broker (KIP-714)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class TelemetryClient(NamedTuple):
    """The client of a request, as subscriptions match it."""

    client_id: str
    software_name: str
    software_version: str
    address: str


class TelemetrySubscription(NamedTuple):
    """What one client instance is asked to push."""

    instance_id: bytes
    subscription_id: int
    """Changes with what is asked for."""
    metrics: Sequence[str]
    """Prefixes of names, or `*` alone for all metrics; empty for none."""
    push_interval_ms: int
    max_bytes: int
    """Most bytes of a push, after decompression too."""


class TelemetryPush(NamedTuple):
    """What a client instance pushes."""

    instance_id: bytes
    subscription_id: int
    is_terminating: bool
    """Whether it is the client's last push."""
    codec: int
    metrics: bytes
    """OpenTelemetry's MetricsData, compressed."""


class TelemetryService(Protocol):
    """The receiver of clients' metrics."""

    def subscription_of(self, client: TelemetryClient, instance_id: bytes) -> TelemetrySubscription:
        """What the client is to push; the zero id asks for an id. Raises KafkaError."""
        ...

    async def push(self, client: TelemetryClient, pushed: TelemetryPush) -> None:
        """Take what a client pushes. Raises KafkaError."""
        ...
