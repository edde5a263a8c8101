"""One table at work: reads its topic, gathers records, commits them with the positions after them, compacts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import ClientError, OffsetOutOfRange
from odradek.connect.client_failures import failure_of
from odradek.connect.errors import ConnectError, PositionMoved, TargetAway
from odradek.connect.retries import Retries
from odradek.connect.worker_thread import WorkerThread
from odradek.records.errors import CorruptRecords
from odradek.records.topic_partition import TopicPartition
from odradek.tables.gathering import Gathered
from odradek.tables.specification import Start, TableSpec
from odradek.tables.store import TableStore, Written
from odradek.wire.errors import KafkaError
from odradek.wire.primitives import ZERO_UUID

logger = logging.getLogger(__name__)

T = TypeVar("T")

NEW_PARTITIONS_S: Final = 30.0
"""How often the runner looks for new partitions."""
_LOOK_S: Final = 0.2

OnCommit = Callable[[str, Written, Mapping[int, int]], None]
"""(table, what was written, positions)."""


class TableRunner:
    """The loop of one table."""

    def __init__(self, spec: TableSpec, consumer: Consumer[Any, Any], store: TableStore, on_commit: OnCommit) -> None:
        """The consumer is started, reads committed records, and belongs to no group."""
        self._spec = spec
        self._consumer = consumer
        self._store = store
        self._on_commit = on_commit
        self._thread = WorkerThread(f"table-{spec.name}")
        self._gathered = Gathered()
        self._tables: AsyncGenerator[Any, None] | None = None
        self._next: asyncio.Task[Any] | None = None
        self._goal: dict[int, int] = {}
        self._topic_id = ZERO_UUID

    async def run(self, stopping: asyncio.Event, *, once: bool = False) -> None:
        """Work until `stopping` is set, or with `once` until the records that are there now are in the table.

        Raises ConnectError.
        """
        loop = asyncio.get_running_loop()
        try:
            await self._attempt(self._locate, stopping)
            if once:
                await self._attempt(self._set_goal, stopping)
            began = looked = compacted = loop.time()
            while not stopping.is_set():
                had = bool(self._gathered.ends)
                left_s = self._spec.commit_interval_s - (loop.time() - began) if had else _LOOK_S
                await self._attempt(partial(self._read, min(max(left_s, 0.0), _LOOK_S)), stopping)
                now = loop.time()
                if not had:
                    began = now
                is_complete = once and self._has_reached_goal()
                if self._gathered.ends and (is_complete or self._is_due(now - began)):
                    await self._attempt(self._commit, stopping)
                if once and not self._gathered.ends and self._has_reached_goal():
                    return
                if now - looked >= NEW_PARTITIONS_S:
                    looked = now
                    await self._attempt(self._look_for_partitions, stopping)
                if now - compacted >= self._spec.compact_interval_s:
                    compacted = now
                    await self._compact()
            await self._commit_last()
        finally:
            await self._close_tables()
            await self._thread.run(self._store.close)
            await self._thread.close()

    # --- the topic ---

    async def _locate(self) -> None:
        """Drop what was gathered, and continue at the table's positions; a new table gets its first ones."""
        await self._close_tables()
        self._gathered = Gathered()
        info = await self._consumer.cluster.topic(self._spec.topic)
        self._topic_id = info.topic_id
        partitions = [TopicPartition(self._spec.topic, each.partition) for each in info.partitions]
        numbers = sorted(each.partition for each in partitions)
        found = dict(await self._thread.run(self._store.open, numbers, info.topic_id))
        begins = await self._consumer.beginning_offsets(partitions)
        ends = await self._consumer.end_offsets(partitions)
        missing = [each for each in partitions if each.partition not in found]
        if missing:
            first = await self._first_offsets(missing, begins, ends, is_new=not found)
            await self._thread.run(self._store.begin, first)
            found |= first
        for each in partitions:
            at = found[each.partition]
            if at > ends[each]:
                raise ConnectError(
                    f"table {self._spec.name}: the table has position {at} of {each}, whose log ends at {ends[each]}: "
                    "the topic was deleted and created again, or it is that of another cluster"
                )
            if at < begins[each]:
                self._lost(each, at, begins[each])
                found[each.partition] = begins[each]
        self._consumer.assign(partitions)
        for each in partitions:
            self._consumer.seek(each, found[each.partition])
        self._tables = self._consumer.arrow()

    def _lost(self, partition: TopicPartition, at: int, begin: int) -> None:
        """Records were deleted before they were read. Raises ConnectError unless they may be skipped."""
        line = f"table {self._spec.name}: {partition} begins at {begin}, and records from {at} on were not read"
        if not self._spec.skips_lost:
            raise ConnectError(f"{line}: data.loss=skip would continue without them")
        logger.warning("%s; it continues without them", line)

    async def _first_offsets(
        self,
        partitions: list[TopicPartition],
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        *,
        is_new: bool,
    ) -> dict[int, int]:
        """Where partitions without a position begin: as the specification says in a new table, else with the first."""
        start = self._spec.start if is_new else Start("earliest")
        if start.kind == "latest":
            return {each.partition: ends[each] for each in partitions}
        if start.kind == "time":
            at = await self._consumer.offsets_for_times(dict.fromkeys(partitions, start.time_ms))
            found = {each: at.get(each) for each in partitions}
            return {each.partition: ends[each] if moment is None else moment.offset for each, moment in found.items()}
        wanted = {each.partition: start.offsets.get(each.partition, begins[each]) for each in partitions}
        unknown = sorted(start.offsets.keys() - wanted.keys()) if start.kind == "offsets" else []
        if unknown:
            raise ConnectError(
                f"table {self._spec.name}: start: topic {self._spec.topic} has no partition {unknown[0]}"
            )
        for each in partitions:
            if not begins[each] <= wanted[each.partition] <= ends[each]:
                raise ConnectError(
                    f"table {self._spec.name}: start: {each} has the offsets {begins[each]} to {ends[each]}, "
                    f"not {wanted[each.partition]}"
                )
        return wanted

    async def _set_goal(self) -> None:
        partitions = self._consumer.assignment()
        self._goal = {each.partition: end for each, end in (await self._consumer.end_offsets(partitions)).items()}

    def _has_reached_goal(self) -> bool:
        if self._next is not None and self._next.done():
            return False
        positions = self._positions()
        return all(positions.get(partition, -1) >= end for partition, end in self._goal.items())

    def _positions(self) -> dict[int, int]:
        return {each.partition: at.offset for each, at in self._consumer.positions().items()}

    async def _look_for_partitions(self) -> None:
        await self._consumer.cluster.refresh_metadata()
        info = await self._consumer.cluster.topic(self._spec.topic)
        if self._is_created_again():
            await self._write_and_locate()
        elif {each.partition for each in info.partitions} != {each.partition for each in self._consumer.assignment()}:
            await self._commit()
            await self._locate()

    # --- reading and writing ---

    async def _read(self, wait_s: float) -> None:
        """Gather what comes within a moment."""
        if self._tables is None:
            await self._locate()
        if self._next is None:
            assert self._tables is not None
            self._next = asyncio.ensure_future(anext(self._tables))
        await asyncio.wait((self._next,), timeout=wait_s)
        if self._next.done():
            task, self._next = self._next, None
            try:
                table = task.result()
                if self._is_created_again():
                    await self._write_and_locate()
                else:
                    self._gathered.add(table)
            except OffsetOutOfRange:
                # deleted while they were being read
                await self._write_and_locate()
            except Exception:
                # an iteration ends with its failure; the next one continues at the consumer's positions
                self._tables = self._consumer.arrow()
                raise

    def _is_created_again(self) -> bool:
        """Whether the topic has another id than the one whose positions the table has."""
        now = self._consumer.cluster.metadata.topic_id(self._spec.topic)
        return ZERO_UUID not in (now, self._topic_id) and now != self._topic_id

    async def _write_and_locate(self) -> None:
        """Write what was gathered, which may be in the log no longer, and compare the positions with the log again."""
        if self._gathered.ends:
            await self._write_gathered()
        await self._locate()

    def _is_due(self, waited_s: float) -> bool:
        return self._gathered.records >= self._spec.commit_records or waited_s >= self._spec.commit_interval_s

    async def _commit(self) -> None:
        """Write what was gathered."""
        if not self._gathered.ends:
            return
        if not self._is_created_again() and (self._next is None or not self._next.done()):
            # no table is on its way, so that the positions are behind gathered records and markers only
            self._gathered.advance(self._positions())
        await self._write_gathered()

    async def _write_gathered(self) -> None:
        ends = dict(self._gathered.ends)
        written = await self._thread.run(self._write, self._gathered.tables, ends)
        self._gathered = Gathered()
        self._on_commit(self._spec.name, written, ends)

    async def _commit_last(self) -> None:
        """Write what is left at a stop. If that fails, the next run reads it again."""
        try:
            await self._commit()
        except (PositionMoved, TargetAway, KafkaError, ClientError) as error:
            logger.info("table %s: records that were read last are left to the next run: %s", self._spec.name, error)

    def _write(self, tables: list[Any], ends: dict[int, int]) -> Written:
        records = [each for table in tables for each in self._spec.decoder.decode(table)]
        return self._store.write(records, ends)

    async def _compact(self) -> None:
        try:
            joined = await self._thread.run(self._store.compact)
        except (PositionMoved, TargetAway) as error:
            logger.info("table %s: files are joined another time: %s", self._spec.name, error)
            return
        except ConnectError as error:
            # records are still written
            logger.warning("table %s: files are not joined: %s", self._spec.name, error)
            return
        if joined:
            logger.info("table %s: joined %d small files", self._spec.name, joined)

    async def _attempt(self, work: Callable[[], Awaitable[T]], stopping: asyncio.Event) -> T | None:
        """Call the function until the cluster and the store are there; None if it was stopped before."""
        retries = Retries(self._spec.policy)
        while not stopping.is_set():
            try:
                try:
                    return await work()
                except (KafkaError, ClientError) as error:
                    raise failure_of(error, f"topic {self._spec.topic}") from error
                except CorruptRecords as error:
                    raise ConnectError(f"topic {self._spec.topic}: {error}") from error
            except PositionMoved as error:
                logger.warning("table %s: another runner writes to it: %s", self._spec.name, error)
                work = self._relocate
            except TargetAway as error:
                pause_s = retries.pause_s(error)
                logger.warning("table %s: next attempt in %.1f s: %s", self._spec.name, pause_s, error)
                await _wait(stopping, pause_s)
        return None

    async def _relocate(self) -> Any:
        await self._locate()

    async def _close_tables(self) -> None:
        """End the iteration over the consumer's tables; one that has been read and not gathered is dropped."""
        task, self._next = self._next, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        tables, self._tables = self._tables, None
        if tables is not None:
            await tables.aclose()


async def _wait(stopping: asyncio.Event, seconds: float) -> None:
    """Wait until the time is over or the event is set."""
    waiting = asyncio.ensure_future(stopping.wait())
    await asyncio.wait((waiting,), timeout=seconds)
    waiting.cancel()
