"""Brokers whose processor time and memory are read from outside."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from bench.holds.broker import Connection
from bench.peers.broker import BrokerProcess
from bench.servers import Kafka, rss_mb

IDLE_SECONDS = 20.0
_CALM_SECONDS = 5.0
_START_SECONDS = 300
_REST_SECONDS = 0.05
_CALM_PERCENT = 2.0
_CALM_WITHIN_SECONDS = 0.5
_CALM_AFTER_SECONDS = 120.0


class Measured:
    """A broker's process, and a connection to it."""

    connection: Connection
    pid: int

    def cpu_ms(self) -> float:
        """Processor time of all threads since the start, in ms, once they have had time to go to sleep."""
        time.sleep(_REST_SECONDS)  # the kernel counts what a thread has used when it gives up the processor
        tasks = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(each.read_text().split()[0]) for each in tasks) / 1e6

    def wait_until_calm(self) -> None:
        """Return when the process does no more work of its own, for instance for files that requests have created.

        Threads sync the directories of new logs for seconds: this is no request's, and would count as the next one's.
        """
        end = time.monotonic() + _CALM_AFTER_SECONDS
        before = self.cpu_ms()
        while time.monotonic() < end:
            time.sleep(_CALM_WITHIN_SECONDS)
            now = self.cpu_ms()
            if (now - before) / _CALM_WITHIN_SECONDS / 10 < _CALM_PERCENT:
                return
            before = now


class MeasuredKafka(Measured):
    """Apache Kafka on its own data."""

    def __init__(self, folder: Path) -> None:
        self._server = Kafka(folder)
        running = self._server.start()
        self.pid = running.pid
        self.connection = Connection(running.address()[1])

    def close(self) -> None:
        """End the broker."""
        self.connection.close()
        self._server.kill()


class MeasuredBroker(Measured):
    """One broker of Odradek on its own data."""

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        self._folder = folder
        self._process = BrokerProcess(folder / "data", settings)
        self.start()

    def start(self) -> float:
        """Start the broker; the seconds until it was ready."""
        began = time.perf_counter()
        self._process.start(_START_SECONDS)
        took = time.perf_counter() - began
        self.pid = self._process.pid
        self.connection = Connection(self._process.port)
        return took

    def stop(self) -> float:
        """Stop the broker as SIGTERM does; the seconds that it took."""
        self.connection.close()
        began = time.perf_counter()
        self._process.stop(_START_SECONDS)
        return time.perf_counter() - began

    def connect(self) -> Connection:
        """Another connection."""
        return Connection(self._process.port)

    def warm_page_cache(self, size: int) -> None:
        """Write a file of that many bytes beside the broker's data and delete it.

        On a virtual machine the first use of a page of memory costs the hypervisor's time, which is no broker's.
        """
        path = self._folder / "warm"
        with path.open("wb") as file:
            for _ in range(size >> 20):
                file.write(bytes(1 << 20))
        path.unlink()

    def rss_mb(self) -> float:
        """Resident memory in MB."""
        return rss_mb(self.pid)

    def idle_percent(self) -> float:
        """Processor time without clients, in percent of a core."""
        time.sleep(_CALM_SECONDS)
        before = self.cpu_ms()
        time.sleep(IDLE_SECONDS)
        return (self.cpu_ms() - before) / IDLE_SECONDS / 10

    def close(self) -> None:
        """End the broker."""
        self.connection.close()
        self._process.kill()
