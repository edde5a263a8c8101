"""A cluster of Odradek's brokers on this machine as a child process, for tests, benchmarks and client suites."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from bench.peers.broker import ANY_DISK, BrokerError, first_line

READY = re.compile(r"^odradek ready bootstrap=(\S+) pid=(\d+) brokers=(\S+) seconds=([\d.]+)")
_PROCESSES = "odradek-processes.json"
"""In the data directory: the supervisor writes it whenever it has started a broker."""


class ClusterProcess:
    """`odradek serve --brokers N` on free ports of 127.0.0.1. `settings` may hold `{id}` for the id of each broker.

    `options` are more words of the command line. Its log, that of all brokers, is `DATA_DIR.log`.
    """

    def __init__(
        self,
        data_dir: Path,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir
        self.options = list(options)
        self.brokers = brokers
        self.settings = ANY_DISK | dict(settings or {})
        self.bootstrap = ""
        self.ready_seconds = 0.0
        self.log_path = data_dir.with_name(data_dir.name + ".log")
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        settings = [part for name, value in self.settings.items() for part in ("--set", f"{name}={value}")]
        where = ["--brokers", str(self.brokers), "--listen", "127.0.0.1:0", "--data-dir", str(self.data_dir)]
        return [sys.executable, "-m", "odradek.cli.main", "serve", *where, *self.options, *settings]

    def start(self, timeout_seconds: float = 60) -> Self:
        """Returns when all brokers serve. Raises BrokerError if they do not."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env=environment,
            )
        line = first_line(self._process, timeout_seconds)
        ready = READY.match(line)
        if ready is None:
            self.stop()
            raise BrokerError(f"not ready within {timeout_seconds:g} s, wrote {line!r}\n{self.log()}")
        self.bootstrap = ready[1]
        self.ready_seconds = float(ready[4])
        return self

    def pids(self) -> dict[int, int]:
        """Broker id -> its present process: the supervisor starts dead ones again."""
        found = json.loads((self.data_dir / _PROCESSES).read_bytes())["brokers"]
        return {int(broker_id): int(pid) for broker_id, pid in found.items()}

    def signal_broker(self, broker_id: int, how: signal.Signals) -> None:
        os.kill(self.pids()[broker_id], how)

    @contextmanager
    def none_started_again(self) -> Iterator[None]:
        """What dies meanwhile stays dead until this ends: the supervisor is stopped."""
        assert self._process is not None, "not started"
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stop(self, timeout_seconds: float = 90) -> int:
        """SIGTERM, and wait for the graceful end of all. Returns the exit status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.terminate()
        try:
            return process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerError(f"did not end within {timeout_seconds:g} s\n{self.log()}") from None
        finally:
            if process.stdout is not None:
                process.stdout.close()

    def log(self, last_bytes: int = 8000) -> str:
        return self.log_path.read_bytes()[-last_bytes:].decode(errors="replace") if self.log_path.exists() else ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
