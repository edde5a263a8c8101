"""What the system reports of this process, and signals to children."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.ports.process import SystemProcess, signal_child

PROC = Path("/proc/self/fd")
needs_proc = pytest.mark.skipif(not PROC.exists(), reason="the system has no /proc")


@needs_proc
def test_open_descriptors_are_counted() -> None:
    before = SystemProcess().figures().open_descriptors
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(50)]
    after = SystemProcess().figures().open_descriptors
    for descriptor in opened:
        os.close(descriptor)
    # Clients of earlier tests may still connect in threads of their own.
    assert 40 < after - before < 60


@needs_proc
def test_descriptors_are_listed_when_the_folder_has_no_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux before 6.2."""
    real = os.stat

    def without_size(path: str, **options: bool) -> os.stat_result:
        found = list(real(path, **options))
        found[6] = 0
        return os.stat_result(found)

    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(50)]
    # Only around the reading: pytest itself needs `os.stat` to report a failure.
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", without_size)
        before = SystemProcess().figures().open_descriptors
        for descriptor in opened:
            os.close(descriptor)
        after = SystemProcess().figures().open_descriptors
    assert 40 < before - after < 60


def test_signal_to_a_child_leaves_its_exit_status_to_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(_process: object) -> None:
        pytest.fail("the exit status may be taken here")

    async def main() -> None:
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE)
        with monkeypatch.context() as patched:
            patched.setattr(subprocess.Popen, "poll", taken)
            signal_child(child, signal.SIGTERM)
            assert await child.wait() == -signal.SIGTERM
            signal_child(child, signal.SIGTERM)

    asyncio.run(main())
