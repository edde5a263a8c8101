"""Repairing logs after an unclean stop in the Disk's thread, so that neither a start nor a request waits for it.

The thread works on objects of its own and leaves the log on the disk as a clean stop would have; the event loop then
opens it as clean.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from odradek.log.config import LogConfig
from odradek.log.environment import LogEnvironment, StandaloneOwner
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.files import LOG, base_offset_of
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk

LANE: Final = "recovery"
"""Lanes of `Disk.run` that begin with this recover logs, `num.recovery.threads.per.data.dir` of each log directory."""

INLINE_BYTES: Final = 1 << 20
"""A log with no more than this to check is recovered when it is touched, without waiting for its turn."""

_OPEN_FILES: Final = 64


class Recovered(NamedTuple):
    """What became of a log; `repairs` says in words what had to be done."""

    end_offset: int
    repairs: list[str]


def recover(
    disk: Disk,
    clock: Clock,
    place: tuple[str, int, str],
    config: LogConfig,
    recovery_point: int,
    log_start_offset: int,
    producer_id_expiration_ms: int,
) -> Recovered:
    """Check and repair the log of `place` (topic, partition, directory) and sync it; blocks.

    Raises KafkaError KAFKA_STORAGE_ERROR when the disk fails.
    """
    repairs: list[str] = []
    environment = LogEnvironment(
        disk,
        clock,
        open_files=_OPEN_FILES,
        owner=StandaloneOwner(disk, repairs.append),
        producer_id_expiration_ms=producer_id_expiration_ms,
    )
    topic, partition, directory = place
    log = PartitionLog.open(
        topic,
        partition,
        directory,
        config,
        environment,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        clean=False,
    )
    log.close()
    return Recovered(log.end_offset, repairs)


def unchecked_bytes(disk: Disk, directory: str, recovery_point: int) -> int:
    """At most how many bytes recovery would read: the segments that reach past the recovery point."""
    bases = []
    for name in disk.list(directory):
        base = base_offset_of(name)
        if base is not None and name.endswith(LOG):
            bases.append((base, name))
    first = max([base for base, _ in bases if base <= recovery_point], default=0)
    return sum(disk.size(f"{directory}/{name}") for base, name in bases if base >= first)
