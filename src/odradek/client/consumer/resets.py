"""Where a consumer begins: committed offsets, else `auto_offset_reset`; and where it continues after a truncation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

from odradek.client.consumer.fetcher import Fetcher
from odradek.client.consumer.positions import PartitionState
from odradek.client.durations import BY_DURATION, duration_ms
from odradek.client.errors import CallTimedOut, ClientClosed, NoOffsetForPartition, OffsetOutOfRange
from odradek.client.model import EARLIEST, LATEST, OffsetAndMetadata, OffsetAndTimestamp
from odradek.client.network.cluster import Cluster
from odradek.client.offsets import ask_leaders, fetch_committed, raise_one
from odradek.client.validation import check_positions
from odradek.ports.clock import Clock
from odradek.records.topic_partition import TopicPartition

_NAMED: Final = {"earliest": EARLIEST, "latest": LATEST}


class OffsetReset:
    """The choice of `auto_offset_reset` for partitions without a usable position."""

    __slots__ = ("_clock", "_option")

    def __init__(self, option: str, clock: Clock) -> None:
        self._option = option
        self._clock = clock

    @property
    def is_none(self) -> bool:
        """Whether such a partition is an error."""
        return self._option == "none"

    def timestamp(self) -> int:
        """What ListOffsets is asked for: EARLIEST, LATEST, or the time that lies a duration before now (KIP-1106)."""
        if self._option in _NAMED:
            return _NAMED[self._option]
        return max(0, self._clock.now_ms() - (duration_ms(self._option.removeprefix(BY_DURATION)) or 0))


def reset_out_of_range(fetcher: Fetcher, reset: OffsetReset) -> None:
    """Have positions looked up again that lie outside of their logs. Raises OffsetOutOfRange."""
    for key, offset in fetcher.take_out_of_range().items():
        state = fetcher.states.get(key)
        if state is None or not state.has_position or state.has_records or state.fetch_offset != offset:
            continue
        if reset.is_none:
            raise OffsetOutOfRange(f"{key} has no offset {state.position}, and auto_offset_reset is 'none'")
        state.want_reset(reset.timestamp(), offset)


class PositionLookUp:
    """Finds missing positions, and checks the others against the logs of new leaders, beside the polls.

    What one partition lacks, such as a leader, does not delay the others.
    """

    __slots__ = ("_changed", "_cluster", "_fetcher", "_group_id", "_reset", "_task")

    def __init__(self, cluster: Cluster, fetcher: Fetcher, group_id: str | None, reset: OffsetReset) -> None:
        self._cluster = cluster
        self._fetcher = fetcher
        self._group_id = group_id
        self._reset = reset
        self._task: asyncio.Task[None] | None = None
        # Set, and replaced, when positions were found or the look-up has ended.
        self._changed = asyncio.Event()

    def attend(self) -> None:
        """Begin a look-up if one is needed and none is under way; raise the failure of the last one.

        Raises NoOffsetForPartition, OffsetOutOfRange, KafkaError, ClientError, and CallTimedOut if no partition has a
        position: while others are read, the failure is only logged.
        """
        task = self._task
        if task is not None and task.done():
            self._task = None
            if task.cancelled():
                raise ClientClosed("the consumer was closed")
            failure = task.exception()
            is_partial = any(state.has_position for state in self._fetcher.states.values())
            if failure is not None and not (is_partial and isinstance(failure, CallTimedOut)):
                raise failure
        if self._task is None and self._is_needed():
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._ended)

    async def wait_for_change(self) -> None:
        """Wait until positions were found or the look-up has ended. Raises as `attend`."""
        changed = self._changed
        self.attend()
        await changed.wait()

    async def close(self) -> None:
        """Give the look-up up."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _is_needed(self) -> bool:
        metadata = self._cluster.metadata
        return any(
            not state.has_position or state.needs_validation(metadata.leader_epoch(*key))
            for key, state in self._fetcher.states.items()
        )

    def _ended(self, _task: asyncio.Task[None]) -> None:
        self._notify()
        self._fetcher.wake_waiter()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _run(self) -> None:
        await self._cluster.retrying(self._look_up, "look-up of positions")
        self._fetcher.poke()

    async def _look_up(self) -> None:
        """Ask once for what is missing now, also of partitions that were assigned since the last attempt."""
        cluster, fetcher = self._cluster, self._fetcher
        missing = [key for key, state in fetcher.states.items() if not state.has_position]
        failures = await check_positions(cluster, fetcher.states, self._truncated)
        await self._begin_at_committed()
        while resets := {key: s.reset_to for key, s in fetcher.states.items() if s.reset_to is not None}:
            answered = partial(self._continue_at, resets)
            failed = await ask_leaders(cluster, resets, fetcher.isolation_level, answered)
            if failed:
                failures.update(failed)
                break
        if any(key in fetcher.states and fetcher.states[key].has_position for key in missing):
            # New positions are valid for the leader that gave them, or are checked as well.
            failures.update(await check_positions(cluster, fetcher.states, self._truncated))
        # A partition that was revoked meanwhile lacks nothing.
        raise_one({key: error for key, error in failures.items() if key in fetcher.states})

    async def _begin_at_committed(self) -> None:
        """Raises NoOffsetForPartition, KafkaError, CallTimedOut."""
        states = self._fetcher.states
        fresh = [key for key, state in states.items() if state.position < 0 and state.reset_to is None]
        committed: dict[TopicPartition, OffsetAndMetadata] = {}
        if fresh and self._group_id is not None:
            committed = await fetch_committed(self._cluster, self._group_id, fresh)
        without: list[TopicPartition] = []
        for key in fresh:
            state = self._fetcher.states.get(key)
            if state is None or state.position >= 0 or state.reset_to is not None:
                continue  # revoked, or positioned by `seek` meanwhile
            if key in committed:
                state.seek(committed[key].offset, committed[key].leader_epoch)
            elif self._reset.is_none:
                without.append(key)
            else:
                state.want_reset(self._reset.timestamp())
        if committed:
            self._notify()
        if without:
            raise NoOffsetForPartition(f"{without[0]} has no committed offset, and auto_offset_reset is 'none'")

    def _continue_at(
        self, resets: Mapping[TopicPartition, int], found: Mapping[TopicPartition, OffsetAndTimestamp]
    ) -> None:
        for key, at in found.items():
            state = self._fetcher.states.get(key)
            if state is None or state.reset_to != resets[key]:
                continue
            if resets[key] == EARLIEST and state.keeps_position(at.offset):
                state.seek(state.position, state.position_epoch)
            elif at.offset >= 0:
                state.seek(at.offset)
            else:
                state.want_reset(LATEST)  # no record is that young: begin at the end
        self._notify()
        self._fetcher.poke()

    def _truncated(self, state: PartitionState, offset: int) -> None:
        """Continue at the end that another leader's log has. Raises OffsetOutOfRange."""
        # If it was reassigned meanwhile, it has another position.
        if self._fetcher.states.get(state.key) is state:
            if self._reset.is_none:
                raise OffsetOutOfRange(f"{state.key} was truncated to {offset}, before position {state.position}")
            state.seek(offset)
