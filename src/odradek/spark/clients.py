"""The clients of this Python process, kept between tasks and micro-batches, and the event loop they live on.

Spark's worker processes are reused, so connections made by one task serve the next. The loop runs only while a caller
waits for it: no thread competes with the decoding for the interpreter, and what was asked for arrives meanwhile in the
socket's buffer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Collection, Coroutine
from typing import Any, Final, TypeVar

from odradek.client.consumer.consumer import Consumer
from odradek.client.producer.producer import Producer
from odradek.client.producer.transactions import State, TransactionalProducer
from odradek.spark.lease_connections import Connections

T = TypeVar("T")
Options = tuple[tuple[str, Any], ...]
"""Client options, hashable: the key under which a client is kept."""

_KEPT: Final = 16
SINGLE_WRITE: Final = "odradek-write-"
"""How transactional ids begin that are used for one write only: their producers are not worth keeping for long."""


class _Process:
    """The loop and clients of one process and one thread; a forked process makes its own."""

    __slots__ = ("consumers", "leases", "loop", "pid", "producers", "transactional")

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.consumers: dict[Options, Consumer] = {}
        self.producers: dict[Options, Producer] = {}
        self.transactional: dict[Options, TransactionalProducer] = {}
        self.leases = Connections()


_local = threading.local()


def _process() -> _Process:
    known: _Process | None = getattr(_local, "process", None)
    if known is None or known.pid != os.getpid():
        known = _local.process = _Process()
    return known


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, on this thread's loop."""
    return _process().loop.run_until_complete(work)


def start(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Begin a coroutine: what it sends first is on its way when this returns. `finish` waits for it."""
    loop = _process().loop
    task = loop.create_task(work)
    turn()
    return task


def turn() -> None:
    """Let the loop handle what has arrived, without waiting."""
    _process().loop.run_until_complete(asyncio.sleep(0))


def run_for(tasks: Collection[asyncio.Task[Any]], seconds: float) -> None:
    """Let the loop run until these tasks are done, but no longer than that."""
    _process().loop.run_until_complete(asyncio.wait(tasks, timeout=seconds))


def finish(task: asyncio.Task[T]) -> T:
    """The result of a completed task. Raises its exception."""
    return _process().loop.run_until_complete(task)


def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task whose result is no longer wanted."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        _process().loop.run_until_complete(task)


def leases() -> Connections:
    """Connections to lease servers, for `run`."""
    return _process().leases


def consumer(options: Options) -> Consumer:
    """A consumer without a group for these options; kept for the next who asks."""
    process = _process()
    found = process.consumers.pop(options, None)
    if found is None:
        found = Consumer(**{**dict(options), "group_id": None, "allow_auto_create_topics": False})
        process.loop.run_until_complete(found.start())
        if len(process.consumers) >= _KEPT:
            oldest = process.consumers.pop(next(iter(process.consumers)))
            process.loop.run_until_complete(oldest.close())
    process.consumers[options] = found
    return found


def producer(options: Options) -> Producer:
    """A producer for these options; kept for the next who asks. `drop_producer` after it failed."""
    process = _process()
    found = process.producers.pop(options, None)
    if found is None:
        found = Producer(**dict(options))
        process.loop.run_until_complete(found.start())
        if len(process.producers) >= _KEPT:
            oldest = process.producers.pop(next(iter(process.producers)))
            process.loop.run_until_complete(oldest.close())
    process.producers[options] = found
    return found


def drop_producer(options: Options) -> None:
    """Close a producer without sending what it still has."""
    process = _process()
    found = process.producers.pop(options, None)
    if found is not None:
        process.loop.run_until_complete(found.close(flush=False))


def transactional(options: Options) -> TransactionalProducer:
    """A transactional producer for these options, neither initialized nor with an identity of its own; kept."""
    process = _process()
    found = process.transactional.pop(options, None)
    if found is not None and found.state is State.FATAL:
        process.loop.run_until_complete(found.producer.close(flush=False))
        found = None
    if found is None:
        for each in list(process.transactional):
            if str(dict(each).get("transactional_id")).startswith(SINGLE_WRITE):
                drop_transactional(each)
        found = TransactionalProducer(**dict(options))
        process.loop.run_until_complete(found.start())
        if len(process.transactional) >= _KEPT:
            oldest = process.transactional.pop(next(iter(process.transactional)))
            process.loop.run_until_complete(oldest.producer.close(flush=False))
    process.transactional[options] = found
    return found


def drop_transactional(options: Options) -> None:
    """Close a transactional producer without ending its transaction, which is the driver's to decide."""
    process = _process()
    found = process.transactional.pop(options, None)
    if found is not None:
        process.loop.run_until_complete(found.producer.close(flush=False))
