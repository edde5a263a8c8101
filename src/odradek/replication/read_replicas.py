"""Which replica a consumer should fetch from (KIP-392). Pure.

Source: Kafka's `ReplicaManager.findPreferredReadReplica` and RackAwareReplicaSelector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from odradek.replication.partition import Partition

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

RackOf = Callable[[int], str | None]
"""The rack of a broker by id."""


def nearest_replica(partition: Partition, rack: str, fetch_offset: int, rack_of: RackOf) -> int | None:
    """An in-sync follower in the consumer's rack that has the offset, the one furthest on; None for the leader."""
    if not rack or rack_of(partition.local_id) == rack:
        return None
    best: tuple[int, int, int] | None = None
    for broker_id, follower in partition.followers.progress.items():
        if (
            broker_id in partition.isr
            and follower.log_start_offset <= fetch_offset <= follower.end_offset
            and rack_of(broker_id) == rack
        ):
            candidate = follower.end_offset, follower.caught_up_ms, -broker_id
            if best is None or candidate > best:
                best = candidate
    return None if best is None else -best[2]
