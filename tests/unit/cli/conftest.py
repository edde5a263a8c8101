"""Commands run in the process of the tests: what they configure is undone."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """`odradek serve` adds a handler for a standard error that is closed after the test."""
    loggers = [logging.getLogger(name) for name in ("odradek", "kazoo")]
    before = [(each, list(each.handlers), each.level, each.propagate) for each in loggers]
    yield
    for each, handlers, level, propagate in before:
        each.handlers[:] = handlers
        each.setLevel(level)
        each.propagate = propagate
