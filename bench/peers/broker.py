"""Odradek's broker as a child process, for tests, benchmarks and client suites."""

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

READY = re.compile(r"^odradek ready bootstrap=(\S+):(\d+) pid=(\d+) seconds=([\d.]+)(?:.* http=(\S+))?")

ANY_DISK = {"odradek.health.free.space.min.percent": 0}
"""How full the disk of the machine is that runs tests is no problem of the brokers that they test."""


class BrokerError(RuntimeError):
    """The broker did not get ready or did not end; the message holds the end of its log."""


def first_line(process: subprocess.Popen[bytes], timeout_seconds: float) -> str:
    """What the process writes first, or as much of it as came in time; nothing behind it is read."""
    assert process.stdout is not None
    fd, line, deadline = process.stdout.fileno(), b"", time.monotonic() + timeout_seconds
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while not line.endswith(b"\n") and selector.select(max(0.0, deadline - time.monotonic())):
            part = os.read(fd, 1)
            if not part:
                break
            line += part
    return line.decode(errors="replace").rstrip("\n")


class BrokerProcess:
    """One `odradek serve` on 127.0.0.1 that can be stopped, killed and started again on the same data and port.

    `settings` are broker configurations by Kafka's names, `prefix` is what runs the command (as `nice` would),
    `environment` is added to this process's. Its log grows in `DATA_DIR.log` over all starts.
    """

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, object] | None = None,
        port: int = 0,
        *,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.settings = ANY_DISK | dict(settings or {})
        self.port = port
        self.prefix = list(prefix)
        self.environment = dict(environment or {})
        self.ready_seconds = 0.0
        self.http = ""
        """HOST:PORT of metrics and health; empty without a listener for them."""
        self.log_path = data_dir.with_name(data_dir.name + ".log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def command(self) -> list[str]:
        settings = [part for name, value in self.settings.items() for part in ("--set", f"{name}={value}")]
        listen = ["--listen", f"127.0.0.1:{self.port}", "--data-dir", str(self.data_dir)]
        return [*self.prefix, sys.executable, "-m", "odradek.cli.main", "serve", *listen, *settings]

    def _environment(self) -> dict[str, str]:
        # Where bytecode may not be kept every start compiles all modules, which no user's does.
        own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return own | self.environment

    def start(self, timeout_seconds: float = 60) -> Self:
        """Returns when the broker has printed its ready line. Raises BrokerError if it ends or is silent until then."""
        assert not self.running(), "already started"
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env=self._environment(),
            )
        line = first_line(self._process, timeout_seconds)
        ready = READY.match(line)
        if ready is None:
            status = self._process.poll()
            self.kill()
            why = f"not ready within {timeout_seconds:g} s" if status is None else f"ended with status {status}"
            raise BrokerError(f"{why}, wrote {line!r}\n{self.log()}")
        self.port = int(ready[2])
        self.ready_seconds = float(ready[4])
        self.http = ready[5] or ""
        return self

    def kill(self) -> None:
        """SIGKILL to the process and all its children, as a crash."""
        self._end(signal.SIGKILL, 30)

    def stop(self, timeout_seconds: float = 30) -> int:
        """SIGTERM, and wait for the graceful end. Returns the exit status; raises BrokerError if it does not end."""
        return self._end(signal.SIGTERM, timeout_seconds)

    def _end(self, how: signal.Signals, timeout_seconds: float) -> int:
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            os.killpg(process.pid, how)
        try:
            status = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise BrokerError(f"did not end within {timeout_seconds:g} s of {how.name}\n{self.log()}") from None
        finally:
            if process.stdout is not None:
                process.stdout.close()
            self._process = None
        return status

    def restart(self) -> Self:
        """Stop if running, and start on the same data and the same port."""
        self.stop()
        return self.start()

    def log(self, last_bytes: int = 8000) -> str:
        """The end of what all starts so far have logged."""
        if not self.log_path.exists():
            return ""
        return self.log_path.read_bytes()[-last_bytes:].decode(errors="replace")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
