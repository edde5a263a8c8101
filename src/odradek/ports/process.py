"""What the operating system knows of this process (processor time, memory, descriptors), and signals to children."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import time
from typing import NamedTuple, Protocol

from odradek.ports.clock import process_age


class ProcessFigures(NamedTuple):
    """One reading; -1 where the platform has none."""

    cpu_s: float
    """User and system time of all threads, in seconds."""
    loop_cpu_s: float
    """The same of the thread that asks, which is that of the event loop."""
    resident_bytes: int
    open_descriptors: int
    most_descriptors: int
    started_s: float
    """Start of the process, in seconds since the epoch."""
    read_bytes: int
    """Bytes read from storage."""
    written_bytes: int
    """Bytes written to storage, or to be written."""


class Process(Protocol):
    """The process that a broker runs in."""

    def figures(self) -> ProcessFigures:
        """Read all figures; takes some 50 µs."""
        ...

    def loop_cpu_s(self) -> float:
        """Processor time of the calling thread, in seconds."""
        ...


def signal_child(child: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal to a child process, unless it has ended.

    The process's own method looks first whether it has ended, and if it has just done so, takes the exit status away
    from asyncio's watcher, which then reports 255.
    """
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, number)


def _io_bytes() -> tuple[int, int]:
    try:
        with open("/proc/self/io", "rb") as file:
            found = dict(line.split(b": ") for line in file.read().splitlines())
        return int(found[b"read_bytes"]), int(found[b"write_bytes"])
    except (OSError, KeyError, ValueError):
        return -1, -1


def _open_descriptors() -> int:
    """The number of open descriptors. Raises OSError without /proc."""
    # Linux reports it as the folder's size since 6.2: to list 10,000 of them takes more than a millisecond.
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))


class SystemProcess:
    """This process, by /proc where there is one."""

    __slots__ = ()

    def loop_cpu_s(self) -> float:
        """Implements Process."""
        return time.thread_time()

    def figures(self) -> ProcessFigures:
        """Implements Process."""
        resident = descriptors = -1
        try:
            with open("/proc/self/statm", "rb") as file:
                resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            descriptors = _open_descriptors()
        except (OSError, ValueError):
            resident = descriptors = -1
        read_bytes, written_bytes = _io_bytes()
        return ProcessFigures(
            time.process_time(),
            time.thread_time(),
            resident,
            descriptors,
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            time.time() - process_age(),
            read_bytes,
            written_bytes,
        )
