"""Metrics of clients as OpenTelemetry's instruments. Needs the extra `otel`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from odradek.client.errors import ClientError
from odradek.client.metrics.metric import Metric, Metrics
from odradek.client.metrics.names import GROUPS
from odradek.version import __version__

_READ_S: Final = 5.0
"""How long a reader's thread may wait for the event loop of an asyncio client."""


class Measured(Protocol):
    """A client that has been started: asyncio or blocking."""

    def metrics(self) -> Metrics:
        """Its metrics now."""
        ...


def observe_clients(*clients: Measured, meter_provider: MeterProvider | None = None) -> None:
    """Have a meter provider (default: the program's global one) read the clients' metrics whenever it exports.

    Call it where the clients are used: for asyncio clients in their event loop. Instruments are named after Kafka's
    metrics, `kafka.producer.record_send_total`; tags become attributes. A closed client is left out.

    Example:

        async with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
            observe_clients(producer)
            await producer.send_and_wait("orders", b"tea")
    """
    meter = metrics.get_meter("odradek.client", __version__, meter_provider)
    try:
        loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        loop = None
    read = _Reader(clients, loop)
    for group, name, is_total, meaning in _instruments():
        create = meter.create_observable_counter if is_total else meter.create_observable_gauge
        create(instrument_name(group, name), [_callback(read, group, name)], description=meaning)


def instrument_name(group: str, name: str) -> str:
    """For instance `kafka.consumer_fetch_manager.records_lag_max`."""
    return f"kafka.{group.removesuffix('-metrics')}.{name}".replace("-", "_")


def _instruments() -> Iterable[tuple[str, str, bool, str]]:
    seen = set()
    for pattern, _, rows in GROUPS:
        kinds = ("producer", "consumer", "admin-client") if pattern.startswith("(") else ("",)
        for kind in kinds:
            group = f"{kind}{pattern.rpartition(')')[2]}"
            for name, meaning in rows:
                if (group, name) not in seen:
                    seen.add((group, name))
                    yield group, name, name.endswith("-total"), meaning


def _callback(read: _Reader, group: str, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_options: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(each.value, {tag.replace("-", "_"): text for tag, text in each.tags.items()})
            for each in read(group, name)
            if not math.isnan(each.value)
        ]

    return observe


class _Reader:
    """Reads all metrics once per export: an instrument that is read again begins the next one."""

    __slots__ = ("_clients", "_loop", "_metrics", "_seen")

    def __init__(self, clients: Sequence[Measured], loop: asyncio.AbstractEventLoop | None) -> None:
        self._clients = clients
        self._loop = loop
        self._metrics: dict[tuple[str, str], list[Metric]] = {}
        self._seen: set[tuple[str, str]] = set()

    def __call__(self, group: str, name: str) -> Sequence[Metric]:
        key = (group, name)
        if not self._seen or key in self._seen:
            self._metrics = self._read()
            self._seen.clear()
        self._seen.add(key)
        return self._metrics.get(key, ())

    def _read(self) -> dict[tuple[str, str], list[Metric]]:
        found: dict[tuple[str, str], list[Metric]] = {}
        for each in self._in_loop():
            found.setdefault((each.group, each.name), []).append(each)
        return found

    def _in_loop(self) -> list[Metric]:
        """The metrics, read in the clients' event loop: an export runs in a thread of its own."""
        try:
            running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if self._loop is None or running is self._loop:
            return self._now()
        if self._loop.is_closed():
            return []

        async def now() -> list[Metric]:
            return self._now()

        try:
            return asyncio.run_coroutine_threadsafe(now(), self._loop).result(_READ_S)
        except concurrent.futures.TimeoutError:
            return []

    def _now(self) -> list[Metric]:
        found: list[Metric] = []
        for client in self._clients:
            try:
                found += client.metrics()
            except ClientError:
                continue  # it was closed
        return found
