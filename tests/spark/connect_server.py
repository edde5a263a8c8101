"""A Spark Connect server in a process of its own."""

import contextlib
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark

BIN = Path(pyspark.__file__).parent / "bin"


def free_port() -> int:
    """A port of this machine that no process listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextlib.contextmanager
def connect_server(
    master: str, environment: Mapping[str, str], log_path: Path, conf: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The address for clients, which wait until the server listens."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.ui.enabled": "false",
        **(conf or {}),
    }
    command = [str(BIN / "spark-submit"), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += ["--master", master]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    with log_path.open("w") as log:
        server = subprocess.Popen([*command, "spark-internal"], env=environment, stdout=log, stderr=log)
    try:
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)
