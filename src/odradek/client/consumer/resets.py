"""Where a consumer begins: committed offsets, else `auto_offset_reset`; and where it continues after a truncation."""

from __future__ import annotations

from typing import Final

from odradek.client.consumer.fetcher import Fetcher
from odradek.client.durations import BY_DURATION, duration_ms
from odradek.client.errors import NoOffsetForPartition, OffsetOutOfRange
from odradek.client.model import EARLIEST, LATEST, OffsetAndMetadata
from odradek.client.network.cluster import Cluster
from odradek.client.offsets import fetch_committed, list_offsets
from odradek.client.validation import find_truncated
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
        state.want_reset(reset.timestamp())


async def look_up_positions(cluster: Cluster, fetcher: Fetcher, group_id: str | None, reset: OffsetReset) -> None:
    """Find missing positions, and check the others against the log of a new leader.

    Raises NoOffsetForPartition, OffsetOutOfRange, KafkaError, CallTimedOut.
    """
    fresh = [k for k, s in fetcher.states.items() if s.position < 0 and s.reset_to is None]
    committed: dict[TopicPartition, OffsetAndMetadata] = {}
    if fresh and group_id is not None:
        committed = await fetch_committed(cluster, group_id, fresh)
    for key in fresh:
        state = fetcher.states.get(key)
        if state is None or state.position >= 0 or state.reset_to is not None:
            continue  # revoked, or positioned by `seek` meanwhile
        if key in committed:
            state.seek(committed[key].offset, committed[key].leader_epoch)
        elif reset.is_none:
            raise NoOffsetForPartition(f"{key} has no committed offset, and auto_offset_reset is 'none'")
        else:
            state.want_reset(reset.timestamp())
    await _reset(cluster, fetcher)
    states = fetcher.states
    for key, offset in (await find_truncated(cluster, states)).items():
        state = fetcher.states.get(key)
        # If it was reassigned meanwhile, it has another position.
        if state is not None and state is states.get(key):
            if reset.is_none:
                raise OffsetOutOfRange(f"{key} was truncated to {offset}, before position {state.position}")
            state.seek(offset)
    fetcher.poke()


async def _reset(cluster: Cluster, fetcher: Fetcher) -> None:
    while resets := {k: s.reset_to for k, s in fetcher.states.items() if s.reset_to is not None}:
        found = await list_offsets(cluster, resets, isolation_level=fetcher.isolation_level)
        for key, at in found.items():
            state = fetcher.states.get(key)
            if state is None or state.reset_to != resets[key]:
                continue
            if at.offset >= 0:
                state.seek(at.offset)
            else:
                state.want_reset(LATEST)  # no record is that young: begin at the end
