"""One checkpoint file of a log directory, replaced as a whole without holding up the event loop for the sync."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.log.directories.checkpoint_formats import format_offsets
from odradek.ports.disk import Disk
from odradek.records.topic_partition import PartitionKey

TEMPORARY = ".tmp"


class CheckpointFile:
    """Writes in the order in which they were asked for: a slow earlier one never replaces a later one."""

    __slots__ = ("_disk", "_issued", "_lane", "_path", "_written", "named")

    def __init__(self, disk: Disk, lane: str, path: str, named: Iterable[PartitionKey] = ()) -> None:
        self._disk = disk
        self._lane = lane
        self._path = path
        self._issued = 0
        self._written = 0
        self.named = set(named)
        """Of whom a start may find something in the file, whenever this process ends."""

    def write_now(self, offsets: Mapping[PartitionKey, int]) -> None:
        """In this thread, synced. Raises OSError."""
        self._issued += 1
        self._written = self._issued
        self.named.update(offsets)
        self._disk.write_atomic(self._path, format_offsets(offsets))
        self.named = set(offsets)

    async def write(self, offsets: Mapping[PartitionKey, int]) -> None:
        """Synced behind the Disk port. Raises OSError."""
        self._issued += 1
        number = self._issued
        # Formatted behind the port, too: tens of thousands of lines take tens of ms.
        taken, named = dict(offsets), set(offsets)
        self.named |= named
        temporary = f"{self._path}.{number}{TEMPORARY}"
        await self._disk.run(self._lane, self._prepare, temporary, taken)
        if number < self._written:
            self._disk.remove(temporary)
        else:
            self._written = number
            self._disk.rename(temporary, self._path)
        await self._disk.run(self._lane, self._disk.sync_directory, self._path.rpartition("/")[0] or "/")
        if number == self._issued:
            self.named = named

    def _prepare(self, path: str, offsets: Mapping[PartitionKey, int]) -> None:
        data = format_offsets(offsets)
        file = self._disk.open(path, create=True)
        try:
            file.truncate(0)
            file.append((data,))
            file.sync()
        finally:
            file.close()
