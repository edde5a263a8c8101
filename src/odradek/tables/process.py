"""Many tables in one process, until they are stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import ClientError
from odradek.connect.client_failures import failure_of
from odradek.connect.errors import ConnectError, TargetAway
from odradek.connect.retries import Retries
from odradek.tables.delta import DeltaStore
from odradek.tables.iceberg import IcebergStore
from odradek.tables.runner import OnCommit, TableRunner
from odradek.tables.specification import TableSpec
from odradek.tables.store import TableStore
from odradek.wire.errors import KafkaError

logger = logging.getLogger(__name__)

_CONSUMER: Final[Mapping[str, Any]] = {
    "isolation_level": "read_committed",
    "enable_auto_commit": False,
    # positions are the table's; a lost one is the runner's to judge
    "auto_offset_reset": "none",
    "allow_auto_create_topics": False,
}


LOOK_S: Final = 30.0
"""How often further tables are looked for."""
FindTables = Callable[[], Coroutine[Any, Any, Mapping[str, TableSpec]]]
"""The tables that are wanted now, by name. Raises ConnectError."""


def store_of(spec: TableSpec) -> TableStore:
    """The table of a specification."""
    return IcebergStore(spec) if spec.is_iceberg else DeltaStore(spec)


async def run_tables(
    specs: Iterable[TableSpec],
    clients: Mapping[str, Any],
    stopping: asyncio.Event,
    on_commit: OnCommit,
    *,
    once: bool = False,
) -> dict[str, ConnectError]:
    """Write the tables until `stopping` is set, or with `once` up to the records that are there now.

    A table that fails ends, and the others continue; the failures by table. `clients` are options of the consumers.
    """
    found = {each.name: each for each in specs}

    async def find() -> Mapping[str, TableSpec]:
        return found

    return await run_found_tables(find, clients, stopping, on_commit, once=once, looks_again=False)


async def run_found_tables(
    find: FindTables,
    clients: Mapping[str, Any],
    stopping: asyncio.Event,
    on_commit: OnCommit,
    *,
    once: bool = False,
    looks_again: bool = True,
) -> dict[str, ConnectError]:
    """As `run_tables`, with the tables that `find` returns; with `looks_again` it is asked for further ones.

    A table whose description changes keeps the one that it was started with. Raises ConnectError if the first call of
    `find` does.
    """
    failures: dict[str, ConnectError] = {}
    started: set[str] = set()

    async def run(spec: TableSpec) -> None:
        try:
            await _run(spec, clients, stopping, on_commit, once=once)
        except ConnectError as error:
            logger.error("table %s stops: %s", spec.name, error)  # noqa: TRY400 - one line, not a trace
            failures[spec.name] = error

    found = await find()
    async with asyncio.TaskGroup() as group:
        while True:
            for name in sorted(found.keys() - started):
                started.add(name)
                group.create_task(run(found[name]), name=f"table-{name}")
            if once or not looks_again or await _is_set_within(LOOK_S, stopping):
                break
            try:
                found = await find()
            except ConnectError as error:
                logger.warning("could not look for further tables: %s; next attempt in %g s", error, LOOK_S)
    return failures


async def _is_set_within(seconds: float, stopping: asyncio.Event) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()
    return stopping.is_set()


async def _run(
    spec: TableSpec, clients: Mapping[str, Any], stopping: asyncio.Event, on_commit: OnCommit, *, once: bool
) -> None:
    """One table with its consumer. Raises ConnectError."""
    async with contextlib.AsyncExitStack() as stack:
        consumer = await _started(spec, {**clients, **_CONSUMER, **spec.consumer}, stopping)
        if consumer is None:
            return
        stack.push_async_callback(consumer.close)
        await TableRunner(spec, consumer, store_of(spec), on_commit).run(stopping, once=once)


async def _started(spec: TableSpec, options: Mapping[str, Any], stopping: asyncio.Event) -> Consumer[Any, Any] | None:
    """A consumer once the cluster is there; None if it was stopped before. Raises ConnectError."""
    retries = Retries(spec.policy)
    while not stopping.is_set():
        consumer: Consumer[Any, Any] = Consumer(**options)
        try:
            await consumer.start()
        except (KafkaError, ClientError) as error:
            await consumer.close()
            failure = failure_of(error, f"topic {spec.topic}")
            if not isinstance(failure, TargetAway):
                raise failure from error
            pause_s = retries.pause_s(failure)
            logger.warning("table %s: next attempt in %.1f s: %s", spec.name, pause_s, failure)
            await _is_set_within(pause_s, stopping)
        else:
            return consumer
    return None
