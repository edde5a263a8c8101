"""The two brokers under measurement, started fresh and alike: same settings, same disk, no fsync by either."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple, Self

from bench.peers.broker import BrokerProcess

KAFKA = Path(__file__).resolve().parent / "peers" / "kafka.py"
SETTINGS = {"num.partitions": 4, "group.initial.rebalance.delay.ms": 0}
NAMES = ("odradek", "kafka")
API_VERSIONS_V0 = bytes.fromhex("0000000a0012000000000001ffff")


class Running(NamedTuple):
    """A broker that serves: what a case needs to know of it."""

    name: str
    bootstrap: str
    pid: int

    def address(self) -> tuple[str, int]:
        host, _, port = self.bootstrap.rpartition(":")
        return host, int(port)


def processes(pid: int) -> list[int]:
    """The process and all its descendants."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:
                continue  # ended meanwhile
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of the process and its descendants since they started."""
    return _seconds(pid, 11, 12, 13, 14)


def kernel_seconds(pid: int) -> float:
    """The system time of the same."""
    return _seconds(pid, 12, 14)


def _seconds(pid: int, *fields_of_stat: int) -> float:
    """Sums of utime (11), stime (12), and those of ended children (13, 14)."""
    ticks = 0
    for each in processes(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            if each == pid:
                raise
            continue  # ended meanwhile: its parent has its time
        ticks += sum(int(fields[each]) for each in fields_of_stat)
    return ticks / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    """Resident memory of the process and its descendants in MB (10^6 bytes)."""
    pages = sum(int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in processes(pid))
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def first_answer_seconds(process: subprocess.Popen[bytes], port: int, began: float) -> float:
    """When the broker first answers ApiVersions, asked every 2 ms, in seconds after `began`."""
    while time.perf_counter() - began < 90 and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as sock:
                sock.settimeout(30)
                sock.sendall(API_VERSIONS_V0)
                if sock.recv(4):
                    return time.perf_counter() - began
        except OSError:
            time.sleep(0.002)
    raise RuntimeError("the broker did not answer")


class Odradek:
    def __init__(self, home: Path) -> None:
        self._broker = BrokerProcess(home / "data", SETTINGS, free_port())
        self.start_seconds = 0.0

    def start(self) -> Running:
        self._broker.data_dir.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        with self._broker.log_path.open("ab") as log:
            process = subprocess.Popen(self._broker.command(), stdout=subprocess.DEVNULL, stderr=log)
        self.start_seconds = first_answer_seconds(process, self._broker.port, began)
        self._process = process
        return Running("odradek", self._broker.bootstrap, process.pid)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)

    def kill(self) -> None:
        """As kill -9; start may follow."""
        self._process.kill()
        self._process.wait(60)


class Kafka:
    """Apache Kafka 4.3.0 with the JVM flags of its own start script; see peers/kafka.py."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.start_seconds = 0.0

    def start(self) -> Running:
        command = [sys.executable, str(KAFKA), "run", "--port", "0", "--dir", str(self._home / "kafka")]
        settings = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
        self._process = subprocess.Popen([*command, "--for", "86400", *settings], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        # The first run on a machine fetches the distribution and says so before the line that counts.
        line = next((words for words in map(str.split, self._process.stdout) if words[:1] == ["ready"]), None)
        if line is None:
            raise RuntimeError("Apache Kafka did not start")
        values = dict(word.split("=", 1) for word in line[2:])
        self.start_seconds = float(values["seconds"])
        self._pid = int(values["pids"])
        return Running("kafka", line[1], self._pid)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)

    def kill(self) -> None:
        """As kill -9; start may follow."""
        with contextlib.suppress(ProcessLookupError):  # it has stopped
            os.kill(self._pid, signal.SIGKILL)
        self.stop()


SERVERS: dict[str, type[Odradek | Kafka]] = {"odradek": Odradek, "kafka": Kafka}


class Server:
    """A broker by name with an empty data directory of its own, as a context; `started` holds what starting showed."""

    def __init__(self, name: str) -> None:
        self._home = Path(tempfile.mkdtemp(prefix=f"odradek-bench-{name}-"))
        self._server = SERVERS[name](self._home)

    def __enter__(self) -> Self:
        os.sync()  # what the last broker left dirty is not written back during this one's turn
        self.running = self._server.start()
        self.start_seconds = self._server.start_seconds
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()
        shutil.rmtree(self._home, ignore_errors=True)
