"""`odradek serve` under a service manager: started when it can serve, stopping when it was asked to."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

TIME_LIMIT_SECONDS = 60


@pytest.mark.parametrize("brokers", [1, 2])
def test_serve_reports_ready_and_stopping(tmp_path: Path, brokers: int) -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        (tmp_path / "log").open("wb") as log,
    ):
        name = str(Path(directory) / "notify")
        manager.bind(name)
        manager.settimeout(TIME_LIMIT_SECONDS)
        command = [sys.executable, "-m", "odradek.cli.main", "serve", "--listen", "127.0.0.1:0"]
        command += ["--brokers", f"{brokers}", "--data-dir", str(tmp_path / "data")]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "NOTIFY_SOCKET": name}
        )
        try:
            report = ""
            while "READY=1" not in report:
                report = manager.recv(4096).decode()
            assert process.stdout is not None
            ready = process.stdout.readline().split()
            assert report.endswith(f" on {ready[2].removeprefix('bootstrap=')}")
            process.send_signal(signal.SIGTERM)
            assert manager.recv(4096).decode().startswith("STOPPING=1\n")
            assert process.wait(TIME_LIMIT_SECONDS) == 0
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
