"""A process that has imported the tests and the simulator, and forks for every mutant.

Importing the product and collecting its tests takes seconds, the tests of a changed line milliseconds."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import FunctionType
from typing import NamedTuple

import pytest

from tests.mutation import trials
from tests.mutation.operators import MORE_PACKAGES, PACKAGES, Mutant
from tests.mutation.replacement import functions_below, replace_functions
from tests.mutation.workplace import BROKEN, run_child

NOT_REPLACED = 98
"""The mutant is outside functions: a process must import the module with it."""


class Trial(NamedTuple):
    """What a server does with a mutant."""

    mutant: Mutant
    tests: tuple[str, ...]
    """The node ids of those to run, in order, or"""
    seeds: tuple[tuple[int, str], ...]
    """of the simulator, with their profiles."""
    seconds: float
    """The limit."""
    output: Path


class Server:
    """A pytest plugin that answers trials in place of running the collected tests."""

    def __init__(self, connection: Connection, root: Path) -> None:
        self._connection = connection
        self._root = root
        self._functions: dict[str, list[FunctionType]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._import_product()
        items = {item.nodeid: item for item in session.items}
        self._connection.send("ready")
        while True:
            try:
                trial: Trial = self._connection.recv()
            except EOFError:
                return True
            self._connection.send(run_child(partial(self._child, trial, session, items), trial.seconds))

    def _import_product(self) -> None:
        """Import every module here, so that no child has to, and keep the garbage collector away from it all."""
        import odradek
        import odradek.sim.run

        for found in pkgutil.walk_packages(odradek.__path__, "odradek."):
            if found.name.split(".")[1] in (*PACKAGES, *MORE_PACKAGES):
                with contextlib.suppress(ImportError):  # of an optional library
                    importlib.import_module(found.name)
        self._functions = functions_below(str(self._root / "src"))
        gc.collect()
        gc.freeze()

    def _child(self, trial: Trial, session: pytest.Session, items: dict[str, pytest.Item]) -> int:
        try:
            capture = session.config.pluginmanager.getplugin("capturemanager")
            capture.suspend_global_capture(in_=True)
            path = self._root / trial.mutant.path
            before = path.read_bytes()
            if not replace_functions(self._functions.get(str(path), []), str(path), before, trial.mutant.apply(before)):
                return NOT_REPLACED
            file = os.open(trial.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, 1)
            os.dup2(file, 2)
            sys.stdout = sys.stderr = os.fdopen(os.dup(file), "w", buffering=1)
            if trial.seeds:
                return trials.run_seeds(trial.seeds)
            return _run_items(session, [items[name] for name in trial.tests if name in items])
        except BaseException:
            traceback.print_exc()
            return BROKEN


def _run_items(session: pytest.Session, items: Sequence[pytest.Item]) -> int:
    """1 if one of the tests fails."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            print("noticed by", item.nodeid, flush=True)
            return 1
    return 0


def serve(connection: Connection, root: Path, directories: Sequence[str]) -> int:
    """Answer trials until the connection is closed."""
    options = [*trials.OPTIONS, "--timeout=120", "--timeout-method=signal", *directories]
    return int(pytest.main(options, plugins=[Server(connection, root)]))
