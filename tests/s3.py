"""An S3 server for tests, with the bucket `tests`: moto's.

It has a process of its own, because deltalake waits for a store without letting other threads of Python run.
`python -m tests.s3` serves until its input ends.
"""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

BUCKET: Final = "tests"


class S3(NamedTuple):
    """The server's address, and what connectors need to use it."""

    endpoint: str
    url: str
    settings: dict[str, str]
    """The `storage.…` settings of connectors."""

    @property
    def options(self) -> dict[str, str]:
        """The settings without their prefix, as deltalake takes them."""
        return {name.removeprefix("storage."): text for name, text in self.settings.items()}


@contextlib.contextmanager
def s3_server() -> Iterator[S3]:
    """Runs until the end of the block."""
    root = Path(__file__).resolve().parents[1]
    line = [sys.executable, "-m", "tests.s3"]
    with subprocess.Popen(
        line, cwd=root, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        endpoint = process.stdout.readline().strip()
        with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")) as answer:
            assert answer.status == 200
        settings = {
            "storage.AWS_ENDPOINT_URL": endpoint,
            "storage.AWS_ACCESS_KEY_ID": "user",
            "storage.AWS_SECRET_ACCESS_KEY": "secret",
            "storage.AWS_REGION": "us-east-1",
            "storage.AWS_ALLOW_HTTP": "true",
        }
        yield S3(endpoint, f"s3://{BUCKET}", settings)
        process.kill()


def _serve() -> None:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    print(f"http://{host}:{port}", flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    _serve()
