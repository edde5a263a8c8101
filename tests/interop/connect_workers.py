"""What tests of connectors in other processes need: workers, their REST interface, a PostgreSQL to follow."""

from __future__ import annotations

import contextlib
import json
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.spark.postgres import PostgresServer, postgres_server


class Rest:
    """The REST interface of a worker."""

    def __init__(self, url: str) -> None:
        self._url = url

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The document of the answer. Raises OSError, urllib's HTTPError included."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def is_there(self, path: str) -> bool:
        """Whether the path is served."""
        try:
            self.call("GET", path)
        except (OSError, ValueError):
            return False
        return True

    def states(self, name: str) -> list[str]:
        """The states of a connector and its tasks; none while the worker does not know it."""
        try:
            status = self.call("GET", f"connectors/{name}/status")
        except OSError:
            return []
        return [status["connector"]["state"], *(each["state"] for each in status["tasks"])]


@contextmanager
def process(command: list[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is killed at the end."""
    with log.open("w") as errors:
        started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            yield started
        finally:
            started.kill()
            started.communicate()


@contextmanager
def odradek(folder: Path, bootstrap: str, prefix: str) -> Iterator[tuple[Rest, subprocess.Popen[str]]]:
    """A worker of ours on the same topics."""
    command = [sys.executable, "-m", "odradek.cli.main", "connect", "run", "--listen", "127.0.0.1:0"]
    command += ["--bootstrap-server", bootstrap, "--configs-topic", f"{prefix}-configs"]
    command += ["--offsets-topic", f"{prefix}-offsets"]
    with process(command, folder / "odradek.log") as started:
        assert started.stdout is not None
        ready = started.stdout.readline().strip().partition("url=")[2]
        assert ready, (folder / "odradek.log").read_text()
        yield Rest(ready), started


def rows_of(path: Path, query: str) -> list[tuple[Any, ...]]:
    """Rows of a SQLite file; none before it has the table."""
    try:
        with sqlite3.connect(path) as connection:
            return connection.execute(query).fetchall()
    except sqlite3.Error:
        return []


@contextmanager
def tcp_of(folder: str) -> Iterator[tuple[str, int]]:
    """An address that leads to the server's socket in a folder: Java's driver connects to addresses only."""
    (path,) = [each for each in Path(folder).iterdir() if each.name.startswith(".s.PGSQL.") and each.is_socket()]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_forward, args=(listener, str(path)), daemon=True).start()
        yield "127.0.0.1", listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def _forward(listener: socket.socket, path: str) -> None:
    with contextlib.suppress(OSError):
        while True:
            near, _ = listener.accept()
            far = socket.socket(socket.AF_UNIX)
            far.connect(path)
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=_pump, args=(one, other), daemon=True).start()


def _pump(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    for each in (one, other):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def logical_postgres(run_time: Path) -> Iterator[PostgresServer]:
    """A PostgreSQL that lets others follow its changes; see `postgres_server`."""
    with postgres_server(run_time) as server:
        with psycopg.connect(server.database.conninfo, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET wal_level = logical")
        server.crash()
        server.start()
        yield server
