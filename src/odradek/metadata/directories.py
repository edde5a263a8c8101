"""Log directories of replicas by their ids (KIP-858). Source: Kafka's `DirectoryId`, `ClusterControlManager`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from odradek.metadata.image import Broker, PartitionState

MIGRATING: Final = bytes(16)
"""The directory of a replica that has one, whose id the controller does not know yet."""
UNASSIGNED: Final = bytes(15) + b"\x01"
"""The directory of a new replica until its broker has chosen one."""
LOST: Final = bytes(15) + b"\x02"
"""A directory that is offline, and whose id its broker does not know."""


def is_online(directory: bytes, broker: Broker) -> bool:
    """Whether the broker can serve a replica in this directory.

    A broker that has registered no directory at all halts when all of them fail: until then, all count as online.
    """
    if directory in (MIGRATING, UNASSIGNED):
        return True
    return directory != LOST and (not broker.log_dirs or directory in broker.log_dirs)


def is_unassigned(state: PartitionState, broker_id: int) -> bool:
    """Whether the broker has reported no directory of its replica yet, of those that records name."""
    return bool(state.directories) and state.directories[state.replicas.index(broker_id)] == UNASSIGNED


def default_directory(broker: Broker | None) -> bytes:
    """The directory of a new replica: that of its broker, where it has exactly one."""
    if broker is None:
        return UNASSIGNED
    if not broker.log_dirs:
        return MIGRATING
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED


def directories_after_move(
    before: PartitionState, replicas: tuple[int, ...], default: Callable[[int], bytes]
) -> tuple[bytes, ...]:
    """The directories of the partition with these replicas: one that stays keeps its directory.

    They stay unknown (empty) where no record has named any. `default`: the directory of an added replica.
    """
    if replicas == before.replicas or not before.directories:
        return before.directories
    known = dict(zip(before.replicas, before.directories, strict=True))
    return tuple(known[replica] if replica in known else default(replica) for replica in replicas)
