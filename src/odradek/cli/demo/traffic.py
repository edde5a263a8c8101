"""The demo's own clients: a producer that streams the flights, and a consumer group that follows the results."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any, Final

from odradek.cli.demo.flights import Day, Event, Totals
from odradek.client.admin import Admin, NewTopic, raise_first
from odradek.client.consumer.consumer import Consumer
from odradek.client.producer.producer import Producer
from odradek.records.topic_partition import TopicPartition

FLIGHTS: Final = "flights"
RESULTS: Final = "airport-days"
GROUP: Final = "demo-view"
PARTITIONS: Final = 4
LONG_MS: Final = 900_000
"""For all time limits of clients: the demo has its own, which grow on a busy machine."""
_FLUSH_RECORDS: Final = 5_000
_PAUSE_SECONDS: Final = 0.05


async def create_topics(bootstrap: str) -> None:
    """Create both topics. Raises KafkaError."""
    # Flights have timestamps of 2013: without this setting, retention would delete them within minutes.
    flights = NewTopic(FLIGHTS, PARTITIONS, 1, {"retention.ms": "-1"})
    topics = [flights, NewTopic(RESULTS, PARTITIONS, 1, {"cleanup.policy": "compact"})]
    async with Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=LONG_MS) as admin:
        raise_first(await admin.create_topics(topics))


async def end_offsets(bootstrap: str) -> dict[TopicPartition, int]:
    """The end offsets of all partitions of both topics."""
    keys = [TopicPartition(topic, each) for topic in (FLIGHTS, RESULTS) for each in range(PARTITIONS)]
    async with Consumer(bootstrap_servers=bootstrap, default_api_timeout_ms=LONG_MS) as consumer:
        return await consumer.end_offsets(keys)


class Traffic:
    """Producer and consumer group on an event loop in a thread of its own; the main thread reads the counts."""

    def __init__(self, bootstrap: str, flights: list[Event], allowed: int) -> None:
        self.bootstrap = bootstrap
        self.flights = flights
        self.allowed = allowed
        """The number of flights that the producer may have sent by now."""
        self.produced = 0
        self.results = 0
        self.group_lag: int | None = None
        self.days: dict[Day, Totals] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def start(self) -> None:
        """Begin to produce and to consume."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Let the group commit and leave; wait at most `seconds`."""
        self._stop.set()
        self._thread.join(seconds)

    def counted(self) -> int:
        """Flights in the results that the group has read."""
        return sum(each.flights for each in dict(self.days).values())

    def _run(self) -> None:
        try:
            asyncio.run(self._both())
        except BaseException as error:  # noqa: BLE001 - the main thread raises it again
            self.failure = error

    async def _both(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._produce())
            group.create_task(self._follow())

    async def _produce(self) -> None:
        options: dict[str, Any] = {"delivery_timeout_ms": LONG_MS, "max_block_ms": LONG_MS}
        async with Producer(bootstrap_servers=self.bootstrap, linger_ms=20, batch_size=131_072, **options) as producer:
            for number, flight in enumerate(self.flights):
                if number % _FLUSH_RECORDS == 0:
                    # Only acknowledged records count as produced.
                    await producer.flush()
                    self.produced = number
                    while number >= self.allowed:
                        if self._stop.is_set():
                            return
                        await asyncio.sleep(_PAUSE_SECONDS)
                await producer.send(FLIGHTS, flight.value, flight.key, timestamp_ms=flight.timestamp_ms)
            await producer.flush()
            self.produced = len(self.flights)

    async def _follow(self) -> None:
        options: dict[str, Any] = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        options |= {"session_timeout_ms": LONG_MS, "max_poll_interval_ms": LONG_MS, "default_api_timeout_ms": LONG_MS}
        async with Consumer(RESULTS, bootstrap_servers=self.bootstrap, group_id=GROUP, **options) as consumer:
            while not self._stop.is_set():
                for record in await consumer.poll(200, max_records=5_000):
                    self._take(json.loads(bytes(record.value)))
                lags = [consumer.lag(each) for each in consumer.assignment()]
                self.group_lag = sum(each for each in lags if each is not None) if lags else None
            await consumer.commit()
            found = await consumer.committed(consumer.assignment())
            self.committed = {key: at.offset for key, at in found.items()}

    def _take(self, result: dict[str, Any]) -> None:
        key = result["origin"], result["day"]
        self.days = {**self.days} if key not in self.days else self.days
        self.days[key] = Totals(result["flights"], result["departed"], result.get("mean_delay"))
        self.results += 1
