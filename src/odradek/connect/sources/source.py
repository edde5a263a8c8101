"""The interface of sources: where records of topics come from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from odradek.connect.model import SourceRecord


class StoredOffsets:
    """The offsets of a connector by source partition, as the offsets topic has them."""

    __slots__ = ("_by_partition",)

    def __init__(self, by_partition: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """`by_partition` has offsets by the text of `partition_text`."""
        self._by_partition = dict(by_partition or {})

    def of(self, partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The offset of a source partition; None before its first record."""
        return self._by_partition.get(partition_text(partition))

    def items(self) -> list[tuple[dict[str, Any], Mapping[str, Any]]]:
        """(source partition, offset) of all, in order of the partitions' text."""
        return [(json.loads(text), offset) for text, offset in sorted(self._by_partition.items())]

    def set(self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> None:
        """Keep the offset of a source partition; None removes it."""
        text = partition_text(partition)
        if offset is None:
            self._by_partition.pop(text, None)
        else:
            self._by_partition[text] = offset


def partition_text(partition: Mapping[str, Any]) -> str:
    """A source partition as JSON with ordered names: one text for equal partitions."""
    return json.dumps(partition, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class Source(Protocol):
    """One task's connection to the other system. The task calls one method at a time.

    All methods raise TargetAway where the same may succeed later, ConnectError where it will not.
    """

    async def open(self, offsets: StoredOffsets) -> None:
        """Connect, and continue at the offsets. It is called again after a failed write."""
        ...

    async def poll(self) -> Sequence[SourceRecord]:
        """The next records; none if there are no new ones now. They are written in one transaction."""
        ...

    async def close(self) -> None:
        """Disconnect. Raises nothing."""
        ...
