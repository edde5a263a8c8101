#!/usr/bin/env python3
"""Apache ZooKeeper 3.9 as a peer, from the jars that PySpark brings along: one server, or an ensemble, on loopback.

    zookeeper.py run [--servers 3] [--port 2181|0] [--dir D] [--for 600]
                     foreground; prints one line `ready CONNECT pids=... seconds=...`,
                     ends on SIGTERM, SIGINT or after --for seconds

Uses the Java of JAVA_HOME, or java on PATH (17+). As a module: `with ZooKeeper(directory) as zookeeper: ...`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Self

JARS = ("zookeeper-*", "slf4j-api-*", "log4j-*", "metrics-core-*", "snappy-java-*", "netty-*", "commons-io-*")
JVM = [
    "-Xmx128M",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dzookeeper.admin.enableServer=false",
]
START_SECONDS = 60.0
PORTS = range(12_000, 31_000)
"""As kafka.py, which takes its own from there: both are scripts that need nothing beside them."""


def class_path() -> str:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("ZooKeeper is taken from PySpark, which is not installed")
    jars = pathlib.Path(next(iter(spec.submodule_search_locations))) / "jars"
    return ":".join(str(jar) for pattern in JARS for jar in sorted(jars.glob(pattern)))


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else shutil.which("java") or "java"


def free_ports(count: int) -> list[int]:
    """Below the range from which clients' own ports come: none of those takes one until a server listens there."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if len(found) == count:
            break
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.bind(("127.0.0.1", port))
            found.append(port)
    return found


def four_letters(port: int, word: str, host: str = "127.0.0.1") -> str:
    """The answer to one of ZooKeeper's words (`ruok`, `srvr`); empty without an answer."""
    try:
        with socket.create_connection((host, port), 2.0) as connection:
            connection.sendall(word.encode())
            answer = b""
            while part := connection.recv(4096):
                answer += part
            return answer.decode()
    except OSError:
        return ""


class ZooKeeper:
    """Servers of one ensemble; with one of them it runs alone. `sync=False` leaves out its fsyncs."""

    def __init__(
        self,
        directory: pathlib.Path,
        servers: int = 1,
        *,
        port: int = 0,
        tick_ms: int = 500,
        sync: bool = True,
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
    ) -> None:
        """`host` is where a single server listens, `prefix` what runs it (as `nice` would)."""
        self.settings: dict[str, str] = {}
        """More lines of its configuration, for TLS for example."""
        self.options: list[str] = []
        """More options of Java, for a login file for example."""
        self.directory = directory
        self.host = host
        self.prefix = list(prefix)
        self.tick_ms = tick_ms
        self.sync = sync
        free = free_ports(3 * servers)
        self.ports = free[:servers] if port == 0 else [port + index for index in range(servers)]
        self._quorum = free[servers:]
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * servers

    @property
    def connect(self) -> str:
        """What `zookeeper.connect` takes."""
        return ",".join(f"{self.host}:{port}" for port in self.ports)

    def _configured(self, index: int) -> pathlib.Path:
        home = self.directory / f"zookeeper{index + 1}"
        (home / "data").mkdir(parents=True, exist_ok=True)
        (home / "data" / "myid").write_text(f"{index + 1}\n")
        lines = [
            f"tickTime={self.tick_ms}",
            f"dataDir={home / 'data'}",
            f"clientPort={self.ports[index]}",
            f"clientPortAddress={self.host}",
            "maxClientCnxns=0",
            "4lw.commands.whitelist=*",
            "admin.enableServer=false",
            "initLimit=20",
            "syncLimit=10",
        ]
        if len(self.ports) > 1:
            lines += [
                f"server.{i + 1}=127.0.0.1:{self._quorum[2 * i]}:{self._quorum[2 * i + 1]}"
                for i in range(len(self.ports))
            ]
        lines += [f"{name}={value}" for name, value in self.settings.items()]
        config = home / "zoo.cfg"
        config.write_text("\n".join(lines) + "\n")
        # Without one, log4j complains on the console; with it, the server's own log is where one looks for it.
        (home / "log4j2.properties").write_text(
            "rootLogger.level=warn\nrootLogger.appenderRef.file.ref=file\nappender.file.type=File\nappender.file.name=file\n"
            f"appender.file.fileName={home / 'server.log'}\nappender.file.layout.type=PatternLayout\n"
            "appender.file.layout.pattern=%d %p %c{1} %m%n\n"
        )
        return config

    def start_server(self, index: int) -> None:
        config = self._configured(index)
        main = "ZooKeeperServerMain" if len(self.ports) == 1 else "quorum.QuorumPeerMain"
        options = [*JVM, *self.options, f"-Dlog4j2.configurationFile={config.parent / 'log4j2.properties'}"]
        if not self.sync:
            options.append("-Dzookeeper.forceSync=no")
        with open(config.parent / "console.log", "ab") as log:
            self.processes[index] = subprocess.Popen(
                [
                    *self.prefix,
                    java(),
                    *options,
                    "-cp",
                    class_path(),
                    f"org.apache.zookeeper.server.{main}",
                    str(config),
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def start(self) -> Self:
        """Serve when this returns."""
        for index in range(len(self.ports)):
            self.start_server(index)
        self.wait_until_serving()
        return self

    def wait_until_serving(self, seconds: float = START_SECONDS) -> None:
        """Until every server that runs serves clients."""
        deadline = time.monotonic() + seconds
        for index, port in enumerate(self.ports):
            while (process := self.processes[index]) is not None and "Mode: " not in four_letters(
                port, "srvr", self.host
            ):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"ZooKeeper does not start: see {self.directory}")
                time.sleep(0.05)

    def mode(self, index: int) -> str:
        """leader, follower, standalone; empty for one that does not serve."""
        answer = four_letters(self.ports[index], "srvr", self.host)
        return next((line.partition(": ")[2] for line in answer.splitlines() if line.startswith("Mode: ")), "")

    def leader(self) -> int | None:
        return next((i for i in range(len(self.ports)) if self.mode(i) in ("leader", "standalone")), None)

    def kill(self, index: int) -> None:
        """As kill -9 does; `start_server` brings it back with its data."""
        process = self.processes[index]
        if process is not None:
            process.kill()
            process.wait()
            self.processes[index] = None

    def signal(self, index: int, number: int) -> None:
        process = self.processes[index]
        if process is not None:
            process.send_signal(number)

    def stop(self) -> None:
        for index in range(len(self.ports)):
            self.kill(index)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("command", choices=["run"])
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--port", type=int, default=2181)
    parser.add_argument("--dir", type=pathlib.Path)
    parser.add_argument("--for", dest="seconds", type=float, default=600.0)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zookeeper-") as scratch:
        with ZooKeeper(options.dir or pathlib.Path(scratch), options.servers, port=options.port) as zookeeper:
            pids = ",".join(str(process.pid) for process in zookeeper.processes if process is not None)
            print(f"ready {zookeeper.connect} pids={pids} seconds={time.monotonic() - begun:.1f}", flush=True)
            try:
                time.sleep(options.seconds)
            except KeyboardInterrupt:
                return


if __name__ == "__main__":
    main()
