"""Apache Kafka's broker and controller as a child process that suffers the same faults as ours, for comparison."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from bench.peers.broker import BrokerError
from bench.peers.kafka import JVM, answers, classpath, java

CONTROLLER_LISTENER = "CONTROLLER"
_HEAP = ("-Xms512M", "-Xmx512M")


def new_cluster_id() -> str:
    """One that does not begin with a dash, which Apache's storage tool would read as an option."""
    return "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]


class KafkaProcess:
    """One Apache Kafka 4.3 in both roles, with the methods of `BrokerProcess`. `settings` are all its properties."""

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, object],
        cluster_id: str,
        port: int,
        prefix: Sequence[str] = (),
        features: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir
        self.settings = dict(settings)
        self.cluster_id = cluster_id
        self.port = port
        self.prefix = list(prefix)
        self._features = [part for each in features for part in ("--feature", each)]
        self.log_path = data_dir.with_name(data_dir.name + ".log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the Java process."""
        assert self._process is not None, "not started"
        return self._process.pid

    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def _configured(self) -> Path:
        path = self.log_path.with_suffix(".properties")
        settings = {"log.dirs": self.data_dir, **self.settings}
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        logging = self.log_path.with_suffix(".yaml")
        logging.write_text(
            "Configuration:\n  Appenders:\n    Console:\n      name: STDOUT\n"
            "      PatternLayout: {pattern: '%d %p %c %m%n'}\n"
            "  Loggers:\n    Root:\n      level: WARN\n      AppenderRef: {ref: STDOUT}\n"
        )
        return path

    def start(self) -> Self:
        """Start the process; `wait_until_serving` waits for it. Raises BrokerError if its storage cannot be made."""
        assert not self.running(), "already started"
        self.data_dir.mkdir(parents=True, exist_ok=True)
        config = self._configured()
        if not (self.data_dir / "meta.properties").exists():
            self._format(config)
        options = [*_HEAP, *JVM, f"-Dlog4j2.configurationFile={config.with_suffix('.yaml')}"]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*self.prefix, java(), *options, "-cp", classpath(), "kafka.Kafka", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    def wait_until_serving(self, timeout_seconds: float = 90) -> None:
        """Wait until it answers. Raises BrokerError."""
        deadline = time.monotonic() + timeout_seconds
        while not answers(self.port):
            if not self.running() or time.monotonic() > deadline:
                raise BrokerError(f"Apache Kafka does not serve; see {self.log_path}")
            time.sleep(0.05)

    def _format(self, config: Path) -> None:
        command = [java(), "-cp", classpath(), "kafka.tools.StorageTool", "format", "-t", self.cluster_id]
        done = subprocess.run(
            [*command, "-c", str(config), *self._features], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise BrokerError(f"Apache Kafka's storage could not be formatted: {done.stderr.strip()[-500:]}")

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        self._end(signal.SIGKILL, 30)

    def stop(self, timeout_seconds: float = 30) -> int:
        """SIGTERM; the exit status. One that does not end in time is killed, which is part of its figures."""
        return self._end(signal.SIGTERM, timeout_seconds)

    def _end(self, how: signal.Signals, timeout_seconds: float) -> int:
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            os.killpg(process.pid, how)
        try:
            return process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.wait(30)
        finally:
            self._process = None

    def log(self) -> str:
        """The end of its log."""
        return self.log_path.read_text(errors="replace")[-4000:] if self.log_path.exists() else ""
