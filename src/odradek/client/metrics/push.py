"""Pushes a client's metrics to brokers that ask for them (KIP-714). Failures do not disturb the client."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Final

from odradek.client.errors import CallTimedOut, ClientError, IllegalState, UnsupportedByBroker
from odradek.client.metrics.metric import Metric, Metrics
from odradek.client.network.cluster import Cluster
from odradek.client.network.connection import Connection
from odradek.client.surroundings import surroundings
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.client.metrics.otlp import OtlpEncoder
    from odradek.client.metrics.subscription import TelemetryState

logger = logging.getLogger(__name__)

Labels = Callable[[], Mapping[str, str]]
"""What describes the client besides its metrics, for instance `group_id`."""

_GET_SUBSCRIPTIONS: Final = 71
_LAST_PUSH_S: Final = 1.0
"""The time that `close` may spend on the last push."""


class MetricsPush:
    """Waits for a connection to a broker that offers the API, then subscribes and pushes until `close`."""

    __slots__ = ("_cluster", "_encoder", "_identified", "_labels", "_metrics", "_sources", "_state", "_task")

    def __init__(self, cluster: Cluster, metrics: Callable[[], Metrics], labels: Labels) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._labels = labels
        self._sources: list[Callable[[], Iterable[Metric]]] = []
        self._task: asyncio.Task[None] | None = None
        self._state: TelemetryState | None = None
        self._encoder: OtlpEncoder | None = None
        self._identified: asyncio.Event = asyncio.Event()
        cluster.connections.watch_opened(self._opened)

    def add_source(self, source: Callable[[], Iterable[Metric]]) -> None:
        """Push these metrics, too."""
        if source not in self._sources:
            self._sources.append(source)

    def remove_source(self, source: Callable[[], Iterable[Metric]]) -> None:
        """Push these metrics no longer."""
        if source in self._sources:
            self._sources.remove(source)

    def _opened(self, connection: Connection) -> None:
        if self._task is not None or _GET_SUBSCRIPTIONS not in connection.versions:
            return
        if find_spec("opentelemetry") is None or find_spec("opentelemetry.proto") is None:
            logger.debug("brokers ask for metrics (KIP-714): they are pushed with the extra telemetry only")
            self._cluster.connections.watch_opened(None)
            return
        from odradek.client.metrics.subscription import TelemetryState

        self._state = TelemetryState()
        self._task = self._cluster.loop.create_task(self._run(self._state))

    async def _run(self, state: TelemetryState) -> None:
        while not state.has_ended:
            await asyncio.sleep(state.wait_s)
            try:
                if state.subscription is None:
                    await self._subscribe(state)
                else:
                    await self._push(state)
            except UnsupportedByBroker as error:
                logger.debug("metrics are pushed no longer: %s", error)
                state.end()
            except (ClientError, KafkaError) as error:
                logger.debug("cannot push metrics: %s; trying again after the interval", error)
                state.lost()

    async def _subscribe(self, state: TelemetryState) -> None:
        from odradek.wire.messages.get_telemetry_subscriptions import (
            GetTelemetrySubscriptionsRequest,
            GetTelemetrySubscriptionsResponse,
        )

        response = await self._cluster.request_any(
            GetTelemetrySubscriptionsRequest(state.instance_id), GetTelemetrySubscriptionsResponse
        )
        state.subscribed(response, self._cluster.random.random())
        if response.error_code:
            logger.debug("GetTelemetrySubscriptions answered with error %d", response.error_code)
        else:
            self._identified.set()

    async def _push(self, state: TelemetryState, *, is_last: bool = False) -> None:
        from odradek.records.compression import compress
        from odradek.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

        subscription = state.subscription
        assert subscription is not None
        codec = state.codec
        data = compress(codec, self._encoded(state))
        if len(data) > subscription.max_bytes:
            logger.debug("%d bytes of metrics are more than brokers accept (%d)", len(data), subscription.max_bytes)
            state.skipped()
            return
        response = await self._cluster.request_any(
            PushTelemetryRequest(state.instance_id, subscription.subscription_id, is_last, codec, data),
            PushTelemetryResponse,
        )
        state.pushed(response.error_code, codec)
        if response.error_code:
            logger.debug("PushTelemetry answered with error %d", response.error_code)

    def _encoded(self, state: TelemetryState) -> bytes:
        from odradek.client.metrics.otlp import OtlpEncoder, telemetry_name

        assert state.subscription is not None
        wants = state.subscription.wants
        now_ms = surroundings().clock.now_ms()
        if self._encoder is None:
            self._encoder = OtlpEncoder(now_ms)
        measured = chain(self._metrics(), *(source() for source in self._sources))
        wanted = [each for each in measured if wants(telemetry_name(each))]
        return self._encoder.encode(wanted, self._labels(), now_ms, is_delta=state.subscription.is_delta)

    async def instance_id(self, timeout_ms: float) -> str:
        """The id that brokers gave this client, in Kafka's text form. Raises CallTimedOut, IllegalState.

        IllegalState means that no broker that is known takes metrics, or that the extra `telemetry` is missing.
        """
        await self._cluster.retrying(self._cluster.refresh_metadata, "Metadata", timeout_ms)
        if self._state is None or self._state.has_ended:
            raise IllegalState("the brokers give no client instance ids: they take no metrics of clients (KIP-714)")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._identified.wait()
        except TimeoutError:
            raise CallTimedOut(f"client instance id: no answer within {timeout_ms:g} ms") from None
        return base64.urlsafe_b64encode(self._state.instance_id).decode().rstrip("=")

    async def close(self) -> None:
        """Stop; push a last time if brokers have subscribed."""
        self._cluster.connections.watch_opened(None)
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        state = self._state
        if state is None or state.subscription is None:
            return
        try:
            async with asyncio.timeout(_LAST_PUSH_S):
                await self._push(state, is_last=True)
        except (ClientError, KafkaError, TimeoutError) as error:
            logger.debug("cannot push the last metrics: %s", error)


async def instance_id(push: MetricsPush | None, timeout_ms: float) -> str:
    """`MetricsPush.instance_id`, where metrics may be pushed. Raises IllegalState, CallTimedOut."""
    if push is None:
        raise IllegalState("enable_metrics_push is false: brokers give no client instance id")
    return await push.instance_id(timeout_ms)
