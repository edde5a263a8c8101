"""Takes fetched records from the partitions of a consumer, so that each partition gets its turn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from odradek.client.consumer.columns import ColumnReader
from odradek.client.consumer.positions import PartitionState, RecordReader
from odradek.client.model import ConsumerRecord
from odradek.records.topic_partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

States = Mapping[TopicPartition, PartitionState]


class Turns:
    """Each call begins with another partition."""

    __slots__ = ("_turn",)

    def __init__(self) -> None:
        self._turn = 0

    def take(self, states: States, limit: int, reader: RecordReader) -> list[ConsumerRecord[Any, Any]]:
        """Up to `limit` fetched records; the positions move past them.

        Raises CorruptRecords and what deserializers raise, but only if no records come before.
        """
        taken: list[ConsumerRecord[Any, Any]] = []
        for state in self._in_turn(states):
            while len(taken) < limit and not state.pause and state.has_position and state.has_records:
                try:
                    records = state.take(limit - len(taken), reader)
                except Exception:
                    # Positions are after the records taken so far; the next call meets the failure again.
                    if not taken:
                        raise
                    return taken
                if not records:
                    break
                taken = taken + records if taken else list(records)
            if len(taken) >= limit:
                break
        return taken

    def take_tables(self, states: States, batch_rows: int, reader: ColumnReader) -> list[pa.Table]:
        """Tables of fetched answers, up to the answer with which they have `batch_rows` rows. Raises as `take`."""
        tables: list[pa.Table] = []
        rows = 0
        for state in self._in_turn(states):
            while rows < batch_rows and not state.pause and state.has_position:
                before = state.position, state.position_epoch
                taken = state.take_chunk()
                if taken is None:
                    break
                try:
                    table = reader.read(state.key, *taken)
                except Exception:
                    # Positions are after the tables taken so far; the next call meets the failure again.
                    state.seek(*before)
                    if not tables:
                        raise
                    return tables
                if table.num_rows:
                    tables.append(table)
                    rows += table.num_rows
        return tables

    def _in_turn(self, states: States) -> Iterable[PartitionState]:
        self._turn += 1
        found = list(states.values())
        first = self._turn % len(found) if found else 0
        return found[first:] + found[:first]
