"""Metrics of the process and its event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from typing import Final

from odradek.broker.network.loop_holds import LoopHolds
from odradek.broker.observability.loop_monitor import LoopMonitor
from odradek.metrics.definition import Family, Kind, Metric, counter, gauge, label, single
from odradek.ports.process import Process
from odradek.version import __version__

RUNNING: Final = 3
"""Kafka's broker state RUNNING."""
STARTING: Final = 1
"""Kafka's broker state STARTING."""

BUILD: Final = gauge("odradek_build_info", "Always 1", "kafka.server:type=app-info", ("version",))
STATE: Final = gauge(
    "kafka_server_kafkaserver_brokerstate",
    f"{STARTING} while the broker starts or stops, {RUNNING} while it serves",
    "kafka.server:type=KafkaServer,name=BrokerState",
)
SESSIONS: Final = gauge(
    "kafka_server_fetchsessioncache_numincrementalfetchsessions",
    "Fetch sessions of consumers",
    "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions",
)
NETWORK_IDLE: Final = gauge(
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "Share of the last seconds in which the event loop had nothing to do, 0 to 1",
    "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
)
HANDLER_IDLE: Final = gauge(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "The same: one event loop does the work of Kafka's network and handler threads",
    "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
)
LOOP_DELAY: Final = Metric(
    "odradek_event_loop_delay_seconds",
    Kind.HISTOGRAM,
    ("le",),
    "How late the event loop ran a timer, looked at ten times a second",
)
LOOP_CPU: Final = counter("odradek_event_loop_cpu_seconds", "Processor time of the event loop's thread")
HOLDS: Final = counter(
    "odradek_event_loop_holds", "Requests, and slices of long ones, that held the event loop for odradek.slow.loop.ms"
)
HELD: Final = counter("odradek_event_loop_held_seconds", "How long these held it, together")
LONGEST_HOLD: Final = gauge("odradek_event_loop_longest_hold_seconds", "The longest of these since the start")
CPU: Final = counter("process_cpu_seconds", "Processor time of the process")
RESIDENT: Final = gauge("process_resident_memory_bytes", "Resident memory")
OPEN_FDS: Final = gauge("process_open_fds", "Open file descriptors")
MOST_FDS: Final = gauge("process_max_fds", "The limit of file descriptors")
STARTED: Final = gauge("process_start_time_seconds", "Start of the process, in seconds since 1970")
DISK_READ: Final = gauge(
    "kafka_server_kafkaserver_linux_disk_read_bytes",
    "Bytes that the process has read from storage since it started; a gauge in Kafka, too",
    "kafka.server:type=KafkaServer,name=linux-disk-read-bytes",
)
DISK_WRITTEN: Final = gauge(
    "kafka_server_kafkaserver_linux_disk_write_bytes",
    "Bytes that the process has written to storage since it started; a gauge in Kafka, too",
    "kafka.server:type=KafkaServer,name=linux-disk-write-bytes",
)


class ProcessMetrics:
    """Reads the process and its event loop."""

    __slots__ = ("_holds", "_is_serving", "_monitor", "_process", "_sessions")

    metrics = (
        BUILD,
        STATE,
        SESSIONS,
        NETWORK_IDLE,
        HANDLER_IDLE,
        LOOP_DELAY,
        LOOP_CPU,
        HOLDS,
        HELD,
        LONGEST_HOLD,
        CPU,
        RESIDENT,
        OPEN_FDS,
        MOST_FDS,
        STARTED,
        DISK_READ,
        DISK_WRITTEN,
    )
    """See `Collector`."""

    def __init__(
        self,
        process: Process,
        sessions: Sized,
        monitor: LoopMonitor,
        holds: LoopHolds,
        is_serving: Callable[[], bool],
    ) -> None:
        """`sessions` are the fetch sessions of clients."""
        self._process = process
        self._sessions = sessions
        self._monitor = monitor
        self._holds = holds
        self._is_serving = is_serving

    def collect(self) -> Iterator[Family | None]:
        """See `Collector`."""
        figures = self._process.figures()
        yield single(BUILD, 1, label("version", __version__))
        yield single(STATE, RUNNING if self._is_serving() else STARTING)
        yield single(SESSIONS, len(self._sessions))
        yield single(NETWORK_IDLE, self._monitor.idle_share)
        yield single(HANDLER_IDLE, self._monitor.idle_share)
        yield Family(LOOP_DELAY, self._monitor.delays.samples(""))
        yield single(HOLDS, self._holds.count)
        yield single(HELD, self._holds.total_s)
        yield single(LONGEST_HOLD, self._holds.longest_s)
        for metric, value in (
            (LOOP_CPU, figures.loop_cpu_s),
            (CPU, figures.cpu_s),
            (RESIDENT, figures.resident_bytes),
            (OPEN_FDS, figures.open_descriptors),
            (MOST_FDS, figures.most_descriptors),
            (STARTED, figures.started_s),
            (DISK_READ, figures.read_bytes),
            (DISK_WRITTEN, figures.written_bytes),
        ):
            if value >= 0:
                yield single(metric, value)
