"""The voter sets and kraft.versions of a metadata log by the offsets of their records, committed or not. Pure.

A record is in force as soon as it is appended, and no longer when it is truncated.
Source: KIP-853; Kafka's `KRaftControlRecordStateMachine`, `VoterSetHistory`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.raft.voters import STATIC_VOTERS, VoterSet
from odradek.wire.messages.control_records import KRaftVersionRecord, VotersRecord

BEFORE_THE_LOG: Final = -1
"""The offset of the records in the snapshot with which a directory is formatted, which ends at offset 0."""


class VoterHistory:
    """Empty for a log of kraft.version 0: then the voters are those of the settings."""

    def __init__(self) -> None:
        self._sets: list[tuple[int, VoterSet]] = []
        self._versions: list[tuple[int, int]] = []

    # --- queries ---

    @property
    def voters(self) -> VoterSet | None:
        """The newest voter set; None without a VotersRecord."""
        return self._sets[-1][1] if self._sets else None

    @property
    def former_voters(self) -> VoterSet | None:
        """The voter set before the newest one."""
        return self._sets[-2][1] if len(self._sets) > 1 else None

    @property
    def voters_offset(self) -> int | None:
        """The offset of the newest VotersRecord; None without one."""
        return self._sets[-1][0] if self._sets else None

    @property
    def version(self) -> int:
        """The newest kraft.version."""
        return self._versions[-1][1] if self._versions else STATIC_VOTERS

    # --- changes of the log ---

    def append(self, offset: int, control: Any) -> None:
        """Take a control record that was appended, of any kind. Raises CorruptMetadata."""
        if isinstance(control, KRaftVersionRecord):
            self._versions.append((offset, control.k_raft_version))
        elif isinstance(control, VotersRecord):
            try:
                found = VoterSet.from_record(control)
            except ValueError as error:
                raise CorruptMetadata(f"the VotersRecord at offset {offset}: {error}") from error
            self._sets.append((offset, found))

    def truncate_to(self, offset: int) -> None:
        """Undo the records from this offset on."""
        self._sets = [each for each in self._sets if each[0] < offset]
        self._versions = [each for each in self._versions if each[0] < offset]

    def replace_by(self, end_offset: int, controls: Iterable[Any]) -> None:
        """Begin with the control records of a snapshot that ends at this offset."""
        self._sets, self._versions = [], []
        for each in controls:
            self.append(end_offset - 1, each)

    def forget_before(self, start_offset: int) -> None:
        """Drop the sets that a log which begins at this offset no longer needs."""
        for entries in (self._sets, self._versions):
            superseded = [index for index, (offset, _) in enumerate(entries) if offset < start_offset][:-1]
            del entries[: len(superseded)]
