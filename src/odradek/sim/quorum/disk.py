"""The disk of one simulated replica: `quorum-state`, the log with its sync boundary, and one snapshot."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from odradek.kraft.checkpoints import CheckpointId
from odradek.kraft.metadata_observer import BEGINNING, LogEnd
from odradek.kraft.raft.log_index import LogIndex
from odradek.kraft.raft.voter_history import VoterHistory
from odradek.kraft.raft.voters import VoterSet
from odradek.sim.quorum.voter_records import to_control, to_voters
from odradek.wire.messages.quorum_state import QuorumStateData


class Entry(NamedTuple):
    """A record: its epoch, and the value of a client or the mark of a leader."""

    epoch: int
    value: str


class QuorumDisk:
    """`entries` are what the process sees from `start` on, `durable` is what a power loss leaves for certain."""

    def __init__(self, directory: int = 0, formatted: tuple[str, ...] = ()) -> None:
        self.state = QuorumStateData(leader_epoch=0)
        self.start: LogEnd = BEGINNING
        self.entries: list[Entry] = []
        self.durable: list[Entry] = []
        self.snapshot: tuple[Entry, ...] = ()
        """All records below `start`."""
        self.part = b""
        """The bytes of a snapshot that is being fetched."""
        self.directory = directory
        """The number of the directory id; 0: the replica has none."""
        self.formatted = formatted
        """The control records that the directory was formatted with."""

    @property
    def end(self) -> LogEnd:
        """The end of the log."""
        epoch = self.entries[-1].epoch if self.entries else self.start.epoch
        return LogEnd(self.start.offset + len(self.entries), epoch)

    def entry(self, offset: int) -> Entry:
        """The record at this offset."""
        inside = offset - self.start.offset
        return self.snapshot[offset] if inside < 0 else self.entries[inside]

    def has_durably(self, offset: int, entry: Entry) -> bool:
        """Whether a power loss leaves this record at its offset."""
        inside = offset - self.start.offset
        if inside < 0:
            return self.snapshot[offset] == entry
        return inside < len(self.durable) and self.durable[inside] == entry

    def truncate_to(self, offset: int) -> None:
        """Remove the records from this offset on; not durable before the next sync."""
        del self.entries[max(0, offset - self.start.offset) :]

    def sync(self, end: LogEnd) -> None:
        """Make the log below this end durable, as far as it still is the same."""
        count = end.offset - self.start.offset
        has_more = len(self.durable) > count and self.durable == self.entries[: len(self.durable)]
        if 0 <= count <= len(self.entries) and not has_more:
            self.durable = self.entries[:count]

    def begin_at(self, snapshot: CheckpointId) -> None:
        """Replace the records below the end of a snapshot by it."""
        count = snapshot.end_offset - self.start.offset
        self.snapshot += tuple(self.entries[:count])
        self.entries, self.durable = self.entries[count:], self.durable[count:]
        self.start = LogEnd(*snapshot)

    def install(self, snapshot: CheckpointId, content: tuple[Entry, ...]) -> None:
        """Replace the complete log by a snapshot."""
        self.snapshot, self.start = content, LogEnd(*snapshot)
        self.entries, self.durable = [], []

    def lose_power(self, random: Random) -> None:
        """Keep what is durable, and some of the rest."""
        common = 0
        for ours, durable in zip(self.entries, self.durable, strict=False):
            if ours != durable:
                break
            common += 1
        if common < len(self.durable) and random.random() < 0.5:
            self.entries = list(self.durable)
        else:
            least = min(len(self.durable), common)
            self.entries = self.entries[: random.randint(least, max(least, len(self.entries)))]
        self.part = b""

    def open(self, snapshot_size: int) -> LogIndex:
        """Sync the log, and index it as a process does that starts."""
        self.durable = list(self.entries)
        history = VoterHistory()
        first = [*self.formatted, *(entry.value for entry in self.snapshot)]
        controls = [found for each in first if (found := to_control(each)) is not None]
        history.replace_by(self.start.offset, controls)
        for offset, entry in enumerate(self.entries, self.start.offset):
            history.append(offset, to_control(entry.value))
        epochs: list[tuple[int, int]] = []
        for offset, entry in enumerate(self.entries, self.start.offset):
            if not epochs or epochs[-1][0] != entry.epoch:
                epochs.append((entry.epoch, offset))
        return LogIndex(
            start=self.start,
            epochs=epochs,
            end_offset=self.end.offset,
            snapshot_size=snapshot_size,
            history=history,
        )

    # --- voters ---

    def voters(self) -> list[tuple[int, VoterSet]]:
        """The sets of voters in the log by offset, the oldest first; -1 is the offset of the formatted ones."""
        first = [(-1, each) for each in self.formatted]
        values = [*self.snapshot, *self.entries]
        listed = first + [(offset, entry.value) for offset, entry in enumerate(values)]
        return [(offset, found) for offset, value in listed if (found := to_voters(value)) is not None]
