"""Reports to a service manager: the lines of sd_notify(3), to sockets with a path and without one."""

import asyncio
import os
import socket
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.cli.serving.service_manager import ServiceManager


@pytest.fixture(params=["path", "abstract"])
def listener(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, str]]:
    """The manager's socket and its value of NOTIFY_SOCKET."""
    if request.param == "abstract" and not sys.platform.startswith("linux"):
        pytest.skip("only Linux has abstract sockets")
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        name = f"@odradek-{uuid.uuid4()}" if request.param == "abstract" else str(Path(directory) / "notify")
        manager.bind(name.replace("@", "\0", 1))
        manager.settimeout(20)
        yield manager, name


def test_reports_are_the_lines_that_systemd_expects(listener: tuple[socket.socket, str]):
    manager, name = listener
    service = ServiceManager(name)
    service.status("starting")
    service.ready("serving on 127.0.0.1:9092")
    service.stopping("closing\nthe logs")
    assert [manager.recv(4096) for _ in range(3)] == [
        b"STATUS=starting",
        b"READY=1\nSTATUS=serving on 127.0.0.1:9092",
        b"STOPPING=1\nSTATUS=closing the logs",
    ]


def test_nothing_is_sent_without_a_manager():
    service = ServiceManager.from_environment({})
    service.ready("serving")
    assert service.watchdog_seconds is None


def test_variables_are_removed_so_that_children_do_not_report():
    environment = {
        "NOTIFY_SOCKET": "/run/notify",
        "WATCHDOG_USEC": "30000000",
        "WATCHDOG_PID": f"{os.getpid()}",
        "A": "b",
    }
    assert ServiceManager.from_environment(environment).watchdog_seconds == 30
    assert environment == {"A": "b"}


@pytest.mark.parametrize(("microseconds", "pid"), [("30000000", "1"), ("0", ""), ("soon", ""), ("", "")])
def test_watchdog_of_another_process_or_without_a_time_is_not_served(microseconds: str, pid: str):
    environment = {"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": microseconds, "WATCHDOG_PID": pid}
    assert ServiceManager.from_environment(environment).watchdog_seconds is None


def test_missing_socket_is_one_warning_and_no_error(caplog: pytest.LogCaptureFixture, tmp_path: Path):
    service = ServiceManager(str(tmp_path / "gone"))
    service.status("starting")
    service.ready("serving")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "cannot report to the service manager at" in caplog.text


def test_signs_of_life_are_sent_while_the_loop_turns(listener: tuple[socket.socket, str]):
    manager, name = listener

    async def turn() -> None:
        alive = asyncio.create_task(ServiceManager(name, 0.03).keep_alive())
        received = await asyncio.to_thread(lambda: [manager.recv(4096) for _ in range(3)])
        assert received == [b"WATCHDOG=1"] * 3
        alive.cancel()

    asyncio.run(turn())
