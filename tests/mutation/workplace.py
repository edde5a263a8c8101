"""A temporary copy of the repository, and processes that test a mutant in it."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.mutation.operators import Mutant

ROOT: Final = Path(__file__).resolve().parents[2]
_COPIED: Final = ("src", "tests", "bench", "examples", "docs", "deploy", "pyproject.toml", "README.md", "dev")
_MEMORY_BYTES: Final = 4 << 30
"""Of a process that tests a mutant: one that grows without end is stopped there."""

SURVIVED: Final = 0
TIMED_OUT: Final = -1
BROKEN: Final = 99
"""An exception came out of the work: what it was to find out is not known."""
_children: set[int] = set()


def kill_children() -> None:
    """End every process that is still testing a mutant."""
    for child in tuple(_children):
        _kill(child, signal.SIGTERM)


def _end(*_: object) -> None:
    kill_children()
    os._exit(143)


def _kill(child: int, number: signal.Signals) -> None:
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(child, number)


class Workplace:
    """A copy in which one module at a time is changed."""

    def __init__(self, home: Path, repository: Path = ROOT) -> None:
        self.root = home / "copy"
        if self.root.exists():
            shutil.rmtree(self.root)
        self.root.mkdir(parents=True)
        ignored = shutil.ignore_patterns("__pycache__", ".hypothesis", "*.sqlite", "node_modules")
        for name in _COPIED:
            source = repository / name
            if source.is_dir():
                shutil.copytree(source, self.root / name, ignore=ignored)
            elif source.exists():
                shutil.copy2(source, self.root / name)

    @contextlib.contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """The copy has the mutant's change."""
        path = self.root / mutant.path
        before, stat = path.read_bytes(), path.stat()
        path.write_bytes(mutant.apply(before))
        # An older time than any compiled module's source has: the interpreter compiles the changed one.
        os.utime(path, (1, 1))
        try:
            yield
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def run(self, work: Callable[[], int], seconds: float, output: Path) -> int:
        """The result of `work` in a process of its own, or TIMED_OUT.

        The process imports the product from the copy; the caller must not have imported it."""
        return run_child(lambda: self._child(work, output), seconds)

    def start(self, work: Callable[[], int], output: Path) -> int:
        """Start `work` in a process of its own that `kill_children` ends, and return its id."""
        return _fork(lambda: self._server(work, output))

    def _server(self, work: Callable[[], int], output: Path) -> int:
        signal.signal(signal.SIGTERM, _end)
        return self._child(work, output)

    def _child(self, work: Callable[[], int], output: Path) -> int:
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        sys.stdout = sys.stderr = os.fdopen(os.dup(file), "w", buffering=1)
        os.chdir(self.root)
        sys.dont_write_bytecode = True
        sys.path[:] = [str(self.root / "src"), str(self.root), *_without_repository(sys.path)]
        for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "bench", "odradek")]:
            del sys.modules[name]
        return work()


def run_child(work: Callable[[], int], seconds: float) -> int:
    """The result of `work` in a forked process, which has `seconds`, or TIMED_OUT."""
    child = _fork(work)
    try:
        return _wait(child, time.monotonic() + seconds)
    except BaseException:  # also an interrupt: no process stays behind
        _kill(child, signal.SIGKILL)
        raise
    finally:
        _children.discard(child)


def _fork(work: Callable[[], int]) -> int:
    child = os.fork()
    if child == 0:
        status = BROKEN
        try:
            os.setsid()
            _children.clear()
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
            status = work()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _children.add(child)
    return child


def _without_repository(path: list[str]) -> list[str]:
    return [entry for entry in path if Path(entry or ".").resolve() not in (ROOT, ROOT / "src")]


def _wait(child: int, deadline: float) -> int:
    pause = 0.002
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # what it started
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            _kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return TIMED_OUT
        time.sleep(pause)
        pause = min(0.02, pause * 1.5)
