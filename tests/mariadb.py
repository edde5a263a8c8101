"""A real MariaDB server for tests, as Debian's package mariadb-server installs it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pymysql
import pytest

from odradek.connect.mysql import MySql
from tests.certificates import Certificate

_PATH: Final = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
_PATIENCE_S: Final = 60.0


def program(name: str) -> str | None:
    """The path of one of MariaDB's programs; those of servers are often not on PATH."""
    return shutil.which(name, path=_PATH)


class MariaDbServer:
    """A server on a port of 127.0.0.1, with the database `tests`."""

    def __init__(self, folder: Path, certificate: Certificate | None = None) -> None:
        """With a certificate, it speaks TLS with clients that want to."""
        self._certificate = certificate
        self._temporary = folder / "tmp"
        self._temporary.mkdir()
        self._data = folder / "data"
        self._socket = folder / "socket"
        self._log = folder / "log"
        install = program("mariadb-install-db")
        assert install is not None
        command = [install, "--no-defaults", f"--datadir={self._data}", "--skip-test-db", *self._own()]
        subprocess.run(
            [*command, "--auth-root-authentication-method=normal"], check=True, timeout=120, stdout=subprocess.DEVNULL
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.start()
        with self._connected("mysql") as connection:
            connection.execute("CREATE DATABASE tests")
        self.database = MySql("127.0.0.1", self._port, "tests", "root")
        self.url = f"mysql://root@127.0.0.1:{self._port}/tests"

    def start(self) -> None:
        """Start, and wait until it takes connections."""
        server = program("mariadbd")
        assert server is not None
        small = ("--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M", "--skip-name-resolve")
        tls = []
        if self._certificate is not None:
            tls = [f"--ssl-cert={self._certificate.certificate}", f"--ssl-key={self._certificate.key}"]
        place = (f"--datadir={self._data}", f"--socket={self._socket}", f"--port={self._port}")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [server, "--no-defaults", *place, *small, *tls, *self._own(), "--bind-address=127.0.0.1"],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                with self._connected("mysql"):
                    return
            except pymysql.err.OperationalError:
                assert self._process.poll() is None, self._log.read_text()
                assert time.monotonic() < deadline, self._log.read_text()
                time.sleep(0.05)

    def crash(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()

    @contextlib.contextmanager
    def _connected(self, name: str) -> Iterator[Any]:
        with contextlib.closing(MySql("127.0.0.1", self._port, name, "root").connect()) as connection:
            yield connection

    def _own(self) -> list[str]:
        """Its temporary files clash with those of other servers; it refuses to run as root unless that is said."""
        user = ["--user=root"] if os.geteuid() == 0 else []
        return [f"--tmpdir={self._temporary}", *user]


@contextlib.contextmanager
def mariadb_server(certificate: Certificate | None = None) -> Iterator[MariaDbServer]:
    """Runs until the end of the block; without the programs, the test is skipped."""
    if program("mariadbd") is None or program("mariadb-install-db") is None:
        pytest.skip("MariaDB is not installed; its package is mariadb-server")
    # a socket's path has to be short
    with tempfile.TemporaryDirectory(prefix="md") as folder:
        server = MariaDbServer(Path(folder), certificate)
        yield server
        server.crash()
