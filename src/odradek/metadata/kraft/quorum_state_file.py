"""The file `quorum-state` in the directory of the metadata log. Source: Kafka's `FileQuorumStateStore`."""

from __future__ import annotations

from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.quorum_state import FILE_NAME, decode_quorum_state, encode_quorum_state
from odradek.ports.disk import Disk
from odradek.wire.messages.quorum_state import QuorumStateData


def load_quorum_state(disk: Disk, directory: str) -> QuorumStateData | None:
    """The state that the file in the directory holds; None without a file. Raises CorruptMetadata and OSError."""
    path = f"{directory}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    try:
        return decode_quorum_state(disk.read_file(path))[0]
    except CorruptMetadata as error:
        raise CorruptMetadata(f"{path}: {error}") from error


def save_quorum_state(disk: Disk, directory: str, state: QuorumStateData, *, version: int) -> None:
    """Replace the file, durably: a voter answers only after that. `version` is that of kraft.version.

    Raises OSError.
    """
    disk.write_atomic(f"{directory}/{FILE_NAME}", encode_quorum_state(state, version))
