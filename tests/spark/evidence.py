"""What processes of Spark say when a test of theirs fails: logs, checkpoint, threads, as notes of the failure."""

from __future__ import annotations

import os
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

_LINES: Final = 30
_SIZE: Final = 6_000
_LOGS: Final = ("*.log", "worker-*/app-*/*/stderr")
"""Of the driver or server, of master and workers; of each executor, in the folders of the workers."""
_THREADS: Final = ("stream execution thread", "Executor task launch worker", "task-result-getter", "dispatcher-event")
"""Beginnings of names of Java's threads whose stacks show where a query waits."""


@contextmanager
def explained(folder: Path, *urls: str) -> Iterator[None]:
    """Add to a failure the ends of logs and checkpoints below `folder`, answers of the URLs, and processes that run."""
    try:
        yield
    except (AssertionError, subprocess.TimeoutExpired, pytest.fail.Exception) as error:
        for title, text in _found(folder, urls):
            error.add_note(f"--- {title}\n{text}")
        raise


def _found(folder: Path, urls: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield "load of the machine", f"{os.getloadavg()}"
    for url in urls:
        yield url, _answer(url)
    yield from _checkpoints(folder)
    for pattern in _LOGS:
        for path in sorted(folder.glob(pattern)):
            yield f"end of {path.relative_to(folder)}", _end(path.read_text(errors="replace"))
    yield from _running()


def _answer(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())
    except OSError as error:
        return repr(error)


def _checkpoints(folder: Path) -> Iterator[tuple[str, str]]:
    """Which micro-batches were planned, and which are done."""
    for offsets in sorted(folder.rglob("offsets")):
        for log in (offsets, offsets.with_name("commits")):
            batches = sorted((each for each in log.glob("[0-9]*")), key=lambda each: int(each.name))
            if batches:
                yield f"batches 0 to {batches[-1].name}, the last of {log}", _end(batches[-1].read_text())


def _running() -> Iterator[tuple[str, str]]:
    """The processes below this one, and of those of Java the threads that work for a query."""
    done = subprocess.run(["ps", "-eo", "pid=,ppid=,stat=,time=,args="], capture_output=True, text=True, check=True)
    below = {os.getpid()}
    for pid, parent, state, cpu, command in (line.split(maxsplit=4) for line in done.stdout.splitlines()):
        if int(parent) not in below:
            continue
        below.add(int(pid))
        yield f"process {pid}", f"{state}, {cpu} of CPU: {command[-200:]}"
        if Path(command.split()[0]).name == "java":
            yield f"threads of process {pid}", _threads(int(pid))


def _threads(pid: int) -> str:
    """The stacks of a Java process, as jstack of a JDK prints them."""
    try:
        done = subprocess.run(["jstack", str(pid)], capture_output=True, text=True, timeout=30)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        return repr(error)
    stacks = done.stdout.split("\n\n")
    return "\n".join(_end(each) for each in stacks if each.startswith(tuple(f'"{name}' for name in _THREADS)))


def _end(text: str) -> str:
    return "\n".join(text.splitlines()[-_LINES:])[-_SIZE:]
